"""The command bisect: what cannot be asked is refused in one line, and nothing is left of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli import main
from harness.errors import Exit

KNOWN = ["1.30.0", "1.37.2", "1.38.0-rc1", "1.38.0", "1.43.3"]


@pytest.fixture
def ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.setattr("experiments.bisect.question.released", lambda worker, version="": KNOWN)
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))

    def refused(*words: str) -> str:
        runs = tmp_path / "runs"
        assert main(["--run-dir", str(runs), "bisect", *words]) == Exit.USAGE
        assert not list(runs.glob("*"))
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "sarama-2377 --bad 1.37.0 --good 1.38.0",
            "1.37.0 is not released\n  the closest ones are 1.30.0, 1.37.2",
        ),
        ("sarama-2377 --bad 1.38.0 --good 1.38.0", "--good and --bad are both 1.38.0"),
        ("sarama-2377 --bad 1.30.0 --client pika", "the scenario does not use it; known: sarama"),
        ("sarama-2377 --pair no", "sarama-2377 has no pair 'no'"),
        ("sarama-2377 --class lots", "--class lots: no such class"),
        ("kafka-quick --bad 1.0 --good 2.0", "kafka-quick has variants: which one?"),
        (
            "kafka-smoke --good 2.0 --client kafka-python",
            "kafka-smoke does not say where to begin: --bad is missing",
        ),
        ("pulsar-async-unchecked --pair no", "has no pair 'no'"),
        ("--resume 20260101-none", "no bisection '20260101-none'"),
        ("sarama-2377 --resume x", "--resume continues a bisection with its original options"),
        ("sarama-2377 --budget soon", "--budget soon must be a duration"),
        ("sarama-2377 --repo . --bad v0.nothing --good HEAD", "has no commit 'v0.nothing'"),
        ("", "which scenario?"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Callable[..., str], words: str, said: str) -> None:
    assert said in ask(*words.split())


def test_the_version_that_is_bisected_cannot_be_set(ask: Callable[..., str]) -> None:
    words = ("sarama-2377", "--bad", "1.30.0", "--good", "1.43.3")
    said = ask(*words, "--set", "load.producers.shop.client_version=1.38.0")
    assert "--set decides the version of sarama, which is what is bisected" in said
