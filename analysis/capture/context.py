"""The context that capture tables are judged in: the plan, the workers, the bounds, the faults.

One frozen, picklable `Context` travels to every task; `analysis.capture.context_files` reads it
from a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.capture.deaths import Death
from analysis.capture.transactions import TransactionColumns
from harness.contracts.rows import Bounds, DropLimit, LaneGroup, ReplicaRow, Terms
from harness.faultlog import FaultRecord, remade_topics

_NS = 1_000_000_000
#: Windows that hits are counted by over the load, at most: what a chart can show.
_MOST_WINDOWS = 600
#: Order after a rollback: no settings promise it, only a scenario can require it.
REDELIVERY_ORDER = "redelivery-order"
#: For pipelines: one output for each input, in their order. Transactions promise both; else a
#: scenario may require what it calls dedup and order.
INPUT_ONCE, INPUT_ORDER = "input-once", "input-order"
#: For acknowledged messages: they survive that all replicas in sync lose power at once.
SYNCED = "synced"
#: All producers put a key into one partition. No client promises it, a scenario may require it.
SHARED_KEYS = "keys"
_REQUIRED = {
    REDELIVERY_ORDER: "order",
    INPUT_ORDER: "order",
    INPUT_ONCE: "dedup",
    SYNCED: "delivery",
}


#: A client that was given a false error acts on it within this time: it waits and asks first.
_BELIEVED_NS = 5 * _NS


#: What permits a client more than its name says.
_PERMITTED_TOO: Final[Mapping[str, tuple[str, ...]]] = {"damage": ("damage", "reposition")}


@dataclass(frozen=True, slots=True)
class Lie:
    """False errors of one fault, and when clients may have acted on them (CLOCK_MONOTONIC ns).
    ``permits``: as `harness.contracts.rows.FaultDetails` has it."""

    permits: str
    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise that a producer's settings make (`contracts.plan.PromisePlan`), and what the
    scenario asks for.

    Attributes:
        delivery: durable, leader, none or unknown.
        order: kept; None = not known, as for ``dedup``.
        synced: an acknowledged message is on the disks of all replicas in sync; None = not known.
        exactly_once: a pipeline commits its outputs and the positions of its inputs together.
        because: the setting that decided each of delivery, order and dedup.
        required: the same three as the scenario demands them; absent or None = as configured.
    """

    delivery: str = "durable"
    order: bool | None = True
    dedup: bool | None = True
    synced: bool | None = None
    exactly_once: bool = True
    because: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, str | bool | None] = field(default_factory=dict)

    def holds(self, kind: str) -> bool | None:
        """Whether ``delivery``, ``order``, ``dedup``, ``synced``, ``redelivery-order``,
        ``input-once``, ``input-order`` or ``keys`` is promised or required.

        None = not known.
        """
        if self.required.get(_REQUIRED.get(kind, kind)):
            return True
        if kind in (REDELIVERY_ORDER, SHARED_KEYS):
            return False
        if kind in (INPUT_ONCE, INPUT_ORDER):
            return self.exactly_once
        if kind == "delivery":
            return None if self.delivery == "unknown" else self.delivery == "durable"
        if kind == SYNCED:
            return self.synced and self.holds("delivery")
        return self.order if kind == "order" else self.dedup

    def reason(self, kind: str) -> str:
        """Where the answer of `holds` comes from, for people."""
        if self.required.get(_REQUIRED.get(kind, kind)):
            return "required by the scenario"
        if kind == REDELIVERY_ORDER:
            return "JMS leaves the order of redelivered messages open"
        if kind in (INPUT_ONCE, INPUT_ORDER):
            together = "the positions of inputs are committed"
            return f"{together} {'in the transaction' if self.exactly_once else 'after'} of their outputs"
        return self.because.get(kind, "")


@dataclass(frozen=True, slots=True)
class Instance:
    """A producer instance. ``complete``: its capture is whole, it said ``done`` and nothing is
    torn.

    ``end_ns``: when it was closed or died, 0 if it is not known to have ended. ``frozen``: (start,
    end) of every span in which its process did not run. ``moved``: where a call may wait for
    earlier ones, each time at which one of these was answered after a long time, and when the
    oldest call that was still open was made; ascending. ``results``: whether the application looked
    at the results of its sends: checked, ignored or resent. ``waits_in``: the call it was seen
    hanging in. ``died``: what the client said when it gave itself up; ``says_died``: its worker
    would have told. ``life_of``: its name in the plan; ``start_ns``: of this life, 0 not known.
    """

    number: int
    name: str = ""
    life_of: str = ""
    start_ns: int = 0
    client: str = ""
    promise: Promise = field(default_factory=Promise)
    deadline_ns: int = 0
    complete: bool = False
    end_ns: int = 0
    frozen: tuple[tuple[int, int], ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    results: str = "checked"
    waits_in: str = ""
    died: Death | None = None
    says_died: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How a consumer session reads and settles, and what it may therefore expect.

    Attributes:
        subscription: group (Kafka), exclusive, failover, shared, key_shared, or queue (JMS, AMQP).
        order: of deliveries as promised: by ``stream``, by ``key``, or none.
        settle: auto, ack, cumulative, transacted or none.
        ack_timeout_ns: the client asks for a redelivery after this; 0 = never.
        acks_confirmed: the client's confirmation of an ack counts as the broker's.
        batch_index_acks: single messages of a batch are acknowledged, at both ends.
        nack_delay_ns: a refused message comes again after this; None = not known.
        max_deliveries: a message is given this often at most; 0 = no limit, None = not known.
        may_drop: the settings that let the broker drop messages that were not given yet; empty =
            none do.
        drops: the limits that they set; empty with ``may_drop``: not known.
        starts_latest: a group without a position begins after the existing messages.
        because: the setting that decided order, ack, ack_timeout and so on, as text for people.
        unknown: the settings that are assumed: the client's worker.toml does not say.
    """

    subscription: str = "group"
    order: str = "stream"
    settle: str = "auto"
    ack_timeout_ns: int = 0
    acks_confirmed: bool = False
    batch_index_acks: bool = False
    nack_delay_ns: int | None = None
    max_deliveries: int | None = None
    may_drop: str = ""
    drops: tuple[DropLimit, ...] = ()
    starts_latest: bool = False
    because: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    @property
    def is_start_known(self) -> bool:
        """A group that names no position at its first assignment began at the first message."""
        return "from_start" not in self.unknown and not self.starts_latest

    @property
    def is_individual(self) -> bool:
        """Messages are settled one by one, so what is not settled may come again at any time."""
        return self.subscription != "group"


@dataclass(frozen=True, slots=True)
class UnsentCommit:
    """A commit that a client confirmed and never sent.

    ``stream``: its id, 0 = a stream that the plan does not have. ``position``: the next one to
    read.
    """

    t_ns: int
    stream: int
    position: int


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A consumer session, as `Instance`. ``committed_only``: it must not see aborted transactions.

    ``life_of``: its name in the plan, as of an `Instance`.
    ``start_ns``: when its process began, 0 unknown. ``end_ns``: at the latest when its client gave
    itself up. ``missed_ns``: until then its group may hold messages for it though it was killed; 0
    = it was not. ``unsent``: the commits that its client confirmed and never sent, as its worker
    saw them; ``watches_commits``: the worker would have said so.
    """

    number: int
    name: str = ""
    life_of: str = ""
    group: str = ""
    topics: tuple[str, ...] = ()
    complete: bool = False
    end_ns: int = 0
    committed_only: bool = False
    frozen: tuple[tuple[int, int], ...] = ()
    start_ns: int = 0
    missed_ns: int = 0
    reading: Reading = field(default_factory=Reading)
    client: str = ""
    died: Death | None = None
    says_died: bool = False
    watches_commits: bool = False
    unsent: tuple[UnsentCommit, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineGroup:
    """A group whose members make messages of topic ``to`` from messages of topic ``source``.

    Attributes:
        instance: of a member; all are alike.
        committed_only: it is given committed data only.
        committed: by stream id of its source, the position that the group had committed in the end,
            -1 = none; a stream that could not be asked is not in it.
    """

    group: str
    source: str
    to: str
    instance: int = 0
    committed_only: bool = True
    committed: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplicationFacts:
    """A program of the user that makes outputs of the messages of topic ``source``.

    Attributes:
        session: number of its outputs in the table of deliveries.
        makes: outputs of each input: one, at-most-one or any.
        promise: exactly-once, at-least-once or at-most-once.
        order: partition, key or none.
        committed: as of a `PipelineGroup`.
        drained: it had processed all of its input in the end.
        ends: (CLOCK_MONOTONIC ns, instance) of each life that was killed, or that ended by itself.
        nameless: outputs that name no input.
        outputs_read: its outputs were read to the end; the bounds of a topic say more.
        died: instances that ended by themselves where the scenario restarts none.
        stalled: (since when, until when, what was left) while it ran and committed nothing.
    """

    name: str
    source: str
    to: str
    group: str
    session: int
    makes: str = "one"
    promise: str = "at-least-once"
    order: str = "none"
    committed: Mapping[int, int] = field(default_factory=dict)
    drained: bool = False
    ends: tuple[tuple[int, str], ...] = ()
    nameless: int = 0
    outputs_read: bool = False
    died: tuple[Death, ...] = ()
    stalled: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True)
class Context:
    """Everything about a run that is not a row. Small (names included) and picklable.

    Attributes:
        has_offsets: positions are numbers that the audit's bounds can be compared with.
        brokers_time_acks, orders_by_connection: see `harness.systems.base.System`.
        has_queues_only: no stream is a log (`is_queue`).
        term: what a stretch under one leader is called and numbered by; empty = it has no number.
        terms: who led which stream, by its id; without streams whose leaders were not recorded.
        usual_reading: of a group of which the plan says nothing.
        streams: name of stream id 1, 2, 3 ...
        compacted: topics that keep the last message of each key, and may remove earlier ones.
        moves: stream -> the stream to which brokers move messages that it gives up (dead letters).
        end_ns: end of observation: the last producer was closed or had died.
        unstated: by the name of a precondition, or of what a class needs, why an import leaves it
            unknown; ``intended-times``: for some or all sends, the time of the call is used as
            their due time.
        transactions: those that the producers journalled.
        pipelines: one a topic that they write.
        applications: programs of the user under test.
        committed: by group and stream id, the position that a group had committed in the end, -1 =
            none. Streams whose position was not read are left out.
        replicas: what every replica has; nothing where only leaders were read.
        clock_bound_ns: events on two machines of a load are in order only if they are further apart
            than this; 0 = one machine.
        names: text of every other id of names.jsonl (errors, client names, subscriptions).
    """

    run_id: str = ""
    has_offsets: bool = True
    brokers_time_acks: bool = False
    orders_by_connection: bool = False
    has_queues_only: bool = False
    term: str = ""
    terms: Mapping[int, Terms] = field(default_factory=dict)
    usual_reading: Reading = field(default_factory=Reading)
    streams: tuple[str, ...] = ()
    compacted: frozenset[str] = frozenset()
    moves: Mapping[str, str] = field(default_factory=dict)
    lane_groups: tuple[LaneGroup, ...] = ()
    instances: Mapping[int, Instance] = field(default_factory=dict)
    sessions: Mapping[int, SessionFacts] = field(default_factory=dict)
    bounds: Mapping[int, Bounds] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    faults: tuple[FaultRecord, ...] = ()
    buckets: int = 1
    epoch_ns: int = 0
    load_start_ns: int = 0
    load_end_ns: int = 0
    end_ns: int = 0
    message_bytes: int = 0
    stall_ns: int = 15 * _NS
    readiness_restored: bool = True
    drained: bool = True
    unstated: Mapping[str, str] = field(default_factory=dict)
    transactions: TransactionColumns = field(default_factory=TransactionColumns)
    pipelines: tuple[PipelineGroup, ...] = ()
    applications: tuple[ApplicationFacts, ...] = ()
    committed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    replicas: tuple[ReplicaRow, ...] = ()
    clock_bound_ns: int = 0

    @cached_property
    def window_s(self) -> int:
        """Whole seconds that hits are counted by: 1, in a load of more than ten minutes more."""
        return max(1, -(-(self.load_end_ns - self.epoch_ns) // (_MOST_WINDOWS * _NS)))

    @cached_property
    def has_false_errors(self) -> bool:
        """Whether a fault gave clients errors that their broker had not said."""
        return any(fault.details.false_errors for fault in self.faults)

    @cached_property
    def lies(self) -> tuple[Lie, ...]:
        """The false errors that permit a client something, by their begin.

        A consumer that does not check a damaged batch takes its own next position from it, too.
        """
        found = [
            Lie(permits, fault.start_ns, (fault.heal_ns or fault.over_ns) + _BELIEVED_NS)
            for fault in self.faults
            if fault.effective
            for permits in _PERMITTED_TOO.get(fault.details.permits, (fault.details.permits,))
            if permits
        ]
        return tuple(sorted(found, key=lambda lie: lie.since_ns))

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
    def keys_are_shared(self) -> bool:
        """All producers must put the messages of a key into one stream, as the scenario
        requires."""
        return any(instance.promise.holds(SHARED_KEYS) for instance in self.instances.values())

    @cached_property
    def is_queue(self) -> npt.NDArray[np.bool_]:
        """By stream id: a queue, of which the log holds only what remained."""
        remaining = [self.stream_bounds(s).remaining for s in range(len(self.streams) + 1)]
        return np.array(remaining) | self.has_queues_only

    @cached_property
    def is_compacted(self) -> npt.NDArray[np.bool_]:
        """By stream id: whether its topic is compacted."""
        return np.array(
            [False, *(name.rpartition("-")[0] in self.compacted for name in self.streams)]
        )

    @cached_property
    def moved(self) -> npt.NDArray[np.int64]:
        """By stream id: the stream to which brokers move messages that it gives up; 0 = none."""
        ids = {name: number for number, name in enumerate(self.streams, start=1)}
        return np.array([0, *(ids.get(self.moves.get(name, ""), 0) for name in self.streams)])

    @cached_property
    def read_whole(self) -> npt.NDArray[np.bool_]:
        """By stream id: it was read completely, and so was the stream that its messages may be
        moved to. A message on the way between the two can be read in neither; there is none if the
        consumers were given everything."""
        whole = np.array([self.stream_bounds(s).is_complete for s in range(len(self.streams) + 1)])
        return np.asarray(whole & ((self.moved == 0) | (whole[self.moved] & self.drained)))

    @cached_property
    def has_queues(self) -> bool:
        return bool(self.is_queue[1:].any())

    @cached_property
    def cut(self) -> npt.NDArray[np.int64]:
        """By stream id: the position before which faults removed everything, on purpose; 0 =
        nothing."""
        cut = np.zeros(len(self.streams) + 1, np.int64)
        for fault in self.faults:
            for stream, position in fault.details.cut.items() if fault.effective else ():
                if stream in self.streams:
                    number = self.streams.index(stream) + 1
                    cut[number] = max(cut[number], position)
        return cut

    @cached_property
    def growths(self) -> Mapping[str, list[int]]:
        """By topic, when it was given more partitions (CLOCK_MONOTONIC ns, ascending)."""
        found: dict[str, list[int]] = {}
        for fault in self.faults:
            for topic in fault.details.grown if fault.effective else ():
                found.setdefault(topic, []).append(fault.start_ns)
        return {topic: sorted(times) for topic, times in found.items() if topic in self.topics}

    @cached_property
    def remade(self) -> npt.NDArray[np.int64]:
        """By index into `topics`, since when it is another topic of that name; 0 = it always was
        the one. The last is of no topic."""
        since = remade_topics(self.faults)
        return np.array([*(since.get(topic, 0) for topic in self.topics), 0], np.int64)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.rpartition("-")[0] for name in self.streams))

    @cached_property
    def stream_topic(self) -> npt.NDArray[np.int32]:
        """Index into `topics` by stream id; -1 for id 0."""
        return np.array(
            [-1, *(self.topics.index(s.rpartition("-")[0]) for s in self.streams)], np.int32
        )

    @property
    def clients(self) -> tuple[Instance | SessionFacts, ...]:
        """Producers, then consumers."""
        return (*self.instances.values(), *self.sessions.values())

    def instance(self, number: int) -> Instance:
        """The instance; one that the plan does not know has an incomplete capture."""
        return self.instances.get(number) or Instance(number)

    def promise(self, instance: int) -> Promise:
        """The promise of a producer. For 0, which is no producer, the full promise and what is
        required."""
        if instance:
            return self.instance(instance).promise
        required = {
            k: v for i in self.instances.values() for k, v in i.promise.required.items() if v
        }
        return Promise(required=required)

    def reading(self, group: str) -> Reading:
        """How the group reads; its sessions are alike."""
        own = (s.reading for s in self.sessions.values() if s.group == group)
        return next(own, self.usual_reading)

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

    def piped_lanes(self) -> list[int]:
        """Lanes that only pipelines write."""
        topics = {pipeline.to for pipeline in self.pipelines}
        groups = [group for group in self.lane_groups if group.topic in topics]
        return [lane for group in groups for lane in range(group.first, group.first + group.count)]

    def stays_full(self, topic: str) -> bool:
        """Whether a consumer settles none of the messages that a queue gives it."""
        own = (each for each in self.sessions.values() if topic in each.topics)
        return any(each.reading.settle == "none" for each in own)

    def topic_streams(self, topic: str) -> range:
        """Stream ids of a topic, by partition."""
        own = [
            i for i, name in enumerate(self.streams, start=1) if name.rpartition("-")[0] == topic
        ]
        return range(own[0], own[-1] + 1) if own else range(0)

    @cached_property
    def first_source(self) -> npt.NDArray[np.int64]:
        """By id of a stream that a pipeline writes: the first stream of what it reads; 0 = none
        does."""
        first = np.zeros(len(self.streams) + 1, np.int64)
        for pipeline in self.pipelines:
            first[self.topic_streams(pipeline.to)] = self.topic_streams(pipeline.source).start
        return first

    def stream_bounds(self, stream: int) -> Bounds:
        return self.bounds.get(stream) or Bounds()

    @property
    def committed_sessions(self) -> list[int]:
        """Sessions that asked for committed data only."""
        return [number for number, session in self.sessions.items() if session.committed_only]

    def group_sessions(self) -> dict[str, list[SessionFacts]]:
        """Sessions by consumer group."""
        groups: dict[str, list[SessionFacts]] = {}
        for session in self.sessions.values():
            groups.setdefault(session.group, []).append(session)
        return groups

    def seconds(self, t_ns: int) -> float:
        """Seconds since the start of load."""
        return (t_ns - self.epoch_ns) / _NS


#: After the heal (verified, so there are leaders) clients still reconnect and re-send what they
#: hold: they back off for 1 s at most by default. Longer would only blur: p cannot fall below the
#: share of the run that one window takes.
SETTLE_NS = 2_000_000_000
