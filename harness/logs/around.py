"""Chooses the lines of a run's logs that belong to a message: by time, and by the names that it has
in them.

In this order: a new leader of its stream, its stream or a name of its own in a line, the log of its
own client, then what brokers warn of, then whatever was logged at that very time.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain

from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest
from harness.logs.files import LogFile, log_files
from harness.logs.reading import Excerpt, LogEntry
from harness.rundir import RunDir, reading
from harness.systems import SYSTEMS
from harness.wall_clock import WallClock

#: Moments that are looked around, the first ones.
MOST_MOMENTS = 20


class LineKind(IntEnum):
    """Why a line is there, the most telling first."""

    LEADER = 0  # its stream got a new leader
    NAMED = 1  # it names the stream, or a name of the message's own
    CLIENT = 2  # its own client said it
    WARNING = 3  # a broker's warning or error
    NEAR = 4  # said at that very time


#: How far from a moment of the message a line of that kind may be.
NEAR_NS = {
    LineKind.LEADER: 5_000_000_000,
    LineKind.NAMED: 5_000_000_000,
    LineKind.CLIENT: 5_000_000_000,
    LineKind.WARNING: 2_000_000_000,
    LineKind.NEAR: 300_000_000,
}
_WIDEST_NS = max(NEAR_NS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What lines are looked for.

    Attributes:
        moments_ns: CLOCK_MONOTONIC, when something happened to it.
        streams: ``topic-partition``, as everywhere.
        workers: whose clients had it in their hands.
        names: what else logs may call it, such as the producer's name at the broker.
    """

    moments_ns: Sequence[int]
    streams: Sequence[str] = ()
    workers: Sequence[str] = ()
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One entry of a broker's or a client's log, as it was written.

    Attributes:
        t_s: since the start of load.
        source: the node or worker.
        why: a `LineKind` in lower case.
        said: ``text`` without its time and what is before it.
        more: the lines that belong to it; ``more_left``: further ones.
        file: relative to the run's folder, or to its campaign's.
    """

    t_s: float
    source: str
    why: str
    text: str
    said: str
    more: tuple[str, ...]
    more_left: int
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines:
    """Lines of the logs around a message, in order of time.

    Attributes:
        left_out: source -> lines beyond those asked for.
        unplaced: whose log does not say when its lines were written, as far as anybody stated.
        cut: whose log says so much at that time that not all of it was read.
        why_none: why no log could be asked; empty = they were.
    """

    lines: tuple[LogLine, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    unplaced: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    why_none: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogs:
    """The logs of one run, with the documents that place their lines, read once.

    Attributes:
        clock: None if the run does not say when it was.
    """

    run: RunDir
    plan: Plan
    manifest: Manifest
    files: Sequence[LogFile]
    clock: WallClock | None

    @classmethod
    def read_from(cls, run: RunDir) -> RunLogs:
        """Read the documents of a run, and find its logs.

        Raises:
            UsageError: the plan, the manifest or metrics.jsonl is missing or damaged.
        """
        with reading(run):
            return cls(
                run=run,
                plan=read_document(run.plan, Plan),
                manifest=read_document(run.manifest, Manifest),
                files=log_files(run),
                clock=WallClock.read_from(run),
            )

    def around(self, subject: Subject, most: int) -> LogLines:
        """At most ``most`` lines about a subject.

        A file is bisected and then streamed: memory is bounded whatever its size.

        Raises:
            OSError: a log cannot be read.
        """
        if not self.files:
            return LogLines()
        if self.clock is None:
            return LogLines(why_none="the run does not say when it was")
        asked = [file for file in self.files if file.is_node or file.source in subject.workers]
        search = _Search(self.run, self.clock, subject, _kinds(self.plan, subject))
        # The smallest goes first: the least telling, then the farthest.
        best: list[tuple[int, int, int, LogLine]] = []
        seen = Counter[str]()
        found = chain.from_iterable(search.lines_in(file) for file in asked if file.stamps)
        for number, (kind, away_ns, line) in enumerate(found):
            seen[line.source] += 1
            heapq.heappush(best, (-kind, -away_ns, -number, line))
            if len(best) > most:
                heapq.heappop(best)
        in_order = sorted((line.t_s, -turn, line) for _, _, turn, line in best)
        shown = [line for *_, line in in_order]
        left = seen - Counter(line.source for line in shown)
        unplaced = dict.fromkeys(file.source for file in asked if not file.stamps)
        return LogLines(
            lines=tuple(shown), left_out=dict(left), unplaced=tuple(unplaced), cut=tuple(search.cut)
        )


class _Search:
    """Looks a subject up in one log after the other.

    Attributes:
        cut: as of `LogLines`.
    """

    def __init__(
        self,
        run: RunDir,
        clock: WallClock,
        subject: Subject,
        kind_of: Callable[[LogFile, LogEntry], LineKind],
    ) -> None:
        self.cut: dict[str, None] = {}
        self._run, self._clock = run, clock
        self._kind_of = kind_of
        self._moments = sorted(subject.moments_ns)[:MOST_MOMENTS]

    def lines_in(self, file: LogFile) -> Iterator[tuple[LineKind, int, LogLine]]:
        """Every line about the subject, why it is there, and how far it is from a moment of it,
        ns."""
        for excerpt in _excerpts(file, self._clock, self._moments):
            for entry in excerpt:
                t_ns = self._clock.t_ns(entry.wall_ns)
                away_ns = min(abs(t_ns - moment) for moment in self._moments)
                kind = self._kind_of(file, entry)
                if away_ns <= NEAR_NS[kind]:
                    yield kind, away_ns, self._line(file, kind, t_ns, entry)
            if excerpt.is_cut:
                self.cut[file.source] = None

    def _line(self, file: LogFile, kind: LineKind, t_ns: int, entry: LogEntry) -> LogLine:
        return LogLine(
            t_s=(t_ns - self._clock.epoch_ns) / 1e9,
            source=file.source,
            why=kind.name.lower(),
            text=entry.text,
            said=entry.said,
            more=entry.more,
            more_left=entry.more_left,
            file=_relative(self._run, file),
        )


def _excerpts(file: LogFile, clock: WallClock, moments: Sequence[int]) -> Iterator[Excerpt]:
    """Of every stretch of time around moments; those that overlap are one."""
    spans: list[list[int]] = []
    for moment in moments:
        if spans and moment - _WIDEST_NS <= spans[-1][1]:
            spans[-1][1] = moment + _WIDEST_NS
        else:
            spans.append([moment - _WIDEST_NS, moment + _WIDEST_NS])
    for begin, end in spans:
        yield Excerpt(file.path, file.stamps, clock.wall_ns(begin), clock.wall_ns(end))


def _kinds(plan: Plan, subject: Subject) -> Callable[[LogFile, LogEntry], LineKind]:
    system = SYSTEMS.get(plan.system)
    in_logs: list[str] = []
    for stream in subject.streams:
        name, _, number = stream.rpartition("-")
        for topic in plan.topics:
            if topic.name == name and system is not None:
                in_logs += system.log_names(topic.address or name, int(number), topic.partitions)
    streams = _any_of(in_logs)
    own = _any_of([*in_logs, *subject.names])
    leader = system.log_leader.replace("{stream}", streams.pattern) if system and in_logs else ""
    changes = re.compile(leader) if leader else None

    def kind_of(file: LogFile, entry: LogEntry) -> LineKind:
        if file.is_node and changes is not None and changes.search(entry.text):
            return LineKind.LEADER
        if any(own.search(text) for text in (entry.text, *entry.more)):
            return LineKind.NAMED
        if not file.is_node:
            return LineKind.CLIENT
        return LineKind.WARNING if entry.severe else LineKind.NEAR

    return kind_of


def _any_of(names: Sequence[str]) -> re.Pattern[str]:
    """Matches one of the names where it is not part of a longer one: ``orders-1``, not
    ``orders-12``."""
    either = "|".join(map(re.escape, dict.fromkeys(names))) or "(?!)"
    return re.compile(rf"(?<![\w-])(?:{either})(?![\w-]|\.\w)")


def _relative(run: RunDir, file: LogFile) -> str:
    return str(
        file.path.relative_to(run.root if file.path.is_relative_to(run.root) else run.root.parent)
    )
