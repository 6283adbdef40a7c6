"""Holds the causes that a run names against the brokers' own logs, which nothing of them was made
from.

    python -m bench.causes RUN ...

A named cause says which leader acknowledged messages in which epoch, and at which offset the next
epoch began on whom. The server logs of Kafka's nodes say the same in other words: who "starts at
leader epoch" from which offset and since when, to which offset a follower "truncates", and how far
its log had come before. The acknowledgements must have come while the leader was one, and from no
other that had come as far. One line a cause, then how many causes, messages and episodes agree in
all. Results are in docs/performance.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from analysis.findings import Cause
from analysis.report.documents import read_result
from harness.contracts import read_document
from harness.contracts.rows import Manifest
from harness.rundir import RunDir, find_run

_TIME = r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] "
_STARTS = re.compile(
    _TIME
    + r".*\[Broker id=\d+\] (Leader|Follower) (\S+) .*starts at leader epoch (\d+) from offset (\d+) "
)
_TRUNCATES = re.compile(_TIME + r".*Truncating partition (\S+) with TruncationState\(offset=(\d+)")
#: So much later a client on a busy machine may see an acknowledgement than the broker gave it.
_SEEN_LATE_S = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a node's log about a partition. ``what``: Leader or Follower starts, or Truncates.
    ``t_s``: since the start of load."""

    node: str
    t_s: float
    what: str
    stream: str
    offset: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Stint:
    """A node's time as the leader of a partition, until it follows another."""

    led: Line
    deposed: Line

    def may_have_acked(self, offset: int, from_s: float, to_s: float) -> bool:
        """Messages from that offset on, between those times."""
        has_it = self.led.offset <= offset < self.deposed.offset
        return has_it and self.led.t_s <= from_s and to_s <= self.deposed.t_s + _SEEN_LATE_S


def stints(lines: Sequence[Line]) -> list[Stint]:
    """Return the stints of one partition's leaders. The last leader has none, for it lost
    nothing."""
    found = []
    for led in (line for line in lines if line.what == "Leader"):
        later = [line for line in lines if line.node == led.node and line.t_s >= led.t_s]
        follows = [line for line in later if line.what == "Follower" and line.epoch > led.epoch]
        if follows:
            found.append(Stint(led, min(follows, key=lambda line: line.t_s)))
    return found


def lines_of(node: str, log: Iterable[str], zero_s: float = 0.0) -> Iterator[Line]:
    """``zero_s``: wall clock of the start of load."""
    for text in log:
        if found := _STARTS.match(text):
            epoch, offset = int(found[4]), int(found[5])
            yield Line(node, _seconds(found[1]) - zero_s, found[2], found[3], offset, epoch)
        elif found := _TRUNCATES.match(text):
            yield Line(node, _seconds(found[1]) - zero_s, "Truncates", found[2], int(found[3]))


def agrees(cause: Cause, lines: Iterable[Line]) -> dict[str, bool]:
    """Each statement of a named cause, and whether the logs say it too."""
    own = sorted((line for line in lines if line.stream == cause.stream), key=lambda line: line.t_s)
    low, high = (int(place) for place in (cause.places.split(" to ") * 2)[:2])
    from_s, to_s = cause.acked_s or (0.0, 0.0)
    next_began = ("Leader", cause.next_leader, cause.next_term, int(cause.next_first))
    all_of_them = stints(own)
    named = next(
        (s for s in all_of_them if (s.led.node, s.led.epoch) == (cause.leader, cause.term)), None
    )
    others = [
        s for s in all_of_them if s != named and cause.term is not None and s.led.epoch < cause.term
    ]
    cuts = [line for line in own if line.node == cause.leader and line.what == "Truncates"]
    after = [line.offset for line in cuts if named and line.t_s >= named.deposed.t_s]
    return {
        "led": named is not None and named.led.offset <= low,
        "began": any((line.what, line.node, line.epoch, line.offset) == next_began for line in own),
        "truncated": bool(after) and after[0] <= low,
        "had reached it": named is not None and named.deposed.offset > high,
        "in time": named is not None and named.may_have_acked(low, from_s, to_s),
        "nobody else": not any(other.may_have_acked(low, from_s, from_s) for other in others),
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
        print(
            f"{run.run_id}: {finding.caused_episodes} of {finding.episodes} episodes have a named cause"
        )
        for cause in named:
            said = agrees(cause, lines)
            missing = ", ".join(check for check, held in said.items() if not held)
            print(f"  {cause.count:6,} {cause.stream:12} {missing or 'agrees'}: {cause.sentence}")
            for what, number in (
                ("causes", 1),
                ("messages", cause.count),
                ("episodes", cause.episodes),
            ):
                totals[what][0] += number * (not missing)
                totals[what][1] += number


def _logs(run: RunDir) -> Iterator[Line]:
    """Lines of the run's time: rounds share a cluster, and the names of its topics."""
    manifest = read_document(run.manifest, Manifest)
    zero_s = datetime.fromisoformat(manifest.epoch_wall).timestamp()
    begin = (manifest.phases[0].start_ns - manifest.epoch_ns) / 1e9
    end = (manifest.phases[-1].end_ns - manifest.epoch_ns) / 1e9
    folder = run.cluster if run.cluster.is_dir() else RunDir(run.root.parent).cluster
    for path in sorted(folder.glob("*/logs/stdout.log")):
        with path.open(errors="replace") as log:
            for line in lines_of(path.parent.parent.name, log, zero_s):
                if begin <= line.t_s <= end:
                    yield line


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


if __name__ == "__main__":
    main()
