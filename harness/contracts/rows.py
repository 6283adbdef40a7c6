"""Rows of the files of a run and parts of its plan; docs/capture-format.md says what each field
means.

Dataclasses, because some of them travel to executors, which have no pydantic. Times:
CLOCK_MONOTONIC ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

LaneMode = Literal["partition", "key", "routed"]
#: No audit row for a stream: nothing of it was read.
UNREAD = "missing"
#: Text of keys where a scenario gives them none: ``k000017``.
PLAIN_KEY = "{key}"


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Consecutive lane ids ``first .. first + count - 1`` of one topic and mode.

    Lane ``first + i`` is partition i, key i, or, for ``routed``, the whole topic (count 1). The
    text of key i is ``key`` with its places filled: ``{key}`` is ``k{i:06d}``, ``{number}`` is i.
    ``buckets`` has one entry a lane for partitions, else one for the whole group: a topic with
    keyed or routed lanes stays whole, because one task must see each of its streams.
    """

    topic: str
    mode: LaneMode
    first: int
    count: int
    buckets: list[int]
    key: str = PLAIN_KEY

    def bucket(self, lane: int) -> int:
        """Return the bucket of a lane."""
        return self.buckets[(lane - self.first) % len(self.buckets)]

    def text(self, lane: int) -> str:
        """``orders-3``, ``orders/k000017`` or ``orders``."""
        index = lane - self.first
        if self.mode == "partition":
            return f"{self.topic}-{index}"
        if self.mode != "key":
            return self.topic
        key = self.key.replace("{key}", f"k{index:06d}").replace("{number}", str(index))
        return f"{self.topic}/{key}"


@dataclass(frozen=True, slots=True)
class NameRow:
    """A name that rows of the capture have a number for."""

    id: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class StaleWrite:
    """A batch of a transaction, or the marker of one, that a log took after a newer epoch of its
    producer.

    ``first .. last``: its offsets; ``newest``: the highest epoch of the producer before it.
    """

    first: int
    last: int
    producer_id: int
    epoch: int
    newest: int
    is_marker: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the audit read a stream. ``read_to == end`` means all of it.

    Kafka counts in offsets, Pulsar in messages (``stable``, ``marked`` and ``log_end``: in
    entries). ``isolation`` remaining: of a queue, whose rows in the log are what was left in it
    after the drain, and not all that it held. ``reader``: the worker that wrote it. ``again``: what
    it had read from there on was not in the log any more, and was read a second time; -1 nothing
    was.
    """

    begin: int = 0
    end: int = 0
    read_to: int = 0
    why: str = UNREAD
    isolation: str = ""
    stream: str = ""
    stream_id: int = 0
    reader: str = ""
    stable: int = -1
    marked: int = -1
    disagree: int = 0
    stale: tuple[StaleWrite, ...] = ()
    log_end: int = -1
    again: int = -1

    @property
    def is_marked(self) -> bool:
        """The markers of transactions were read to the end."""
        return self.marked >= (self.end if self.log_end < 0 else self.log_end)

    @property
    def is_held(self) -> bool:
        """An open transaction holds readers of committed data back."""
        return self.stable < (self.end if self.log_end < 0 else self.log_end)

    @property
    def remaining(self) -> bool:
        """Return whether the reader was given what a queue still had, and not a log."""
        return self.isolation == "remaining"

    @property
    def is_complete(self) -> bool:
        """Return whether the reader got to the end of the stream."""
        return self.why != UNREAD and self.read_to >= self.end


@dataclass(frozen=True, slots=True)
class Leadership:
    """A stretch of a stream under one leader: a leader epoch (Kafka), a ledger (Pulsar), a
    mastership (Qpid).

    Times: 0 = not known.

    Attributes:
        term: its number.
        leader: name of the node; "" = not known, None = no leader.
        late_ns: how much earlier it may have begun than ``t_ns``, of a leader that was only
            watched.
        first: position at which the log as it is in the end has its first message; None = it has
            none of it.
        entries: of a ledger that is closed, what it was closed with; None = not known.
        over_ns: from then on the leader certainly acted as one no longer.
        unclean: it was elected although it was not in sync.
        stream_id: of the sealed file alone.
    """

    term: int
    leader: str | None = ""
    t_ns: int = 0
    late_ns: int = 0
    first: int | None = None
    entries: int | None = None
    over_ns: int = 0
    unclean: bool = False
    stream: str = ""
    stream_id: int = 0


#: ``audit`` of a scenario that reads more than what leaders have.
EVERY_REPLICA = "every-replica"


@dataclass(frozen=True, slots=True)
class ReplicaSpan:
    """Positions ``first .. last`` as one replica has them.

    ``digest``: of the bytes; ``intact``: their own checksum is right.
    """

    first: int
    last: int
    digest: str
    intact: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica of a stream, read from the node that has it.

    Attributes:
        leads: that node was the leader while it was read.
        in_sync: the brokers called it in sync before it was read, and after.
        begin: every replica still has its log from there on.
        end: where the leader's log ended when the first replica was read.
        why: words of the node that gave no more from ``read_to`` on; empty = it gave all, or did
            not answer.
        refused: it answers that what follows cannot be read.
        odd: spans that some other replica does not have, or has with other bytes.
        ledger, part: Pulsar: positions are entries of a ledger, of that part that the same bookies
            keep.
        stream_id: of the sealed file alone.
    """

    stream: str
    node: str
    leads: bool
    in_sync: bool
    begin: int
    end: int
    read_to: int
    why: str = ""
    refused: bool = False
    odd: tuple[ReplicaSpan, ...] = ()
    ledger: int = 0
    part: int = 0
    stream_id: int = 0

    @property
    def is_read(self) -> bool:
        """Return whether it was read to its end, or its node reported that it cannot be read."""
        return self.refused or self.read_to >= self.end


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Offsets ``first .. last`` of a stream that one producer wrote in one transaction.

    ``end``: position of the marker that ended it, -1 = none, with its ``end_epoch``. ``state``: as
    readers of committed data see it: committed, aborted or open. Pulsar: entries of a ``ledger``;
    ``producer_id`` and ``epoch`` are the two halves of the transaction's id; the ledger of the
    marker is not told.
    """

    producer_id: int
    epoch: int
    first: int
    last: int
    end: int = -1
    state: Literal["committed", "aborted", "open"] = "open"
    end_epoch: int = -1
    ledger: int = 0


@dataclass(frozen=True, slots=True)
class HiddenMessage:
    """A message of a Pulsar log that readers are not given: where it lies, and its payload.
    ``txn``: `harness.records.Txn`."""

    ledger: int
    entry: int
    batch: int
    txn: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamTransactions:
    """Transactions in the log of a stream, up to offset ``read_to``. Other fields as in `Bounds`.

    Pulsar: ``spans`` are those that the audit's reader was not given, and what is in them is
    ``hidden``, which is not in the file; entries are counted, of which there are ``log_end``.
    """

    stream: str
    read_to: int
    stable: int
    spans: list[LogSpan] = field(default_factory=list)
    disagree: int = 0
    stale: list[StaleWrite] = field(default_factory=list)
    log_end: int = -1
    hidden: list[HiddenMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The position that a group had committed in a stream in the end: the next one, -1 = nothing.

    ``stream_id``: of the sealed file alone.
    """

    group: str
    stream: str
    position: int
    t_ns: int = 0
    stream_id: int = 0


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transaction as its producer journalled it. Times: 0 = never.

    Attributes:
        number: from 1 in the instance; sends have it.
        id: which transactional id of the instance.
        asked: `harness.records.Asked`: what the application asked for, first at ``t_asked_ns``.
        outcome: ok (committed), aborted, fail (it could not begin), or info.
        error: name id; 0 none.
    """

    instance: int
    number: int
    id: int = 0
    t_begin_ns: int = 0
    t_asked_ns: int = 0
    asked: int = 0
    t_done_ns: int = 0
    outcome: int = 0
    error: int = 0


#: The rows of one stream, in order.
Terms = tuple[Leadership, ...]


#: Kind of an event: a window of a running run found something.
FOUND_SO_FAR: Final = "found-so-far"


#: Kind of the events of a producer whose later calls wait for earlier ones.
MOVED: Final = "calls-moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Something that a worker told, or that the harness noticed of one.

    Attributes:
        kind: ``frozen``, ``client-died``, ``commit-not-sent``, ``hang``, ``stall``, ``stuck``,
            ``found-so-far``, ``not-sealed``, ``calls-moved`` (a call that was open for long was
            answered), or a worker's own word.
        where: the call that it waits in, or crashed in, with its ``thread``, its ``stack`` and the
            file of all ``stacks``; None: nothing was looked for.
        since_ns: it has waited since then; of ``calls-moved``, when the oldest call that is open
            was made; None: a worker's own event.
        name, why: of a client that died: its error, and why it died.
        frozen_ns: how long its process did not run, until ``t_ns``.
        stream, position: of a commit that was never sent: the stream as the worker names it, and
            the next position that the group would read; None = no such event.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"coerce_numbers_to_str": True}

    t_ns: int
    kind: str = ""
    worker: str = ""
    text: str = ""
    where: str = ""
    thread: str = ""
    stack: str | list[str] = ""
    stacks: str | None = None
    since_ns: int | None = None
    session: int = 0
    name: str = ""
    why: str = ""
    frozen_ns: int = 0
    stream: str = ""
    position: int | None = None

    @property
    def frames(self) -> list[str]:
        """Return the frames of the stack, the innermost first."""
        return [self.stack] if isinstance(self.stack, str) and self.stack else list(self.stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A second of one process, a worker or a node, or of the machine. What was not measured is
    None.

    Attributes:
        descriptors: open files and connections of the process.
        attempted, ok, fail, info, delivered: the counters of a worker so far; 0 for others.
    """

    t_ns: int
    wall_ns: int | None = None
    worker: str = ""
    node: str = ""
    cpu_s: float | None = None
    rss_bytes: int | None = None
    descriptors: int | None = None
    attempted: int = 0
    ok: int = 0
    fail: int = 0
    info: int = 0
    delivered: int = 0
    late_max_ns: int | None = None
    blocked_ns: int | None = None
    cores: int = 0
    busy_s: float | None = None
    stolen_s: float = 0.0
    own_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDetails:
    """The details of a fault's effect that judging uses.

    Attributes:
        held: requests that it held, as far as the last look saw.
        answers: answers that it changed, as far as the last look saw.
        unkept: streams of which every replica in sync lost what it had not synced.
        lied: streams of which every replica in sync lost messages that its disk had said to be
            synced, and streams of the brokers' own topics.
        remade: topics that it deleted and recreated.
        wiped: nodes that lost all their data to it, and why.
        damaged: nodes of whose files it changed bytes, with the places.
        cut: stream -> the position before which it removed everything, on purpose.
        grown: topic -> how many partitions it had before it was given more.
        moved_clocks: it set clocks of nodes or of clients.
        false_errors: answers said errors that the broker had not said.
        permits: what a client may do that believed such an error: ``acknowledge`` a message that is
            not stored, ``renumber`` its messages, so that no broker recognizes a repeat,
            ``reposition`` itself in the log, ``rejoin`` its group, ``give-up``, ``wait`` without
            end for an answer that was dropped, see a message ``overtake`` one that the broker did
            not get, or pass on the ``damage`` that its settings do not
            check for; empty = only what it does at any error that it should try again after.
    """

    held: int = 0
    answers: int = 0
    unkept: tuple[str, ...] = ()
    lied: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()
    wiped: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    moved_clocks: bool = False
    false_errors: bool = False
    permits: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropLimit:
    """A setting by which a broker drops messages that a group was not given. Neither limit: it is
    not known.

    Attributes:
        setting: the setting, as text for people.
        after_s: a message may be dropped when it is this old.
        beyond_bytes: messages may be dropped when their stream holds more than this.
        topic: the only one that it concerns; empty = all.
    """

    setting: str = ""
    after_s: float | None = None
    beyond_bytes: int | None = None
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """A row of faults.jsonl; docs/capture-format.md says which fields which event has.

    ``params``: keys of the kind, with every choice made.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"coerce_numbers_to_str": True}

    id: int
    event: str
    t_ns: int | None = None
    kind: str = ""
    target: str = ""
    targets: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    planned_s: float = 0.0
    for_s: float | None = None
    confirmed_acks: str = ""
    effective: bool = False
    evidence: str = ""
    details: FaultDetails = field(default_factory=FaultDetails)
    ok: bool = False
    undone: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run. ``end_ns`` 0: it is not over."""

    name: str
    start_ns: int = 0
    end_ns: int = 0


#: Kind of a `Problem`: another run was measured on the same machine.
BESIDE: Final = "beside"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that weakens what a run can prove."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Build:
    """A client or brokers that the user built.

    Attributes:
        sha256: of what no commit has.
        version: it is taken for this one.
    """

    name: str
    path: str = ""
    commit: str = ""
    changed: bool = False
    sha256: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class StatedCheck:
    """A validity check that an import answers."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """The fate of one worker process.

    Attributes:
        instance, session, reader: of a producer, of a consumer, of the audit; a pipeline has the
            first two.
        artifact: the file that the client was loaded from; empty = not known.
        exposure: its own counters.
        done: it said so: it recorded everything.
        hung: it was ended because it hung; every row is there, as of one that a fault ``killed``.
        stuck: it did not end when it was asked to, and the run ended it.
        crashed: its client took the process down; every row is there.
        life_of: the client of the plan that it is a later life of.
        offers_from_ns, offers_until_ns: when a producer of several lives offered messages; 0 = as
            planned.
        open_sends: when it ended.
        t_start_ns, t_end_ns: of its process; 0 = not known.
    """

    name: str
    role: str = ""
    instance: int | None = None
    session: int | None = None
    reader: int | None = None
    client: str = ""
    client_version: str = ""
    artifact: str = ""
    log_stamp: str = ""
    pid: int | None = None
    exit_code: int | None = None
    exposure: dict[str, int] = field(default_factory=dict)
    done: bool = False
    hung: bool = False
    stuck: bool = False
    crashed: bool = False
    life_of: str = ""
    killed: bool = False
    offers_from_ns: int = 0
    offers_until_ns: int = 0
    open_sends: int = 0
    t_start_ns: int = 0
    t_end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRow:
    """The fate of one life of an instance of an application.

    Attributes:
        application, instance: the application, and the instance that it is a life of.
        killed: SIGKILL of the run or of a fault ended it.
        ended_by_itself: neither the run nor a fault had asked it to end.
        drained: its application had processed all input in the end.
    """

    name: str
    application: str = ""
    instance: str = ""
    pid: int = 0
    exit_code: int | None = None
    killed: bool = False
    ended_by_itself: bool = False
    t_start_ns: int = 0
    t_end_ns: int = 0
    drained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRow:
    """A task on another machine that ran workers of the load.

    Attributes:
        host: as the task names its machine.
        clients: names of the plan.
        ahead_ns: how much its clock was slow against this machine's, which is added to its times.
        bound_ns: how wrong a time of its rows may be after that; 0 = it was never measured.
        lost: why it could not be reached any more; empty = it stayed.
        left: where what it captured lies, on its machine, if it could not be written where the run
            is.
    """

    number: int
    host: str = ""
    clients: list[str] = field(default_factory=list)
    ahead_ns: int = 0
    bound_ns: int = 0
    lost: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """manifest.json: what ran, on what, and how far it got.

    Attributes:
        status: running, complete, interrupted or error.
        epoch_ns, epoch_wall: the start of load, by both clocks; empty = not known.
        readiness_restored, drained: None = not known.
        unstated: of an import, by name of a precondition or of what a class asks for, why it is not
            known.
        checks: validity checks that import.yaml answers; None = not known.
        executors: other machines that the load came from.
        applications: lives of the instances of applications under test.
        nameless_outputs: by application, outputs that name no input.
        outputs_read: applications whose outputs were read to the end, as far as their source can
            tell.
    """

    schema_version: Literal[1] = 1
    run_id: str = ""
    status: str = "complete"
    command: str = ""
    epoch_ns: int = 0
    epoch_wall: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    builds: list[Build] = field(default_factory=list)
    machine: dict[str, object] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    workers: list[WorkerRow] = field(default_factory=list)
    readiness_restored: bool | None = None
    drained: bool | None = None
    problems: list[Problem] = field(default_factory=list)
    unstated: dict[str, str] = field(default_factory=dict)
    checks: dict[str, StatedCheck | None] = field(default_factory=dict)
    executors: list[ExecutorRow] = field(default_factory=list)
    applications: list[ApplicationRow] = field(default_factory=list)
    nameless_outputs: dict[str, int] = field(default_factory=dict)
    outputs_read: list[str] = field(default_factory=list)

    def problems_of(self, kind: str) -> list[str]:
        """Return the texts of the problems of one kind."""
        return [problem.text for problem in self.problems if problem.kind == kind]

    def worker(self, role: str, number: int) -> WorkerRow:
        """The worker of an instance or a session; without a name where the run had none."""
        numbered = {"producer": "instance", "consumer": "session", "audit": "reader"}[role]
        roles = (role,) if role == "audit" else (role, "pipeline")
        same = (w for w in self.workers if w.role in roles and getattr(w, numbered) == number)
        return next(same, WorkerRow(name=""))

    @property
    def clock_bound_ns(self) -> int:
        """How far apart times of different machines may be that are the same; 0 = one machine."""
        return sum(sorted((each.bound_ns for each in self.executors), reverse=True)[:2])

    @property
    def last_ns(self) -> int:
        """End of the last phase; 0 = none ended."""
        return max((phase.end_ns for phase in self.phases), default=0)
