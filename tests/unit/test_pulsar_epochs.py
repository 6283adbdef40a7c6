"""Epochs of the Java worker of Pulsar: with which message a new connection begins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.workers import java_build

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "tests" / "data" / "java" / "EpochsOf.java"
EPOCHS = ROOT / "workers" / "pulsar_java" / "brokerstorm" / "pulsar" / "Epochs.java"
POSITION = java_build.KIT / "brokerstorm" / "kit" / "MessagePosition.java"
pytestmark = [
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK"),
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "--release", "11", "-d", folder, POSITION, EPOCHS, MAIN], check=True)
    return folder


def given(*positions: int, stream: int = 1) -> list[str]:
    return [f"given {stream} {position}" for position in positions]


@pytest.mark.parametrize(
    ("events", "epochs", "subscription"),
    [
        pytest.param(
            [*given(8, 9), "lost 1", *given(10, 11), "reconnected 1 0", *given(8, 9, 10, 11, 12)],
            "00 00 11111",
            "exclusive",
            id="prefetched messages belong to the connection that was lost",
        ),
        pytest.param(
            [*given(8), "lost 1", "reconnected 1 2", *given(9, 10, 8, 9, 10)],
            "0 00 111",
            "exclusive",
            id="the shared queue still has them after the reconnect",
        ),
        pytest.param(
            [*given(8), "lost 1", "reconnected 1 0", *given(8, 9, 11, 10)],
            "0 1111",
            "exclusive",
            id="one loss explains one step back",
        ),
        pytest.param(
            [*given(8), *given(7, stream=2), "lost 1", *given(10, 9), *given(6, stream=2)],
            "0 0 01 0",
            "exclusive",
            id="a loss explains nothing of another stream",
        ),
        pytest.param(
            [*given(1), "lost 1", "reconnected 1 0", *given(*range(2, 104)), *given(50)],
            "0 " + "0" * 100 + "11 1",
            "exclusive",
            id="nothing came again: it begins once all that waited was handed over",
        ),
        pytest.param(
            [*given(8), "lost 1", "lost 1", *given(9, 8, 9, 10, 7, 8)],
            "0 0 111 22",
            "exclusive",
            id="two connections were lost",
        ),
        pytest.param(
            [*given(8), "lost 1", *given(5, 9, 8), "reconnected 1 0", *given(9)],
            "0 112 2",
            "shared",
            id="of a shared subscription a refused message goes back too",
        ),
    ],
)
def test_the_epoch_of_each_message(
    classes: Path, events: list[str], epochs: str, subscription: str
) -> None:
    command = ["java", "-cp", str(classes), "brokerstorm.pulsar.EpochsOf", subscription]
    run = subprocess.run(
        command, input="\n".join(events), capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == list(epochs.replace(" ", ""))
