"""Command lines made at random: every command answers, or gets as far as where it would start
something.

A failure names its seed; `command_line(random.Random(seed))` makes the same one again.
"""

from __future__ import annotations

import random
import webbrowser
from pathlib import Path

import click
import pytest

from cli import cli
from harness.clusters import leftovers
from harness.clusters.layout import addresses
from harness.doctor import machine
from harness.errors import Exit
from tests.cli.answers import REFUSALS, STARTS, answer, refuse_to_start
from tests.planted.campaign import LOST, leave_campaign

WORDS = (
    *(
        "",
        "-",
        "--",
        "---",
        "-x",
        "--x",
        "=",
        "a=b",
        "a=b=c",
        ".",
        "..",
        "*",
        "~",
        "%",
        "#",
        "é",
        "日本",
        "\udcff",
    ),
    *(
        "\x1b[31m",
        "\r",
        "\n",
        "a\nb",
        "\u202e",
        "a" * 300,
        "a" * 5000,
        "a/b",
        "runs",
        "runs/latest",
        "latest",
    ),
    *(
        "0",
        "1",
        "-1",
        "1.5",
        "1e9",
        "nan",
        "9" * 19,
        "9" * 5000,
        "5s",
        "-5s",
        "1h",
        "true",
        "null",
        "[",
        "{}",
    ),
    *(
        "kafka-quick",
        "pulsar-storm",
        "qpid-storm",
        "kafka-quik",
        "sarama-2377",
        "kafka",
        "pulsar",
        "qpid",
    ),
    *(
        "latest/unsafe-1",
        "latest/safe-1",
        "latest/none",
        "unsafe",
        "safe",
        "acked-lost",
        "ackd-lost",
        "kill",
    ),
    *(
        LOST,
        "1/2",
        "1/2/3.4",
        "1/99/0",
        "orders-2@3",
        "orders-9@0",
        "orders-2@1:2:3",
        "@",
        "1/2/" + "9" * 30,
    ),
    *(
        "load.rate=0",
        "load.rate=",
        "load.rate=[",
        "load.rate=1000",
        "topics.x=1",
        "faults=[]",
        "rounds=2",
    ),
    *(
        "target=random",
        "target=",
        "for=5s",
        "kafka-1",
        "file:///none",
        "spark://h:1",
        "4.1.2",
        "jars:x",
    ),
    *(
        "mine.yaml",
        "mine",
        "classes",
        "scenarios",
        "faults",
        "runs",
        "process",
        "docker",
        "quick",
        "-h",
    ),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs, where nothing can be started and nothing that others left is in sight."""
    leave_campaign(tmp_path / "runs")
    (tmp_path / "mine.yaml").write_text("name: mine\ntopics: {orders: {}}\n")
    monkeypatch.chdir(tmp_path)
    for owner, name in STARTS:
        monkeypatch.setattr(owner, name, refuse_to_start)
    monkeypatch.setattr(addresses, "claims", list)
    monkeypatch.setattr(leftovers, "find", lambda *_: [])
    monkeypatch.setattr(webbrowser, "open", lambda *_: True)
    # of the machine, not of the arguments
    monkeypatch.setattr(machine, "checks", lambda *_, **__: [])
    return tmp_path


@pytest.mark.long
def test_some_hostile_command_lines(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(100):
        check(seed, place, capsys)


@pytest.mark.slow
def test_many_hostile_command_lines(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(1_000, 11_000):
        check(seed, place, capsys)


def check(seed: int, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command_line(random.Random(seed))
    # `show` of unsafe-1 says its verdict
    codes = [*REFUSALS, Exit.FAIL] if "show" in words else REFUSALS
    answer(words, capsys, f"seed {seed}", codes=codes)


def command_line(rng: random.Random) -> list[str]:
    """A command with some of its arguments and options, most of them as they should be."""
    name = rng.choice(list(cli.commands))
    command = cli.commands[name]
    words = [name]
    if isinstance(command, click.Group):
        words.append(rng.choice(list(command.commands)))
        command = command.commands[words[-1]]
    for parameter in rng.sample(command.params, len(command.params)):
        wanted = 0.8 if isinstance(parameter, click.Argument) else 0.15
        while rng.random() < wanted:
            words += given(rng, parameter)
            wanted *= 0.3
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
    return words


def given(rng: random.Random, parameter: click.Parameter) -> list[str]:
    """An argument, or an option with its value; sometimes without, or with one that it does not
    take."""
    kind = parameter.type
    fitting = list(kind.choices) if isinstance(kind, click.Choice) else []
    value = str(rng.choice(fitting)) if fitting and rng.random() < 0.7 else rng.choice(WORDS)
    if isinstance(parameter, click.Argument):
        return [value]
    option = rng.choice(parameter.opts)
    takes_value = not getattr(parameter, "is_flag", False) and not getattr(
        parameter, "count", False
    )
    if takes_value == (rng.random() < 0.95):
        return [option, value] if rng.random() < 0.7 else [f"{option}={value}"]
    return [option]
