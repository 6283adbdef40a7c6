"""Files that users write: all problems at once, a line each, whichever kind of file it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.nights.file import load_suite
from harness.clusters.layout.compose import read_compose
from harness.connections.file import read_connection
from harness.errors import MOST_PROBLEMS, UsageError
from harness.importing.source import read_description
from harness.workers.spec import WorkerSpec


def a_worker(path: Path) -> object:
    toml = path.parent / "worker.toml"
    toml.write_text('system = "kafka"\nlibrary = 7\nlanguage = "perl"\ncolour = "red"\n')
    return WorkerSpec.read(path.parent)


@pytest.mark.parametrize(
    ("read", "text", "keys"),
    [
        (load_suite, "name: 5\nunknown: 1\ncells: 7\n", ("name", "unknown", "cells")),
        (read_connection, "yours: maybe\nsystem: 4\ncolour: red\n", ("yours", "system", "colour")),
        (a_worker, "", ("library", "language", "colour")),
        (
            lambda path: read_description(path.read_text()),
            "system: 7\nlanes: 4\nred: 1\n",
            ("system", "lanes", "red"),
        ),
        (read_compose, "services: 7\nx-brokerstorm: 4\n", ("services", "x-brokerstorm")),
    ],
    ids=["suite", "connection", "worker", "import", "compose"],
)
def test_every_problem_has_a_line(
    tmp_path: Path, read: Callable[[Path], object], text: str, keys: tuple[str, ...]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read(path)
    lines = [str(caught.value), *caught.value.further]
    assert {key for key in keys if any(f": {key}: " in line for line in lines)} == set(keys), lines


def test_what_does_not_fit_on_a_screen_is_counted() -> None:
    error = UsageError.of_lines(
        (f"line {number}" for number in range(MOST_PROBLEMS + 4)), hint="see the page"
    )
    assert len(error.further) == MOST_PROBLEMS - 1
    assert error.hint == "4 more after these; see the page"
