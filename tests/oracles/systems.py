"""Random small histories of Pulsar subscriptions and of queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from analysis.capture.context import Context
from harness.contracts.plan import ConsumerPromise, PromisePlan
from harness.contracts.rows import DropLimit
from harness.records import Check, Event, Kind
from tests.oracles.judging import context_from
from tests.oracles.stories import PROMISES, STEP_MS, Message, Story
from tests.planted.plans import DURABLE
from tests.planted.tiny import EPOCH_NS, History
from tests.planted.tiny_applications import applied, made
from tests.planted.tiny_pipelines import committed, piped

_ORDER = {"exclusive": "stream", "failover": "stream", "shared": "none", "key_shared": "key"}
_DROPS: list[list[DropLimit]] = [
    [],
    [DropLimit(setting="ttl", after_s=2.0)],
    [DropLimit(setting="quota", beyond_bytes=5_000)],
    [DropLimit(setting="ttl", after_s=3600.0), DropLimit(setting="quota", beyond_bytes=10_000)],
]
_RESULTS = st.sampled_from(["checked", "checked", "ignored", "resent"])
REQUIRED_ORDER = DURABLE.model_copy(update={"dedup": False, "required": {"order": True}})


class PipelineStory(Story):
    """Members of a pipeline, of which one may be the later life of another: mostly one output an
    input, in order. What they did not make, made twice or in another order stands in one log with
    repeats, aborted transactions, strays and an audit cut short."""

    def __init__(self, draw: Any) -> None:
        super().__init__(draw)
        self.mode = "partition"
        self.is_transacted = draw(st.sampled_from([True, True, False]))
        self.members = draw(st.integers(1, 2))
        self.to = draw(st.integers(1, 2))
        self.h = piped(
            draw(st.integers(1, 3)),
            self.to,
            members=self.members,
            transactional=self.is_transacted,
            committed_only=draw(st.booleans()),
            producers=draw(st.integers(1, 2)),
            sessions=draw(st.integers(1, 2)),
            promise=draw(PROMISES),
        )
        self.source: dict[Message, tuple[int, int]] = {}

    def send_all(self) -> None:
        super().send_all()
        for partition in range(self.h.partitions):
            lane, at = self.h.partitions + partition % self.to, 0
            for _ in range(self.draw(st.integers(0, 7))):
                instance = self.h.producers + self.draw(st.integers(1, self.members))
                seq = sum((m.instance, m.lane) == (instance, lane) for m in self.source)
                self.source[Message(instance, lane, seq)] = partition, at
                self.send(Message(instance, lane, seq))
                at = max(at + self.draw(st.sampled_from([1] * 5 + [0, -2, 2, 3])), 0)

    def store(self) -> None:
        super().store()
        for row in self.h.rows["log"]:
            message = Message(row["instance"], row["lane"], row["seq"])
            if row["check"] == Check.OK and row["instance"] > self.h.producers:
                partition, position = self.source.get(message, (0, 0))
                row |= {"source_partition": partition, "source_position": position}

    def circumstances(self) -> None:
        super().circumstances()
        for partition in range(self.h.partitions):
            if not self.rarely():
                committed(self.h, self.draw(st.integers(-1, 7)), partition)
        if self.members > 1 and self.draw(st.booleans()):
            self.h.workers["pipeline-billing-1"] = {"t_start_ns": self.draw(st.integers(1, 2))}
            self.h.workers["pipeline-billing-2"] = {
                "t_start_ns": 2,
                "life_of": "pipeline-billing-1",
            }
        if self.begun and self.rarely():
            first = self.draw(st.integers(0, 8))
            last, is_marker = first + self.draw(st.integers(0, 2)), self.draw(st.booleans())
            write = {"first": first, "last": last, "producer_id": 7, "epoch": 1, "newest": 2}
            at = self.draw(st.integers(0, self.h.partitions + self.to - 1))
            marked = self.draw(st.sampled_from([None, None, 0]))
            self.h.bounds(at, stale=[write | {"is_marker": is_marker}], marked=marked)


class PulsarStory(Story):
    """Individually settled messages, in batches or not, under any subscription type."""

    def __init__(self, draw: Any) -> None:
        super().__init__(draw)
        kind = draw(st.sampled_from(list(_ORDER)))
        self.reading = ConsumerPromise(
            subscription=kind,
            order=_ORDER[kind],
            ack_timeout_s=draw(st.sampled_from([0.0, 1.0, 3.0])),
            acks_confirmed=draw(st.booleans()),
            batch_index_acks=draw(st.booleans()),
            nack_delay_s=draw(st.sampled_from([None, 0.0, 1.0])),
            max_deliveries=draw(st.sampled_from([None, 0, 0, 0, 2])),
            may_drop=draw(st.sampled_from(["", "evicts"])),
            drops=draw(st.sampled_from(_DROPS)),
        )
        self.mode = draw(st.sampled_from(["key", "partition"])) if kind != "key_shared" else "key"
        cumulative = kind in ("exclusive", "failover") and draw(st.booleans())
        self.h = History(
            partitions=draw(st.integers(1, 2)),
            mode=self.mode,
            keys=2,
            producers=draw(st.integers(1, 2)),
            sessions=draw(st.integers(1, 3)),
            promise=draw(PROMISES),
            system="pulsar",
            batch=draw(st.sampled_from([1, 1, 2, 3])),
            reading=self.reading,
            settle="cumulative" if cumulative else "ack",
            results=draw(_RESULTS),
        )

    def send(self, message: Message) -> None:
        super().send(message)
        row = self.h.rows["sends"][-1]
        if self.rarely() and row["outcome"] == 1:
            row |= {"position": -1, "ledger": -1}
        if row["outcome"] != 1 and self.draw(st.booleans()):
            row["error"] = self.h.name("error", "TimeoutException")

    def store(self) -> None:
        super().store()
        if not self.rarely():
            number = 0
            for row in self.h.rows["log"]:
                number += self.draw(st.sampled_from([1, 1, 1, 1, 2, -1]))
                named = row["check"] == Check.OK and not self.rarely()
                row |= (
                    {"client_name": self.h.name("client", "p"), "client_seq": number}
                    if named
                    else {}
                )

    def deliver(self) -> None:
        at: dict[tuple[int, int], int] = {}
        for _ in range(self.draw(st.integers(0, 12))):
            session = self.draw(st.integers(1, self.h.sessions))
            partition = self.draw(st.integers(0, self.h.partitions - 1))
            self.act(session, partition, at)

    def act(self, session: int, partition: int, at: dict[tuple[int, int], int]) -> None:
        draw, h, key = self.draw, self.h, (session, partition)
        action = draw(st.sampled_from(["read"] * 6 + ["ack"] * 4 + ["nack", "epoch", "seek"]))
        if action == "seek":
            at[key] = draw(st.integers(0, 6))
            h.seek(at[key], partition, session=session, at_ms=self.tick())
        elif action == "read":
            start = draw(st.integers(0, 6)) if self.rarely() else at.get(key, 0)
            at[key] = self.read(session, partition, start)
        elif action == "epoch":
            h._epoch[session] = h._epoch.get(session, 0) + 1
        else:
            mine = [
                r["position"]
                for r in h.rows["deliveries"]
                if r["session"] == session and r["event"] == 1
            ]
            position = draw(st.sampled_from(mine or [0]))
            if action == "nack":
                h.nack(position, partition=partition, session=session, at_ms=self.tick())
            else:
                confirmed = draw(st.sampled_from([True, True, True, False]))
                called = self.tick()
                h.acked(
                    position,
                    partition=partition,
                    session=session,
                    at_ms=called,
                    confirmed=confirmed,
                    confirmed_ms=self.tick() if confirmed else None,
                )

    def circumstances(self) -> None:
        super().circumstances()
        if self.rarely():
            start = self.draw(st.integers(0, 40)) * STEP_MS
            acks = self.draw(st.sampled_from(["kept", "at-risk", "unknown", None]))
            effective = self.draw(st.sampled_from([True, True, False]))
            self.h.fault("kill", "broker-1", start, start + STEP_MS, acks=acks, effective=effective)
        for name in ("c-1", "c-2"):
            if self.rarely():
                end = EPOCH_NS + self.draw(st.integers(0, 80)) * STEP_MS * 1_000_000
                self.h.workers[name] = {"t_start_ns": EPOCH_NS, "t_end_ns": end}


class QueueStory(Story):
    """Sessions that commit, roll back, recover, refuse; and what is left."""

    def __init__(self, draw: Any) -> None:
        super().__init__(draw)
        self.mode = "partition"
        promises: list[PromisePlan] = [DURABLE, REQUIRED_ORDER]
        self.h = History(
            partitions=draw(st.integers(1, 2)),
            producers=draw(st.integers(1, 2)),
            sessions=draw(st.sampled_from([1, 1, 2])),
            promise=draw(st.sampled_from(promises)),
            system="qpid",
            reading=ConsumerPromise(subscription="queue", order="none"),
            settle=draw(st.sampled_from(["transacted", "transacted", "ack", "auto", "none"])),
            results=draw(_RESULTS),
        )

    def deliver(self) -> None:
        """Before `store`, which keeps what was never given out, mostly."""
        if not self.sent:
            return
        for _ in range(self.draw(st.integers(0, 14))):
            session = self.draw(st.integers(1, self.h.sessions))
            self.act(session, 0, {})

    def act(self, session: int, partition: int, at: dict[tuple[int, int], int]) -> None:
        draw, h = self.draw, self.h
        action = draw(
            st.sampled_from(["read"] * 6 + ["commit", "back", "recover", "nack", "half", "epoch"])
        )
        at_ms = self.tick()
        events = {
            "commit": (Event.COMMIT_CALLED, Event.COMMIT),
            "back": (Event.ROLLBACK_BEGIN, Event.ROLLBACK_END),
            "recover": (Event.RECOVER,),
            "nack": (Event.NACK,),
            "half": (
                draw(
                    st.sampled_from(
                        [
                            Event.COMMIT_CALLED,
                            Event.ROLLBACK_BEGIN,
                            Event.ACK_CALLED,
                            Event.ACK_CONFIRMED,
                        ]
                    )
                ),
            ),
        }
        if action in events:
            h.ends(*events[action], session=session, at_ms=at_ms)
        elif action == "epoch":
            h._epoch[session] = h._epoch.get(session, 0) + 1
        else:
            first = draw(st.integers(0, len(self.sent) - 1))
            for message in self.sent[first : first + draw(st.integers(1, 3))]:
                seq = message.seq + (40 if self.rarely() and self.rarely() else 0)
                where = {
                    "instance": message.instance,
                    "lane": message.lane,
                    "attempt": message.attempt,
                }
                partition = self.natural(message)
                h.deliver(seq, session=session, partition=partition, at_ms=self.tick(), **where)

    def store(self) -> None:
        for message in self.sent:
            if self.rarely():
                self.h.log(
                    message.seq,
                    instance=message.instance,
                    lane=message.lane,
                    attempt=message.attempt,
                    partition=self.natural(message),
                    kind=Kind.LOAD,
                )

    def circumstances(self) -> None:
        super().circumstances()
        if self.rarely():
            end = EPOCH_NS + (self.now + 60) * STEP_MS * 1_000_000
            self.h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": end}


def _context(story: Story, draw: Any) -> Context:
    end = EPOCH_NS + (story.now + draw(st.sampled_from([0, 1, 40, 400]))) * STEP_MS * 1_000_000
    context = context_from(story.h, end_ns=end, consumers=True)
    return replace(context, load_start_ns=EPOCH_NS)


@st.composite
def pipeline_histories(draw: Any) -> tuple[History, Context]:
    story = PipelineStory(draw)
    story.send_all()
    story.store()
    story.end()
    story.deliver()
    story.circumstances()
    context, strict = _context(story, draw), draw(st.booleans())
    sessions = {n: replace(s, committed_only=strict) for n, s in context.sessions.items()}
    return story.h, replace(context, sessions=sessions)


class ApplicationStory(Story):
    """A program that makes outputs of what is sent, mostly one of each, in no particular order."""

    def __init__(self, draw: Any) -> None:
        super().__init__(draw)
        one_of = {
            "makes": ["one", "one", "at-most-one", "any"],
            "promise": ["exactly-once", "at-least-once", "at-most-once"],
            "order": ["partition", "key", "none"],
        }
        chosen = {key: draw(st.sampled_from(values)) for key, values in one_of.items()}
        before = self.h
        self.h = applied(
            before.partitions,
            draw(st.integers(1, 2)),
            application=chosen,
            mode=before.mode,
            keys=before.keys,
            producers=before.producers,
            sessions=before.sessions,
            promise=before.promise,
        )
        self.h.faults = before.faults
        for partition in range(before.partitions):
            if draw(st.booleans()):
                committed(self.h, draw(st.integers(-1, 12)), partition)

    def make(self) -> None:
        """Outputs of some messages, of some of them several, and rarely one of nothing. Some
        commits are requested in the meantime."""
        for each in self.h.transactions:
            if self.draw(st.booleans()):
                asked_ns = EPOCH_NS + (self.now + self.draw(st.integers(1, 4))) * STEP_MS * 10**6
                each |= {"t_asked_ns": asked_ns, "t_done_ns": asked_ns + STEP_MS * 10**6}
        for message in (
            self.draw(st.lists(st.sampled_from(self.sent), max_size=12)) if self.sent else []
        ):
            seq = message.seq + 50 if self.rarely() else message.seq
            made(
                self.h,
                seq,
                instance=message.instance,
                lane=message.lane,
                attempt=message.attempt,
                to=self.draw(st.integers(0, self.h.plan.topics[1].partitions - 1)),
                check=Check.FOREIGN if self.rarely() else Check.OK,
                at_ms=self.tick(),
            )
        if self.rarely():
            self.h.manifest["nameless_outputs"] = {"billing": 1}
        if self.rarely():
            until = self.draw(st.integers(1, 40)) * STEP_MS
            self.h.fault("sets-clocks", "kafka-1", 0, until, details={"moved_clocks": True})


@st.composite
def application_histories(draw: Any) -> tuple[History, Context]:
    story = ApplicationStory(draw)
    story.send_all()
    story.store()
    story.end()
    story.deliver()
    story.make()
    story.circumstances()
    return story.h, _context(story, draw)


@st.composite
def pulsar_histories(draw: Any) -> tuple[History, Context]:
    story = PulsarStory(draw)
    story.send_all()
    story.store()
    story.deliver()
    story.circumstances()
    return story.h, _context(story, draw)


class WorkQueueStory(QueueStory):
    """Members that acknowledge or refuse each message by its position, and faults (NATS)."""

    def __init__(self, draw: Any) -> None:
        super().__init__(draw)
        reading = ConsumerPromise(
            subscription="queue",
            order="none",
            ack_timeout_s=draw(st.sampled_from([0.0, 1.0, 30.0])),
            acks_confirmed=draw(st.booleans()),
        )
        self.h = History(
            partitions=draw(st.integers(1, 2)),
            producers=draw(st.integers(1, 2)),
            sessions=draw(st.sampled_from([1, 1, 2])),
            promise=DURABLE,
            system="nats",
            reading=reading,
            settle="ack",
            results=draw(_RESULTS),
        )
        topics = [
            t.model_copy(update={"config": {"retention": "workqueue"}}) for t in self.h.plan.topics
        ]
        self.h.planned(self.h.plan.model_copy(update={"topics": topics}))

    def act(self, session: int, partition: int, at: dict[tuple[int, int], int]) -> None:
        draw, h = self.draw, self.h
        action = draw(st.sampled_from(["read"] * 5 + ["ack"] * 4 + ["call", "nack", "epoch"]))
        mine = [
            r
            for r in h.rows["deliveries"]
            if r["session"] == session and r["event"] == Event.DELIVER
        ]
        if action == "epoch":
            h._epoch[session] = h._epoch.get(session, 0) + 1
        elif action == "read" or not mine:
            number = draw(st.integers(0, len(self.sent) - 1))
            message = self.sent[number]
            where = {"instance": message.instance, "lane": message.lane, "attempt": message.attempt}
            where |= {"partition": self.natural(message), "position": number + 1}
            h.deliver(message.seq, session=session, at_ms=self.tick(), **where)
        else:
            row = draw(st.sampled_from(mine))
            place, named = row["position"], {"partition": row["stream"] - 1, "session": session}
            if action == "nack":
                h.nack(place, at_ms=self.tick(), **named)
            else:
                h.acked(place, at_ms=self.tick(), confirmed=action == "ack", **named)

    def circumstances(self) -> None:
        super().circumstances()
        if self.rarely():
            start = self.draw(st.integers(0, 40)) * STEP_MS
            effective = self.draw(st.sampled_from([True, True, False]))
            self.h.fault("kill", "nats-1", start, start + STEP_MS, effective=effective)


@st.composite
def queue_histories(draw: Any) -> tuple[History, Context]:
    story = draw(st.sampled_from([QueueStory, WorkQueueStory]))(draw)
    story.send_all()
    story.deliver()
    story.store()
    story.circumstances()
    return story.h, _context(story, draw)
