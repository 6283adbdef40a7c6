"""Where the text of a bug is looked for: the call that waits, errors of sends, logs of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.verdict.sightings import Sighting, look_for
from harness.rundir import RunDir, write_json, write_jsonl

HANG = {
    "worker": "producer-1",
    "t_ns": 5,
    "kind": "hang",
    "text": "3 sends open",
    "where": "Producer.Close producer.go:10",
    "stack": ["main.loop", "Producer.Close", "Producer.SendMessages"],
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run").create()
    workers = [{"name": "producer-1", "role": "producer"}, {"name": "audit-1", "role": "audit"}]
    write_json(run.manifest, {"workers": workers})
    write_jsonl(run.events, [HANG])
    write_jsonl(run.names, [{"id": 1, "kind": "error", "text": "NOT_LEADER"}])
    for name in ("producer-1", "audit-1"):
        run.worker(name).mkdir()
        (run.worker(name) / "stderr.log").write_text(f"{name} began\nlast words of {name}\n")
    return run


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("SendMessages", "producer-1 waits in Producer.Close producer.go:10"),
        ("NOT_LEADER", "an error of a send: NOT_LEADER"),
        ("last words", "producer-1 logged: last words of producer-1"),
        ("words of audit-1", ""),
        ("SendBytes", ""),
    ],
)
def test_the_first_place_that_has_it(run: RunDir, text: str, where: str) -> None:
    assert look_for(run, text) == Sighting(where)


@pytest.mark.parametrize(
    ("lost", "unread"),
    [
        ("stack", "no stacks of producer-1 were available"),
        ("log", "no log is available of producer-1"),
        ("names", "the errors of the clients are not sealed"),
    ],
)
def test_what_could_not_be_read_is_told(run: RunDir, lost: str, unread: str) -> None:
    if lost == "stack":
        row: dict[str, Any] = {key: HANG[key] for key in ("worker", "t_ns", "kind", "text")}
        write_jsonl(run.events, [row])
    else:
        path = run.names if lost == "names" else run.worker("producer-1") / "stderr.log"
        path.unlink()
    assert look_for(run, "SendBytes") == Sighting("", unread)
