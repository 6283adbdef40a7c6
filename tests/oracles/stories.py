"""Random small histories, drawn step by step, and the comparison of kernels and oracles on one of
them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from analysis.capture import bucket
from analysis.capture.context import Context
from analysis.kernels import history as indexed
from analysis.kernels.labels import place_text
from analysis.verdict.untested import untested
from harness.contracts.plan import PromisePlan
from harness.records import Check, Kind, Txn
from tests.oracles import Facts, Hit, judge
from tests.oracles.facts import identity
from tests.oracles.judging import Label, context_from, judged_tables, labels
from tests.planted.plans import DURABLE
from tests.planted.tiny import EPOCH_NS, History

STEP_MS = 500  # every time is on this grid, so that the stall oracle can walk it
UNSAFE = PromisePlan(delivery="leader", order=False, dedup=False, because={}, required={})
REQUIRED = PromisePlan(
    delivery="leader",
    order=False,
    dedup=False,
    because={},
    required={"dedup": True, "delivery": "durable"},
)
SHARED = DURABLE.model_copy(update={"required": {"keys": True}})
PROMISES = st.sampled_from([DURABLE, UNSAFE, REQUIRED, SHARED])
OUTCOMES = st.sampled_from(["ok"] * 6 + ["fail", "info", "open"])
TRANSACTED = st.sampled_from(["ok"] * 3 + ["aborted"] * 2 + ["fail", "info", "open"])
WAITS = st.sampled_from([0, 0, 0, 1, 1, 2, 40, 400])  # grid steps; 15 s is 30, 130 s is 260

# grid steps: before most deliveries, or behind some
ASKED = st.integers(0, 60) | st.integers(0, 2_000)


@dataclass(frozen=True)
class Message:
    instance: int
    lane: int
    seq: int
    attempt: int = 0


class Story:
    """Draws one history step by step."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.mode = draw(st.sampled_from(["partition", "partition", "key", "routed"]))
        self.h = History(
            partitions=draw(st.integers(1, 3)),
            mode=self.mode,
            keys=2,
            producers=draw(st.integers(1, 2)),
            sessions=draw(st.integers(1, 2)),
            promise=draw(PROMISES),
        )
        self.now = 0
        self.sent: list[Message] = []
        self.is_transacted = bool(draw(st.booleans()))
        self.begun: set[tuple[int, int]] = set()
        self.partition: dict[Message, int] = {}
        self.growths = self.grow() if self.mode == "key" else []

    def rarely(self) -> bool:
        return bool(self.draw(st.integers(0, 5)) == 0)

    def tick(self) -> float:
        self.now += self.draw(WAITS)
        return float(self.now * STEP_MS)

    def lanes(self) -> list[int]:
        return {
            "partition": list(range(self.h.partitions)),
            "key": [0, 1],
            "routed": [0],
        }[self.mode]

    def grow(self) -> list[int]:
        """When the topic is given more partitions, in grid steps: up to twice, one more each
        time."""
        count = self.draw(st.sampled_from([1, 1, 2, 0]))
        growths = sorted(self.draw(st.integers(0, 12)) for _ in range(count))
        for at in growths:
            is_effective = self.draw(st.sampled_from([True, True, True, False]))
            more: dict[str, Any] = {"effective": is_effective, "details": {"grown": {"orders": 1}}}
            self.h.fault("by an operator", "orders", at * STEP_MS, at * STEP_MS, **more)
        return growths

    def natural(self, message: Message) -> int:
        """Partition where a message belongs; of a key, once it was sent, the one that it had
        then."""
        if self.mode == "partition":
            return message.lane
        if self.mode == "routed":
            return message.seq % self.h.partitions
        if message not in self.partition:
            self.partition[message] = self.chosen(message.lane)
        return self.partition[message]

    def send_all(self) -> None:
        for instance in range(1, self.h.producers + 1):
            for lane in self.lanes():
                for seq in range(self.draw(st.integers(0, 6))):
                    if self.rarely() and self.rarely():
                        continue  # a hole in the journal
                    self.send(Message(instance, lane, seq))
                    if self.rarely():
                        self.send(Message(instance, lane, seq, 1))

    def transaction(self, instance: int) -> int:
        """Of one of two transactions of a producer, or none; drawn when it is first used."""
        number = self.draw(st.sampled_from([0, 1, 1, 2])) if self.is_transacted else 0
        if number and (instance, number) not in self.begun:
            self.begun.add((instance, number))
            asked_ns = EPOCH_NS + self.draw(ASKED) * STEP_MS * 1_000_000
            took_ns = self.draw(st.sampled_from([1, 1, 60])) * STEP_MS * 1_000_000
            self.h.transactions.append(
                {
                    "instance": instance,
                    "number": number,
                    "asked": self.draw(st.integers(0, 3)),
                    "t_asked_ns": asked_ns,
                    "t_done_ns": asked_ns + took_ns,
                    "outcome": self.draw(st.sampled_from([1, 1, 3, 4])),
                }
            )
        return number

    def end(self) -> None:
        """Transactions in the log: mostly as they ended for the client."""
        outcomes = {(t["instance"], t["number"]): t["outcome"] for t in self.h.transactions}
        of = {identity(row): row["transaction"] for row in self.h.rows["sends"]}
        for row in self.h.rows["log"]:
            number = of.get(identity(row), 0)
            if not number or row["check"] != Check.OK:
                continue
            ended = outcomes[row["instance"], number]
            usual = {1: Txn.COMMITTED, 3: Txn.OPEN, 4: Txn.ABORTED}[ended]
            row["txn"] = self.draw(st.sampled_from(list(Txn))) if self.rarely() else usual
            other = self.draw(st.integers(1, 2)) if self.rarely() else number
            row["txn_end"] = -1 if row["txn"] == Txn.OPEN else 1000 * row["instance"] + other

    def chosen(self, key: int) -> int:
        """Partition of a key now, by what its client knows of the growths: all, none, or what is
        not true."""
        known = self.draw(st.sampled_from(["now"] * 3 + ["late", "odd"])) if self.growths else "now"
        if known == "odd":
            return int(self.draw(st.integers(0, self.h.partitions - 1)))
        later = [at for at in self.growths if at > self.now or known == "late"]
        return (7 * key + 5) % max(self.h.partitions - len(later), 1)

    def send(self, message: Message) -> None:
        self.sent.append(message)
        number = 0 if message.attempt else self.transaction(message.instance)
        self.h.send(
            message.seq,
            self.draw(TRANSACTED if number else OUTCOMES),
            instance=message.instance,
            lane=message.lane,
            partition=self.natural(message),
            attempt=message.attempt,
            kind=self.draw(st.sampled_from([Kind.LOAD, Kind.LOAD, Kind.WARM_UP])),
            at_ms=self.tick(),
            took_ms=float(STEP_MS * self.draw(st.sampled_from([1, 1, 1, 2, 300]))),
            position=self.draw(st.integers(-1, 8)) if self.rarely() else None,
            transaction=number,
        )

    def store(self) -> None:
        """Mostly what was sent, edited: dropped, repeated, moved, invented, misplaced, corrupt."""
        stored = list(self.sent)
        for _ in range(self.draw(st.integers(0, 4))):
            self.edit(stored)
        for message in stored:
            away = self.rarely() and self.rarely()
            partition = (
                self.draw(st.integers(0, self.h.partitions - 1)) if away else self.natural(message)
            )
            odd = self.rarely() and self.rarely()
            self.h.log(
                message.seq,
                instance=message.instance,
                lane=message.lane,
                partition=partition,
                attempt=message.attempt,
                kind=self.draw(st.sampled_from([Kind.PROBE, Kind.LOAD])) if odd else Kind.LOAD,
                check=self.draw(st.sampled_from(list(Check))) if odd else Check.OK,
            )
            if self.rarely():  # the reader went back
                self.h.rows["log"].append(dict(self.draw(st.sampled_from(self.h.rows["log"]))))
            if self.rarely():
                self.h.rows["log"][-1]["txn"] = self.draw(st.sampled_from(list(Txn)))

    def edit(self, stored: list[Any]) -> None:
        kind = self.draw(st.sampled_from(["drop", "repeat", "move", "block", "invent"]))
        if kind == "invent":
            where = self.draw(st.integers(0, len(stored)))
            lane = self.draw(st.sampled_from([*self.lanes(), 9]))
            seq = self.draw(st.sampled_from([0, 1, 3, 7, 97, 1 << 40]))
            stored.insert(
                where, Message(self.draw(st.integers(1, 3)), lane, seq, int(self.rarely()))
            )
            return
        if not stored:
            return
        i, j = sorted(
            (self.draw(st.integers(0, len(stored) - 1)), self.draw(st.integers(0, len(stored) - 1)))
        )
        if kind == "drop":
            del stored[i : j if self.rarely() else i + 1]
        elif kind == "repeat":
            stored.insert(j + 1, stored[i])
        elif kind == "move":
            stored.insert(i, stored.pop(j))
        else:
            stored[j + 1 : j + 1] = stored[i : j + 1]

    def deliver(self) -> None:
        """Sessions take turns with the streams: mostly the next position, sometimes another one."""
        at: dict[tuple[int, int], int] = {}
        for _ in range(self.draw(st.integers(0, 14))):
            session = self.draw(st.integers(1, self.h.sessions))
            partition = self.draw(st.integers(0, self.h.partitions - 1))
            self.act(session, partition, at)
        if self.rarely():
            self.give_all_back()

    def give_all_back(self) -> None:
        """From then on nobody holds anything, however long the rest is."""
        for session, streams in self.h._owned.items():
            self.h.revoke(
                *(stream - 1 for stream in sorted(streams)), session=session, at_ms=self.tick()
            )

    def act(self, session: int, partition: int, at: dict[tuple[int, int], int]) -> None:
        draw, h, key = self.draw, self.h, (session, partition)
        action = draw(
            st.sampled_from(["read"] * 6 + ["assign", "commit", "revoke", "seek", "epoch"])
        )
        somewhere = draw(st.integers(0, 6))
        at_ms = self.tick()
        if action == "assign":
            h.assign(
                partition,
                session=session,
                position=draw(st.sampled_from([-1, -1, somewhere])),
                at_ms=at_ms,
            )
            at[key] = somewhere
        elif action == "commit":
            h.commit(somewhere, partition, session=session, at_ms=at_ms)
        elif action == "revoke":
            h.revoke(partition, session=session, at_ms=at_ms)
        elif action == "seek":
            h.seek(somewhere, partition, session=session, at_ms=at_ms)
            at[key] = somewhere
        elif action == "epoch":
            h._epoch[session] = h._epoch.get(session, 0) + 1
        else:
            start = somewhere if self.rarely() else at.get(key, 0)
            at[key] = self.read(session, partition, start)

    def read(self, session: int, partition: int, start: int) -> int:
        """Up to three rows from ``start``; the next position."""
        h = self.h
        rows = [r for r in h.rows["log"] if r["stream"] == partition + 1 and r["position"] >= start]
        rows.sort(key=lambda r: r["position"])
        for row in rows[: self.draw(st.integers(1, 3))]:
            h._owned.setdefault(session, set()).add(partition + 1)  # no assign unless drawn
            here = Message(row["instance"], row["lane"], row["seq"], row["attempt"])
            if self.rarely() and self.sent:
                here = self.draw(st.sampled_from(self.sent))  # not what the log holds there
            h.deliver(
                here.seq,
                session=session,
                instance=here.instance,
                lane=here.lane,
                partition=partition,
                attempt=here.attempt,
                kind=Kind(row["kind"]),
                position=row["position"],
                at_ms=self.tick(),
            )
            check = row["check"]
            if self.rarely() and self.rarely():
                check = self.draw(st.sampled_from(list(Check)))
            if check != Check.OK:
                blank = dict.fromkeys(("instance", "lane", "seq", "attempt", "kind"), 0)
                h.rows["deliveries"][-1] |= {**blank, "check": check}
            start = row["position"] + 1
        return start

    def circumstances(self) -> None:
        h = self.h
        self.audited()
        if self.rarely():
            h.manifest["readiness_restored"] = False
        if self.rarely():
            h.manifest["drained"] = False
        for name in ("p-1", "p-2", "c-1"):
            if self.rarely():
                change = {"done": False} if self.draw(st.booleans()) else {"t_end_ns": 0}
                h.workers[name] = change
        for happens in (self.node_dies, self.answers_lie, self.is_taken_away, self.client_dies):
            if self.rarely():
                happens()
        if self.rarely():
            end = EPOCH_NS + self.draw(st.integers(30, 300)) * STEP_MS * 1_000_000
            worker = self.draw(st.sampled_from(["p-1", "c-1"]))
            h.events.append(
                {"worker": worker, "kind": "frozen", "t_ns": end, "frozen_ns": 20 * STEP_MS * 10**6}
            )

        if self.rarely():
            at_ns = EPOCH_NS + self.draw(st.integers(30, 300)) * STEP_MS * 1_000_000
            since_ns = EPOCH_NS + self.draw(st.integers(0, 30)) * STEP_MS * 1_000_000
            row = {"kind": "calls-moved", "t_ns": at_ns, "since_ns": since_ns}
            h.events.append({"worker": "p-1", **row})

    def audited(self) -> None:
        """Mostly all of each stream is read, with its markers."""
        for partition in range(self.h.partitions):
            if self.rarely():
                begin, read_to = self.draw(st.integers(0, 3)), self.draw(st.integers(0, 5))
                self.h.bounds(partition, begin=begin, read_to=read_to)
            elif self.is_transacted and self.rarely():
                self.h.bounds(partition, marked=self.draw(st.integers(0, 3)))

    def node_dies(self) -> None:
        start = self.draw(st.integers(0, 100)) * STEP_MS
        self.h.fault(
            "kill", "kafka-1", start, start + 60 * STEP_MS, effective=self.draw(st.booleans())
        )

    def answers_lie(self) -> None:
        """Clients are given errors that permit them something."""
        start = self.draw(st.integers(0, 200)) * STEP_MS
        permits = self.draw(
            st.sampled_from(
                ["acknowledge", "renumber", "reposition", "rejoin", "give-up", "damage", "wait"]
            )
        )
        self.h.fault(
            "by a proxy",
            "kafka-1",
            start,
            start + 4 * STEP_MS,
            effective=self.draw(st.booleans()),
            details={"permits": permits},
        )

    def is_taken_away(self) -> None:
        """The begin of a log, or a topic that is made again, with a leader that never changes or
        does."""
        start = self.draw(st.integers(0, 60)) * STEP_MS
        is_effective = self.draw(st.sampled_from([True, True, False]))
        topic = self.draw(st.sampled_from([topic.name for topic in self.h.plan.topics]))
        details: dict[str, Any] = {"remade": [topic]}
        if self.draw(st.booleans()):
            details = {"cut": {f"{topic}-0": self.draw(st.integers(1, 5))}}
        end = start + 4 * STEP_MS
        self.h.fault("by an operator", topic, start, end, effective=is_effective, details=details)
        if self.draw(st.booleans()):
            self.h.led("kafka-1", 0, at_ms=start, first=0)
            if self.rarely():
                self.h.led("kafka-2", 1, at_ms=start + STEP_MS, first=self.draw(st.integers(1, 6)))

    def replicas_differ(self) -> None:
        """Up to three replicas of a stream of ten positions, each with odd spans anywhere."""
        if not self.rarely():
            return
        leader = self.draw(st.sampled_from(["kafka-1", "kafka-2", ""]))
        for node in ("kafka-2", "kafka-1", "kafka-3")[: self.draw(st.integers(1, 3))]:
            edges = sorted(self.draw(st.sets(st.integers(0, 10), max_size=6)))
            odd = [
                (a, b - 1, self.draw(st.sampled_from(["a", "b", ""]))) for a, b in pairwise(edges)
            ]
            kept = [span for span in odd if self.draw(st.booleans())]
            read_to = self.draw(st.sampled_from([10, 10, 7]))
            self.h.replica(
                node,
                *(span for span in kept if span[1] < read_to),
                leads=node == leader,
                in_sync=not self.rarely(),
                read_to=read_to,
                refused=self.draw(st.booleans()),
                begin=self.draw(st.sampled_from([0, 0, 3])),
            )

    def client_dies(self) -> None:
        """It says so once or twice; the first time counts, or its crash."""
        worker = self.draw(st.sampled_from(["p-1", "c-1", "c-2"]))
        for _ in range(self.draw(st.integers(1, 2))):
            at_ms = float(self.draw(st.integers(0, 100)) * STEP_MS)
            why = self.draw(st.sampled_from(["error", "fenced", "asked", "crashed"]))
            self.h.client_died(worker, why=why, at_ms=at_ms)


@st.composite
def histories(draw: Any) -> tuple[History, Context]:
    story = Story(draw)
    story.send_all()
    story.store()
    story.end()
    story.deliver()
    story.circumstances()
    story.replicas_differ()
    end = EPOCH_NS + (story.now + draw(WAITS)) * STEP_MS * 1_000_000
    context = context_from(story.h, end_ns=end, consumers=True)
    strict = draw(st.booleans())  # the DSL's consumers have no options
    sessions = {n: replace(s, committed_only=strict) for n, s in context.sessions.items()}
    return story.h, replace(context, sessions=sessions)


def label(facts: Facts, hit: Hit) -> Label:
    return hit.cls, hit.split, hit.unmet, name(facts, hit)


def name(facts: Facts, hit: Hit) -> str:
    kind, *rest = hit.name
    if kind == "event":
        return name(facts, replace(hit, name=tuple(rest)))
    if kind == "row":
        stream, ledger, position, batch = rest
        row = facts.at.get((stream, ledger, position, batch))
        index = row["batch"] if row else batch
        return f"{facts.context.stream_name(stream)}@{place_text(position, ledger, index)}"
    if kind in ("client", "replica", "commit"):
        return str(rest[0])
    if kind == "stall":
        return facts.context.stream_name(rest[0])
    instance, lane, seq, attempt = hit.name
    return f"{instance}/{lane}/{seq}" + (f".{attempt}" if attempt else "")


def check(history: History, context: Context, chunk_rows: int) -> None:
    tables = history.tables()
    facts = Facts(context, tables)
    expected = Counter(label(facts, hit) for hit in judge(facts))
    with (
        patch.object(bucket, "CHUNK_ROWS", chunk_rows),
        patch.object(indexed, "CHUNK_ROWS", chunk_rows),
    ):
        partial = judged_tables(tables, context)
    assert labels(partial) == expected
    skipped = {
        c
        for c, why in untested(context, partial.counts).items()
        if why.startswith("not applicable")
    }
    assert skipped.isdisjoint(cls for cls, _, _, _ in expected)


#: Tiny chunks put the borders between chunks everywhere.
CHUNKS = st.sampled_from([1, 2, 3, 7, 1 << 20])
