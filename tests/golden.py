"""The golden files of the worker protocol, and whether a self-test wrote the same."""

from __future__ import annotations

import json
from pathlib import Path

GOLDEN = Path(__file__).parent / "data" / "golden"


def assert_golden(folder: Path) -> None:
    """Byte for byte; names.jsonl: equal as JSON."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in GOLDEN.iterdir())
    for expected in GOLDEN.iterdir():
        found = folder / expected.name
        if expected.suffix == ".jsonl":
            lines = [[json.loads(line) for line in p.read_text().splitlines()] for p in (expected, found)]
            assert lines[0] == lines[1]
        else:
            assert found.read_bytes() == expected.read_bytes(), expected.name
