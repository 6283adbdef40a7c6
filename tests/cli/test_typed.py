"""Commands and options as people type them: the answer names the place, the value and the next
step."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli import main
from experiments.history.store import History
from experiments.preflight import _with_near_name
from harness.errors import Exit
from harness.workers import load_worker
from tests.planted.campaign import leave_campaign

CAMPAIGN = "20260101-000000-kafka-quick"
SCENARIO = """
name: mine
topics: {{t: {{partitions: 3}}}}
load:
  producers: {{p: {{client: {client}, options: {{{option}: {value}}}}}}}
"""
CONSUMER = """
name: mine
topics: {{t: {{partitions: 3}}}}
load:
  consumers: {{c: {{client: {client}, options: {{{option}: {value}}}}}}}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("typed") / "runs"
    leave_campaign(root)
    with History.open(root / "history.sqlite"):
        pass
    return root


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["repro", "sarama-2377", "--quick", "--rounds", "5"],
            "--quick stops at the first hit and cannot be",
        ),
        (
            ["suite", "plan", "quick", "--shard", "5/4"],
            "--shard 5/4: the first number must be from 1 to 4",
        ),
        (
            ["suite", "plan", "quick", "--shard", "1/0"],
            "--shard 1/0: there must be at least one shard",
        ),
        (["trace", "--first", "acked-lots"], "neither a class nor a run; did you mean acked-lost?"),
        (
            ["run", "--replay", CAMPAIGN],
            f"holds several runs: name one of its rounds\n  there are {CAMPAIGN}/",
        ),
        (
            ["plan", "kafka-smoke", "--for", "99h"],
            "--for 99h: load.duration: must be at most 24h, got '99h'",
        ),
        (
            ["plan", "kafka-quick", "--set", "load.duration=10"],
            "--set load.duration=10: load.duration: the faults of the scenario do not fit into it",
        ),
        (["history", "export", "x.csv"], "cannot write x.csv: the export is Parquet"),
        (["history", "export", "x.parquet"], "holds no round: there is nothing to export"),
        (
            ["plan", "kafka-smoke", "--cluster", "missing.yaml"],
            "there is no connection file missing.yaml",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_is_typed(
    words: list[str], says: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    code = main(["--run-dir", str(runs), *words])
    err = capsys.readouterr().err
    assert (code, says in err) == (Exit.USAGE, True), err
    assert "Errno" not in err
    assert list(tmp_path.iterdir()) == []


def mistyped() -> list[tuple[str, str]]:
    """The lines of `mistyped.txt`: a command, and what its answer names."""
    lines = (Path(__file__).parent / "mistyped.txt").read_text().splitlines()
    pairs = (line.partition("  =>  ") for line in lines if line and not line.startswith("#"))
    return [(words, says) for words, _, says in pairs]


@pytest.mark.long
@pytest.mark.parametrize(("words", "says"), mistyped(), ids=[words for words, _ in mistyped()])
def test_a_mistyped_command_is_answered_with_what_to_write(
    words: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["--run-dir", "runs", *shlex.split(words)])
    err = capsys.readouterr().err
    assert (code, says in err) == (Exit.USAGE, True), err
    assert len(err.splitlines()) <= 3, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "client", "option", "value", "says"),
    [
        (
            SCENARIO,
            "franz-go",
            "RequiredAcks",
            "AllISRAck",
            "did you mean AllISRAcks? franz-go takes: AllISRAcks",
        ),
        (
            SCENARIO,
            "franz-go",
            "RequiredAcks",
            "all",
            "franz-go takes: AllISRAcks, LeaderAck, NoAck",
        ),
        (
            SCENARIO,
            "franz-go",
            "RequiredAcks",
            "-1",
            "franz-go takes: AllISRAcks, LeaderAck, NoAck",
        ),
        (
            SCENARIO,
            "kafka-clients",
            "key.serializer",
            "x",
            "leave it out, got 'x'; keys and values are bytes",
        ),
        (CONSUMER, "kafka-clients", "auto.offset.reset", "latest", "write `start` of the consumer"),
        (
            CONSUMER,
            "kafka-clients",
            "enable.auto.commit",
            "true",
            "write `commit: auto` and `commit_every`",
        ),
        (
            CONSUMER,
            "confluent-kafka",
            "enable.auto.commit",
            "true",
            "write `commit: auto` and `commit_every`",
        ),
    ],
)
def test_an_option_that_cannot_be(
    text: str, client: str, option: str, value: str, says: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(text.format(client=client, option=option, value=value))
    code = main(["plan", str(path)])
    err = capsys.readouterr().err
    assert (code, says in err) == (Exit.USAGE, True), err


def test_a_misspelt_option_is_named_with_the_one_that_is_meant() -> None:
    """librdkafka's own words name neither the key of the scenario nor an option of a similar
    name."""
    client = type("Client", (), {"options": {"linger.ms": "4", "ackz": "all"}})
    spec = type("Spec", (), {"client": client})
    said = _with_near_name('No such property: "ackz"', load_worker("confluent-kafka"), spec)
    assert said == 'ackz: No such property: "ackz"; did you mean acks?'


def test_a_terminal_of_one_column_gets_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("commands.tables.width", lambda: 1)
    assert main(["plan", "kafka-quick"]) == Exit.PASS
    assert "leader" in capsys.readouterr().out


def test_half_a_character_in_a_scenario_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(
        'name: mine\nabout: "a\\ud800"\ntopics: {t: {partitions: 3}}\n'
    )
    assert main(["plan", str(tmp_path / "mine.yaml")]) == Exit.USAGE
    assert "half of a character" in capsys.readouterr().err
