"""Holds the causes that a run names against the brokers' own logs, which nothing of them was made from.

    python -m bench.causes RUN ...

A named cause says which leader acknowledged messages in which epoch, and at which offset the next epoch began
on whom. The server logs of Kafka's nodes say the same in other words: who "starts at leader epoch" from which
offset, to which offset a follower "truncates", and how far its log had come before. One line a cause, then
how many causes, messages and episodes agree in all. Results stand in docs/performance.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from analysis.findings import Cause
from analysis.report.documents import read_result
from harness.rundir import RunDir, find_run, read_json

_TIME = r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] "
_STARTS = re.compile(
    _TIME + r".*\[Broker id=\d+\] (Leader|Follower) (\S+) .*starts at leader epoch (\d+) from offset (\d+) "
)
_TRUNCATES = re.compile(_TIME + r".*Truncating partition (\S+) with TruncationState\(offset=(\d+)")
_CHECKS = ("led", "began", "truncated", "had reached it")


@dataclass(frozen=True, slots=True)
class Line:
    """What a node's log says of a partition. ``what``: Leader or Follower starts, or Truncates."""

    node: str
    t_s: float
    what: str
    stream: str
    offset: int
    epoch: int = -1


def lines_of(node: str, log: Iterable[str]) -> Iterator[Line]:
    for text in log:
        if found := _STARTS.match(text):
            epoch, offset = int(found[4]), int(found[5])
            yield Line(node, _seconds(found[1]), found[2], found[3], offset, epoch)
        elif found := _TRUNCATES.match(text):
            yield Line(node, _seconds(found[1]), "Truncates", found[2], int(found[3]))


def agrees(cause: Cause, lines: Iterable[Line]) -> dict[str, bool]:
    """Each statement of a named cause, and whether the logs say it too."""
    own = [line for line in lines if line.stream == cause.stream]
    low, high = (int(place) for place in (cause.places.split(" to ") * 2)[:2])
    first = int(cause.next_first)

    def says(node: str, what: str, epoch: int | None) -> list[Line]:
        return [line for line in own if (line.node, line.what, line.epoch) == (node, what, epoch)]

    follows = [line for line in own if line.node == cause.leader and line.what == "Follower"]
    follows = [line for line in follows if cause.term is not None and line.epoch > cause.term]
    cuts = [line for line in own if line.node == cause.leader and line.what == "Truncates"]
    after = [line for line in cuts if follows and line.t_s >= follows[0].t_s]
    return {
        "led": any(line.offset <= low for line in says(cause.leader, "Leader", cause.term)),
        "began": any(line.offset == first for line in says(cause.next_leader, "Leader", cause.next_term)),
        "truncated": any(line.offset <= low for line in after),
        "had reached it": any(line.offset > high for line in follows),
    }


def main() -> None:
    totals = {"causes": [0, 0], "messages": [0, 0], "episodes": [0, 0]}
    for name in sys.argv[1:]:
        found = find_run(Path("runs"), name)
        for run in found.rounds() or [found]:
            _judge(run, totals)
    for what, (agreeing, all_of_them) in totals.items():
        print(f"{what}: {agreeing:,} of {all_of_them:,} in agreement")


def _judge(run: RunDir, totals: dict[str, list[int]]) -> None:
    lines = list(_logs(run))
    for finding in read_result(run).findings:
        if finding.cls != "acked-lost":
            continue
        named = [cause for cause in finding.causes if cause.named]
        print(f"{run.run_id}: {finding.caused_episodes} of {finding.episodes} episodes have a named cause")
        for cause in named:
            said = agrees(cause, lines)
            missing = ", ".join(check for check in _CHECKS if not said[check])
            print(f"  {cause.count:6,} {cause.stream:12} {missing or 'agrees'}: {cause.sentence}")
            for what, number in (("causes", 1), ("messages", cause.count), ("episodes", cause.episodes)):
                totals[what][0] += number * (not missing)
                totals[what][1] += number


def _logs(run: RunDir) -> Iterator[Line]:
    """Lines of the run's time: rounds share a cluster, and the names of its topics."""
    manifest = read_json(run.manifest)
    zero_s = datetime.fromisoformat(manifest["epoch_wall"]).timestamp() - manifest["epoch_ns"] / 1e9
    begin, *_, end = (
        zero_s + phase[key] / 1e9 for phase in manifest["phases"] for key in ("start_ns", "end_ns")
    )
    folder = run.cluster if run.cluster.is_dir() else RunDir(run.root.parent).cluster
    for path in sorted(folder.glob("*/logs/stdout.log")):
        with path.open(errors="replace") as log:
            for line in lines_of(path.parent.parent.name, log):
                if begin <= line.t_s <= end:
                    yield line


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


if __name__ == "__main__":
    main()
