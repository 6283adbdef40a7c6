"""Files of a run appear whole or not at all."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.rundir import read_bytes, read_json, read_jsonl, write_json, write_jsonl


def rows_that_break() -> Iterator[dict[str, Any]]:
    yield {"n": 1}
    raise ValueError("no more")


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    one, many = tmp_path / "deep" / "one.json", tmp_path / "deep" / "many.jsonl"
    write_json(one, {"n": 0})
    write_jsonl(many, [{"n": 0}])
    with pytest.raises(TypeError):
        write_json(one, {(1, 2): "a key that JSON does not have"})
    with pytest.raises(ValueError, match="no more"):
        write_jsonl(many, rows_that_break())
    assert (read_json(one), read_jsonl(many)) == ({"n": 0}, [{"n": 0}])
    assert sorted(path.name for path in one.parent.iterdir()) == ["many.jsonl", "one.json"]
    assert oct(one.stat().st_mode & 0o777) == "0o644"


def test_a_small_file_takes_little_memory_whatever_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n")
    tracemalloc.start()
    try:
        assert read_bytes(path, 1 << 30) == b"{}\n"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20
