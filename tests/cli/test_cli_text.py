"""The output and exit codes of the command line, called in this process."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from analysis.report.documents import schemas
from cli import cli, main
from harness.clusters.process_runtime import GIVES
from harness.errors import BrokerstormError, EnvironmentNotReady, Exit
from harness.rundir import RunDir, write_json

COMMANDS = sorted(cli.commands)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False, catch_exceptions=False)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr as a shell sees them."""
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


# ----- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example(name: str) -> None:
    text = call(name, "--help").output
    _, _, example = text.partition("\nExample:\n")
    lines = [line.strip() for line in example.strip().splitlines()]
    assert lines
    assert all(line.startswith("brokerstorm ") for line in lines)
    assert any(line.startswith(f"brokerstorm {name}") for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_in_a_line(name: str) -> None:
    short = cli.commands[name].get_short_help_str(200)
    assert 10 < len(short) <= 65, "longer ones are cut in the list of commands"
    assert short.endswith(".")


def test_the_help_of_the_whole_lists_every_command() -> None:
    text = call("--help").output
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert "..." not in text.split("Commands:")[1]


def test_examples_are_real_commands() -> None:
    parts = [
        part for name in COMMANDS for part in getattr(cli.commands[name], "commands", {}).values()
    ]
    for command in [*(cli.commands[name] for name in COMMANDS), *parts]:
        for line in getattr(command, "example", "").splitlines():
            words = line.split()
            target: Any = cli.commands[words[1]]
            target = getattr(target, "commands", {}).get(words[2], target) if words[2:] else target
            known = {option for parameter in target.params for option in parameter.opts}
            used = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert used <= known | {"--help"}, line


# ----- the same command in words and in JSON ------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "faults"],
        ["list", "workers"],
        ["list", "runs"],
        ["list", "classes"],
        ["plan", "kafka-quick", "--seed", "3"],
        ["explain"],
        ["explain", "acked-lost"],
    ],
)
def test_json_is_one_versioned_document(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--run-dir", str(tmp_path)]
    code, out, err = answer(capsys, *base, *arguments, "--json")
    assert code == 0
    assert json.loads(out)["schema_version"] == 1
    assert err == ""
    code, out, err = answer(capsys, *base, *arguments)
    assert (code, err) == (0, "")
    assert out.strip()
    assert not out.startswith("{")


def test_what_a_cluster_can_be_started_with_stands_beside_the_faults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = answer(capsys, "list", "faults", "--json")
    needs = {need for row in json.loads(out)["items"] for need in row["needs"]}
    assert "synced-folders" in out, "what one value of a parameter needs is said there"
    assert needs | {"synced-folders"} == GIVES, (
        "`up --needs` takes these, and its help names `list faults`"
    )
    _, out, _ = answer(capsys, "list", "faults")
    assert all(need in out for need in needs)


@pytest.mark.parametrize("place", ["before", "after"])
def test_global_options_stand_before_or_after(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        ["--json", "list", "workers"] if place == "before" else ["list", "workers", "--json"]
    )
    _, out, _ = answer(capsys, *arguments)
    names = [item["name"] for item in json.loads(out)["items"]]
    assert {"confluent-kafka", "kafka-python"} <= set(names)


@pytest.mark.long
def test_plan_shows_the_fault_times_of_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    def times(seed: int) -> list[float]:
        _, out, _ = answer(capsys, "plan", "kafka-storm", "--seed", str(seed), "--json")
        (plan,) = json.loads(out)["plans"]
        return [row["t_s"] for row in plan["timeline"]]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_plan_of_one_variant_with_a_value_laid_over(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(
        capsys, "plan", "kafka-quick", "--variant", "safe", "--set", "load.rate=123"
    )
    assert code == 0
    assert "kafka-quick · safe" in out
    assert "unsafe" not in out
    assert "123 msg/s" in out


# ----- errors -------------------------------------------------------------------------------------

ERRORS = [
    (["rum"], "No such command 'rum'", "run"),
    (["run", "--sed", "7"], "No such option '--sed'", "--seed"),
    (["list", "fault"], "'fault' is not one of", ""),
    (["run"], "which scenario?", "list scenarios"),
    (["run", "kafka-quik"], "no such scenario: 'kafka-quik'", "did you mean kafka-quick?"),
    (["run", "kafka-quick", "--variant", "saef"], "no variant 'saef'", "unsafe, safe"),
    (["run", "kafka-quick", "--rounds", "0"], "0 is not in the range", ""),
    (["run", "kafka-quick", "--set", "load.rate=0"], "load.rate: must be at least 1", ""),
    (["run", "kafka-quick", "--set", "load.rate=1000000000"], "must be at most 2000000", ""),
    (
        ["run", "kafka-quick", "--set", "faults[0].fault=kil"],
        "faults[0].fault: unknown kind 'kil'",
        "",
    ),
    (["run", "kafka-quick", "--set", "cluster.version=9"], "cluster.version: must be text", ""),
    (
        [
            "plan",
            "kafka-quick",
            "--set",
            "variants.safe.override.load.producers.shop.options.acks=1",
        ],
        "acks=1 contradicts enable.idempotence=true",
        "acks=all",
    ),
    (["show"], "there is no run in", "run kafka-quick"),
    (["show", "nosuch"], "no run 'nosuch'", "list runs"),
    (["analyze"], "there is no run in", ""),
    (["trace", "1/2/3"], "there is no run in", ""),
    (["compare", "a"], "Missing argument", ""),
    (["explain", "acked-lots"], "acked-lots", "acked-lost"),
    (["run", "--replay", "nosuch"], "no run 'nosuch'", ""),
    (["run", "--resume", "nosuch"], "no run 'nosuch'", ""),
    (["run", "kafka-smoke", "--resume", "r"], "reuses the original options", "run --resume r"),
    (["run", "--resume", "r", "--rounds", "2"], "reuses the original options", "run --resume r"),
    (
        ["new", "/no/such/x.yaml", "--from", "kafka-strom"],
        "no such scenario: 'kafka-strom'",
        "kafka-storm",
    ),
    (
        ["new", "/no/such/x.yaml", "--from", "kafka-storm", "--system", "qpid"],
        "--from kafka-storm already determines the system",
        "",
    ),
    (
        ["analyze", "--import", "nosuch"],
        "nosuch: the folder does not exist",
        "judge-another-capture",
    ),
    (["new", ""], "'.' is not a file name in UTF-8", ""),
    (["new", "\udcff"], "is not a file name in UTF-8", ""),
    (["history", "export", ""], "is not a file name in UTF-8", ""),
    (["show", "a" * 300], "File name too long: ", ""),
    (["run", "a" * 300], "File name too long: aaaa", ""),
    (["clean", "nosuch"], "no run 'nosuch'", ""),
    (["inject", "kill", "target"], "'target' is not KEY=VALUE", ""),
    (["inject", "kill", "--for", "2x"], "--undo-after 2x: must be a duration", ""),
]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"), ERRORS, ids=[" ".join(a)[:60] for a, _, _ in ERRORS]
)
def test_a_wrong_command_line_is_two_lines_at_most(
    arguments: list[str],
    message: str,
    hint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = answer(capsys, "--run-dir", str(tmp_path / "runs"), *arguments)
    assert code == Exit.USAGE
    assert out == ""
    assert err.startswith("brokerstorm: ")
    assert message in err
    assert hint in err
    assert len(err.splitlines()) <= 2
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists(), "nothing was started, so nothing is left"


def test_a_file_that_this_user_may_not_read_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    code, _, err = answer(capsys, "plan", "mine.yaml")
    assert (code, err.splitlines()[0]) == (Exit.USAGE, "brokerstorm: Permission denied: mine.yaml")


@pytest.mark.long
@pytest.mark.parametrize("arguments", [ERRORS[0][0], ERRORS[4][0], ERRORS[7][0]])
def test_errors_are_a_document_with_json(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(capsys, "--run-dir", str(tmp_path), *arguments, "--json")
    document = json.loads(out)
    jsonschema.validate(document, schemas()["error.json"])
    assert (document["exit_code"], code, err) == (2, 2, "")
    assert document["error"]["message"]


def test_an_expected_error_is_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise EnvironmentNotReady("no java on the PATH", hint="install one")

    monkeypatch.setattr("harness.scenario.file.bundled_scenarios", fail)
    code, _, err = answer(capsys, "list")
    assert (code, err) == (Exit.ENVIRONMENT, "brokerstorm: no java on the PATH\n  install one\n")


@pytest.mark.parametrize(
    "error", [RuntimeError("first\nsecond"), BrokerstormError("on purpose, but ours")]
)
def test_our_bug_is_one_line_and_a_file(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("harness.scenario.file.bundled_scenarios", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, err = answer(capsys, "list")
    assert (code, out) == (Exit.BUG, "")
    assert "internal error: " in err
    assert "Traceback" not in err
    (kept,) = tmp_path.glob("brokerstorm-*.traceback.txt")
    assert str(kept) in err
    assert "Traceback (most recent call last)" in kept.read_text()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no such folder"))
    code, _, err = answer(capsys, "list")
    assert code == Exit.BUG
    assert len(err.splitlines()) == 2
    assert "please report it; `brokerstorm clean`" in err


def test_unreadable_runs_are_listed_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = RunDir(tmp_path / "20260102-x").create()
    write_json(good.manifest, {"status": "complete"})
    write_json(good.result, {"verdict": "pass"})
    RunDir(tmp_path / "20260101-x").create().manifest.write_text("{not json")
    (tmp_path / "no-run").mkdir()
    code, out, _ = answer(capsys, "list", "runs", "--run-dir", str(tmp_path), "--json")
    items = json.loads(out)["items"]
    assert code == 0
    assert [item["run_id"] for item in items] == ["20260102-x", "20260101-x"]
    assert items[0]["verdict"] == "pass"
    assert items[1]["status"].startswith("unreadable: ")


@pytest.mark.long
def test_new_writes_a_scenario_and_never_over_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    assert answer(capsys, "new", str(path))[0] == 0
    assert answer(capsys, "plan", str(path))[0] == 0
    code, _, err = answer(capsys, "new", str(path))
    assert code == Exit.USAGE
    assert "exists" in err
    assert answer(capsys, "new", str(path), "--force")[0] == 0
    code, out, _ = answer(capsys, "new", str(path), "--force", "--from", "qpid-2703")
    beside = "scenario.schema.json next to it for editors"
    assert (code, out) == (0, f"{path} written, and {beside}; `brokerstorm repro {path}` runs it\n")
    assert answer(capsys, "plan", str(path))[0] == 0


def test_new_puts_the_schema_beside_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "scenario.schema.json"
    schema.write_text('{"title": "brokerstorm scenario", "of": "an earlier release"}')
    for words, name in (
        ([], "scenario"),
        (["--from", "pulsar-12779"], "scenario"),
        (["--suite"], "suite"),
    ):
        path = tmp_path / f"{name}-{len(words)}.yaml"
        assert answer(capsys, "new", str(path), *words)[0] == 0
        first = path.read_text().splitlines()[0]
        assert first == f"# yaml-language-server: $schema={name}.schema.json"
        assert (
            json.loads((tmp_path / f"{name}.schema.json").read_text())["title"]
            == f"brokerstorm {name}"
        )
    assert "an earlier release" not in schema.read_text()
    assert schema.stat().st_size < 150_000, "it is committed with every scenario"
    schema.write_text('{"title": "of somebody else"}')
    code, _, err = answer(capsys, "new", str(tmp_path / "another.yaml"))
    assert (code, (tmp_path / "another.yaml").exists()) == (Exit.USAGE, False)
    assert f"{schema} is not a schema of brokerstorm" in err


@pytest.mark.long
def test_a_run_folder_that_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = answer(
        capsys, "run", "kafka-smoke", "--run-dir", str(tmp_path / "file" / "runs")
    )
    assert code == Exit.USAGE
    assert "cannot write to the run folder" in err


# ----- up -----------------------------------------------------------------------------------------


def test_a_cluster_that_is_refused_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = answer(
        capsys, "--run-dir", str(tmp_path), "up", "--system", "pulsar", "--version", "2.7.4"
    )
    assert code == Exit.USAGE
    assert "pulsar 2.7.4 is older than what brokerstorm can start" in err
    assert list(tmp_path.iterdir()) == []


def test_up_takes_the_system_or_a_scenario_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = answer(capsys, "up", "pulsar-smoke", "--system", "kafka")
    assert code == Exit.USAGE
    assert "--system kafka: pulsar-smoke is a scenario of pulsar" in err
