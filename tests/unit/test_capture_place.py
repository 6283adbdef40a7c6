"""Where the sealed files of a run are looked for, whatever folder the looking process works in."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.capture.capture import Capture, damaged_files
from harness.rundir import RunDir
from tests.planted.tiny import History


def test_a_run_in_a_relative_folder_is_found_from_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark worker keeps the folder that its session was opened in."""
    (tmp_path / "elsewhere").mkdir()
    History().sent(3).log(0, 1, 2).write(tmp_path / "runs" / "run")
    monkeypatch.chdir(tmp_path)
    capture = Capture.find(RunDir(Path("runs/run")))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert damaged_files(capture.root_uri, 0, capture.checksums) == []
