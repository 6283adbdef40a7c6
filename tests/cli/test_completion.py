"""Completion of the word that is being typed, by click's protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import cli, main
from harness.rundir import RunDir, point_latest, write_json

ROOT = Path(__file__).resolve().parents[2]
#: Libraries that take longer to load than an answer may take.
HEAVY = {"pydantic", "pyspark", "pandas", "pyarrow", "bokeh", "psutil", "docker", "rich", "urllib3"}
HEAVY |= {"confluent_kafka", "kafka", "pulsar", "pika"}


def typed(line: str) -> dict[str, str]:
    """The environment in which bash asks for the last word of a line."""
    words = line.split(" ")
    return {
        "_BROKERSTORM_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }


@pytest.fixture
def complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Complete:
    monkeypatch.chdir(tmp_path)
    return Complete(monkeypatch, capsys)


class Complete:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capsys = capsys

    def __call__(self, line: str) -> list[str]:
        for name, value in typed(line).items():
            self.monkeypatch.setenv(name, value)
        assert main([]) == 0
        out, err = self.capsys.readouterr()
        assert err == ""
        return [line.removeprefix("plain,") for line in out.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("brokerstorm an", ["analyze"]),
        ("./brokerstorm run kafka-s", ["kafka-share", "kafka-smoke", "kafka-storm", "kafka-surge"]),
        ("brokerstorm --json plan --seed 7 pulsar-st", ["pulsar-storm"]),
        ("brokerstorm doctor qpid-sm", ["qpid-smoke"]),
        ("brokerstorm fetch qpid-sm", ["qpid-smoke"]),
        ("brokerstorm up qpid-sm", ["qpid-smoke"]),
        ("brokerstorm run kafka-quick --variant ", ["unsafe", "safe"]),
        ("brokerstorm run kafka-quick --variant=u", ["unsafe"]),
        ("brokerstorm repro sarama", ["sarama-2377", "sarama-2619", "sarama-3422", "sarama-3593"]),
        ("brokerstorm repro sarama-2377 --quick --pair lea", ["leader-moves"]),
        ("brokerstorm new mine.yaml --from qpid-2", ["qpid-2703"]),
        ("brokerstorm explain acked-l", ["acked-lost"]),
        ("brokerstorm inject packet", ["packet-loss"]),
        ("brokerstorm list b", ["bugs"]),
        ("brokerstorm check-worker pulsar-client-", ["pulsar-client-go", "pulsar-client-java"]),
        ("brokerstorm check-worker ./mine", ["dir,./mine"]),
        ("brokerstorm run no-such-scenario --variant ", []),
    ],
)
def test_names_of_ours(complete: Complete, line: str, found: list[str]) -> None:
    assert complete(line) == found


def test_scenario_files_beside_names_and_otherwise_any_path(
    complete: Complete, tmp_path: Path
) -> None:
    (tmp_path / "kafka-mine.yaml").touch()
    assert complete("brokerstorm run kafka-m") == ["kafka-mix", "kafka-mine.yaml"]
    assert complete("brokerstorm run ./kafka-m") == ["file,./kafka-m"]
    assert complete("brokerstorm repro bugs/") == ["file,bugs/"]


def test_a_variant_of_a_file(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("variants: {slow: {}, fast: {}}")
    assert complete("brokerstorm run mine.yaml --variant s") == ["slow"]
    (tmp_path / "mine.yaml").write_text("variants: {slow: {}, fast")
    assert complete("brokerstorm run mine.yaml --variant s") == []


@pytest.mark.parametrize(
    "command", ["show", "analyze", "trace 1/2/3", "compare", "compare a", "clean", "run --replay"]
)
def test_runs_the_newest_first(complete: Complete, tmp_path: Path, command: str) -> None:
    for name in ("20260101-000000-a", "20260102-000000-b"):
        write_json(RunDir(tmp_path / "kept" / name).create().manifest, {})
    assert complete(f"brokerstorm --run-dir kept {command} ") == [
        "latest", "20260102-000000-b", "20260101-000000-a",
    ]  # fmt: skip
    assert complete(f"brokerstorm {command} 2026") == ["dir,2026"]
    complete.monkeypatch.setenv("BROKERSTORM_RUN_DIR", "kept")
    assert complete(f"brokerstorm {command} 20260101") == ["20260101-000000-a"]


def test_the_runs_of_a_campaign(complete: Complete, tmp_path: Path) -> None:
    root = RunDir(tmp_path / "runs" / "20260101-000000-a").create()
    write_json(root.campaign, {"runs": ["unsafe-1", "safe-1"]})
    point_latest(root)
    assert complete("brokerstorm show latest/") == ["latest/unsafe-1", "latest/safe-1"]
    assert complete("brokerstorm show runs/latest/s") == ["runs/latest/safe-1"]


@pytest.mark.parametrize("command", ["down", "inject kill --cluster"])
def test_clusters_that_are_up(complete: Complete, tmp_path: Path, command: str) -> None:
    write_json(tmp_path / "runs" / "up" / "cluster" / "cluster.json", {})
    (tmp_path / "runs" / "down" / "cluster").mkdir(parents=True)
    assert complete(f"brokerstorm {command} ") == ["up"]


def test_every_word_that_names_something_of_ours_is_completed() -> None:
    named = {"scenario", "bug", "ready", "variant", "pair", "fault", "class_"}
    named |= {"run", "run_a", "run_b", "replay", "worker"}
    parameters = [(c.name, p) for c in cli.commands.values() for p in c.params if p.name in named]
    assert len(parameters) > len(named)
    assert [
        f"{command} {p.name}" for command, p in parameters if p._custom_shell_complete is None
    ] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    ["run k", "repro s", "inject k", "show l", "run kafka-quick --variant u", "check-worker a"],
)
def test_an_answer_loads_nothing_heavy(line: str, tmp_path: Path) -> None:
    code = f"import sys, cli; cli.main([]); print({HEAVY!r} & set(sys.modules))"
    environment = {**os.environ, **typed(f"brokerstorm {line}"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    first, *_, last = done.stdout.splitlines()
    assert first.startswith(("plain,", "dir,"))
    assert last == "set()", done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_by_the_plain_name(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_BROKERSTORM_COMPLETE", f"{shell}_source")
    monkeypatch.setenv("BROKERSTORM_CALLED_AS", "./brokerstorm")
    assert main([]) == 0
    script = capsys.readouterr().out
    assert "_BROKERSTORM_COMPLETE=" in script
    assert "./brokerstorm" not in script
