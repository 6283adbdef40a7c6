"""What judging must know beside the capture tables: the plan, the workers, the bounds, the faults.

`load_context` reads the small JSON files of a run directory into one frozen, picklable `Context`, which
travels to every task. It never imports the harness's models: a run judged years later, or written by
another tool, needs only the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.rundir import RunDir, read_json, read_jsonl

_NS = 1_000_000_000
#: No audit row for a stream: nothing of it was read.
_UNREAD = "missing"
#: Damage (keys of seal.json) that means missing rows; other kinds cost a name or a header.
_HOLES = ("torn_rows", "short_files", "bad_magic", "missing_segments")


@dataclass(frozen=True, slots=True)
class Promise:
    """What a producer's settings promise (`harness.plan.PromisePlan`) and what the scenario requires.

    Attributes:
        delivery: durable, leader or none.
        because: the setting that decided each of delivery, order and dedup.
        required: the same three as the scenario demands them; absent or None = as configured.
    """

    delivery: str = "durable"
    order: bool = True
    dedup: bool = True
    because: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, kind: str) -> bool:
        """True when ``delivery``, ``order`` or ``dedup`` is promised or required."""
        if self.required.get(kind):
            return True
        return self.delivery == "durable" if kind == "delivery" else bool(getattr(self, kind))

    def reason(self, kind: str) -> str:
        """Where the answer of `holds` comes from, for people."""
        if self.required.get(kind):
            return "required by the scenario"
        return self.because.get(kind, "")


@dataclass(frozen=True, slots=True)
class Instance:
    """A producer instance. ``complete``: its capture is whole, it said ``done`` and nothing is torn.

    ``end_ns``: when it was closed or died, 0 if it is not known to have ended. ``frozen``: (start, end)
    of every span in which its process did not run.
    """

    number: int
    name: str = ""
    client: str = ""
    promise: Promise = field(default_factory=Promise)
    deadline_ns: int = 0
    complete: bool = False
    end_ns: int = 0
    frozen: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """A consumer session, as `Instance`. ``committed_only``: it must not see aborted transactions."""

    number: int
    name: str = ""
    group: str = ""
    topics: tuple[str, ...] = ()
    complete: bool = False
    end_ns: int = 0
    committed_only: bool = False
    frozen: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Lanes ``first .. first + count - 1`` of one topic; mode partition, key or routed."""

    topic: str
    mode: str
    first: int
    count: int

    def text(self, lane: int) -> str:
        index = lane - self.first
        if self.mode == "partition":
            return f"{self.topic}-{index}"
        return f"{self.topic}/k{index:06d}" if self.mode == "key" else self.topic


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the audit read a stream. ``read_to == end`` means all of it."""

    begin: int = 0
    end: int = 0
    read_to: int = 0
    why: str = _UNREAD

    @property
    def is_complete(self) -> bool:
        return self.why != _UNREAD and self.read_to >= self.end


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """A fault from its injection to its verified heal."""

    id: int
    kind: str
    target: str
    start_ns: int
    end_ns: int
    effective: bool


@dataclass(frozen=True)
class Context:
    """Everything about a run that is not a row. Small (names included) and picklable.

    Attributes:
        streams: name of stream id 1, 2, 3 ...
        end_ns: end of observation: the last producer was closed or had died.
        names: text of every other id of names.jsonl (errors, client names, subscriptions).
    """

    run_id: str = ""
    streams: tuple[str, ...] = ()
    lane_groups: tuple[LaneGroup, ...] = ()
    instances: Mapping[int, Instance] = field(default_factory=dict)
    sessions: Mapping[int, Session] = field(default_factory=dict)
    bounds: Mapping[int, Bounds] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    faults: tuple[FaultWindow, ...] = ()
    buckets: int = 1
    epoch_ns: int = 0
    load_start_ns: int = 0
    load_end_ns: int = 0
    end_ns: int = 0
    stall_ns: int = 15 * _NS
    readiness_restored: bool = True
    drained: bool = True

    @cached_property
    def n_lanes(self) -> int:
        return max((g.first + g.count for g in self.lane_groups), default=0)

    @cached_property
    def lane_stream(self) -> npt.NDArray[np.int32]:
        """Stream each lane must be stored in; 0 where the client chooses."""
        expected = np.zeros(self.n_lanes, np.int32)
        ids = {name: number for number, name in enumerate(self.streams, start=1)}
        for group in self.lane_groups:
            if group.mode == "partition":
                for i in range(group.count):
                    expected[group.first + i] = ids.get(f"{group.topic}-{i}", 0)
        return expected

    @cached_property
    def lane_topic(self) -> npt.NDArray[np.int32]:
        """Index into `topics` of each lane; -1 for a number that no group holds."""
        topic = np.full(self.n_lanes, -1, np.int32)
        for group in self.lane_groups:
            topic[group.first : group.first + group.count] = self.topics.index(group.topic)
        return topic

    @cached_property
    def lane_is_keyed(self) -> npt.NDArray[np.bool_]:
        """Lanes whose messages must all be in one stream, whichever the client chose."""
        keyed = np.zeros(self.n_lanes, np.bool_)
        for group in self.lane_groups:
            keyed[group.first : group.first + group.count] = group.mode == "key"
        return keyed

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.rpartition("-")[0] for name in self.streams))

    @cached_property
    def stream_topic(self) -> npt.NDArray[np.int32]:
        """Index into `topics` by stream id; -1 for id 0."""
        return np.array([-1, *(self.topics.index(s.rpartition("-")[0]) for s in self.streams)], np.int32)

    def instance(self, number: int) -> Instance:
        """The instance; one that the plan does not know has an incomplete capture."""
        return self.instances.get(number) or Instance(number)

    def stream_name(self, stream: int) -> str:
        if 1 <= stream <= len(self.streams):
            return self.streams[stream - 1]
        return self.names.get(stream, "")

    def lane_text(self, lane: int) -> str:
        group = next((g for g in self.lane_groups if g.first <= lane < g.first + g.count), None)
        return group.text(lane) if group else f"lane {lane}"

    def lane_streams(self) -> dict[int, int]:
        """Stream of every lane whose partition was fixed before the send."""
        return {int(lane): int(self.lane_stream[lane]) for lane in np.flatnonzero(self.lane_stream)}

    def stream_bounds(self, stream: int) -> Bounds:
        return self.bounds.get(stream) or Bounds()

    def group_sessions(self) -> dict[str, list[Session]]:
        """Sessions by consumer group."""
        groups: dict[str, list[Session]] = {}
        for session in self.sessions.values():
            groups.setdefault(session.group, []).append(session)
        return groups

    def seconds(self, t_ns: int) -> float:
        """Seconds since the start of load."""
        return (t_ns - self.epoch_ns) / _NS


def load_context(run: RunDir) -> Context:
    """Read the small files of a run.

    Raises:
        UsageError: plan.json or manifest.json is missing or is not JSON.
    """
    return context_of(
        read_json(run.plan),
        read_json(run.manifest),
        names=read_jsonl(run.names),
        bounds=read_jsonl(run.log_bounds),
        faults=read_jsonl(run.faults),
        events=read_jsonl(run.events),
        seal_report=read_json(run.seal_report) if run.seal_report.exists() else {},
    )


Row = Mapping[str, Any]


def context_of(
    plan: Row,
    manifest: Row,
    *,
    names: Iterable[Row] = (),
    bounds: Iterable[Row] = (),
    faults: Iterable[Row] = (),
    events: Iterable[Row] = (),
    seal_report: Row | None = None,
) -> Context:
    """A context from the documents of a run, as their files hold them."""
    streams = _streams(plan)
    workers = list(manifest.get("workers", []))
    damaged = _damaged_workers(seal_report or {})
    frozen = _frozen(events)
    epoch_ns = int(manifest.get("epoch_ns", 0))
    return Context(
        run_id=str(manifest.get("run_id", "")),
        streams=streams,
        lane_groups=tuple(
            LaneGroup(g["topic"], g["mode"], int(g["first"]), int(g["count"])) for g in plan["lane_groups"]
        ),
        instances=_instances(plan, workers, damaged, frozen),
        sessions=_sessions(plan, workers, damaged, frozen),
        bounds=_bounds(bounds),
        names={int(row["id"]): str(row["text"]) for row in names if int(row["id"]) > len(streams)},
        faults=fault_windows(faults, _last_ns(manifest)),
        buckets=int(plan["buckets"]),
        epoch_ns=epoch_ns,
        load_start_ns=epoch_ns,
        load_end_ns=epoch_ns + round(float(plan["load_s"]) * _NS),
        end_ns=_end_of_observation(manifest),
        stall_ns=round(float(plan["limits"].get("stall", 15.0)) * _NS),
        readiness_restored=bool(manifest.get("readiness_restored", False)),
        drained=bool(manifest.get("drained", False)),
    )


def fault_windows(rows: Iterable[Row], last_ns: int) -> tuple[FaultWindow, ...]:
    """Fold the event rows of faults.jsonl. A fault that was never healed lasts until ``last_ns``."""
    folded: dict[int, dict[str, Any]] = {}
    for row in rows:
        fault = folded.setdefault(int(row["id"]), {})
        t_ns = int(row["t_ns"])
        if row["event"] == "inject":
            fault |= {"kind": row["kind"], "target": row["target"], "start": t_ns}
        elif row["event"] == "effect":
            fault["effective"] = bool(row.get("effective"))
        elif row["event"] in ("heal", "healed") and row.get("ok", True):
            fault["end"] = t_ns
    return tuple(
        FaultWindow(
            id=number,
            kind=str(f["kind"]),
            target=str(f["target"]),
            start_ns=f["start"],
            end_ns=f.get("end", max(last_ns, f["start"])),
            effective=f.get("effective", False),
        )
        for number, f in sorted(folded.items())
        if "start" in f
    )


def _streams(plan: Row) -> tuple[str, ...]:
    return tuple(f"{t['name']}-{p}" for t in plan["topics"] for p in range(int(t["partitions"])))


def _damaged_workers(report: Row) -> set[str]:
    """Workers whose raw capture had missing or torn parts, from the report of sealing."""
    workers = report.get("workers") or {}
    return {name for name, row in workers.items() if any(map((row.get("damage") or {}).get, _HOLES))}


Spans = dict[str, tuple[tuple[int, int], ...]]


def _frozen(events: Iterable[Row]) -> Spans:
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in events:
        if row.get("kind") == "frozen" and "worker" in row and row.get("frozen_ns"):
            end = int(row["t_ns"])
            spans.setdefault(str(row["worker"]), []).append((end - int(row["frozen_ns"]), end))
    return {worker: tuple(sorted(found)) for worker, found in spans.items()}


def _worker(workers: Iterable[Row], role: str, key: str, number: int) -> Row:
    return next((w for w in workers if w.get("role") == role and w.get(key) == number), {})


def _instances(
    plan: Row, workers: list[dict[str, Any]], damaged: set[str], frozen: Spans
) -> dict[int, Instance]:
    found = {}
    for p in plan["producers"]:
        worker = _worker(workers, "producer", "instance", p["instance"])
        promise = p["promise"]
        found[int(p["instance"])] = Instance(
            number=int(p["instance"]),
            name=p["name"],
            client=" ".join(filter(None, (p["client"], worker.get("client_version", "")))),
            promise=Promise(
                delivery=promise["delivery"],
                order=bool(promise["order"]),
                dedup=bool(promise["dedup"]),
                because=dict(promise["because"]),
                required={k: v for k, v in promise["required"].items() if v},
            ),
            deadline_ns=round(float(p["call_deadline_s"]) * _NS),
            complete=bool(worker.get("done")) and p["name"] not in damaged,
            end_ns=int(worker.get("t_end_ns") or 0),
            frozen=frozen.get(p["name"], ()),
        )
    return found


def _sessions(
    plan: Row, workers: list[dict[str, Any]], damaged: set[str], frozen: Spans
) -> dict[int, Session]:
    found = {}
    for c in plan["consumers"]:
        worker = _worker(workers, "consumer", "session", c["session"])
        options = c.get("options") or {}
        isolation = options.get("isolation.level") or options.get("isolation_level") or ""
        found[int(c["session"])] = Session(
            number=int(c["session"]),
            name=c["name"],
            group=c["group"],
            topics=tuple(c["topics"]),
            complete=bool(worker.get("done")) and c["name"] not in damaged,
            end_ns=int(worker.get("t_end_ns") or 0),
            committed_only=isolation == "read_committed",
            frozen=frozen.get(c["name"], ()),
        )
    return found


def _bounds(rows: Iterable[Row]) -> dict[int, Bounds]:
    """Of several readers of a stream the one that got furthest counts."""
    best: dict[int, Bounds] = {}
    for row in rows:
        bounds = Bounds(int(row["begin"]), int(row["end"]), int(row["read_to"]), str(row["why"]))
        number = int(row["stream_id"])
        if number not in best or bounds.read_to > best[number].read_to:
            best[number] = bounds
    return best


def _last_ns(manifest: Row) -> int:
    return max((int(p.get("end_ns") or 0) for p in manifest.get("phases", [])), default=0)


def _end_of_observation(manifest: Row) -> int:
    ends = [int(w.get("t_end_ns") or 0) for w in manifest.get("workers", []) if w.get("role") == "producer"]
    return max(ends, default=0) or _last_ns(manifest)
