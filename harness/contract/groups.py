"""Contract of members of a group (Kafka): they journal what they were handed and what they
committed."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from harness.contract.checks import check
from harness.contract.driving import DrivenWorker, equal, expect, messages
from harness.contract.rig import Rig
from harness.records import Check as Payload
from harness.records import Event, TableId
from harness.systems import System
from harness.waiting import wait_until


def has_groups(system: System) -> bool:
    """Return whether consumers are members of a group (Kafka)."""
    return system.subscription == "group"


def positions(consumer: DrivenWorker) -> dict[int, list[int]]:
    """Stream -> positions in the order of the journal, probes too."""
    rows = consumer.rows(TableId.DELIVERIES)
    rows = rows[rows["kind"] == Event.DELIVER]
    return {
        int(s): rows["position"][rows["stream"] == s].tolist() for s in np.unique(rows["stream"])
    }


@check("consumer", applies=has_groups)
def a_member_journals_what_it_saw_and_committed(rig: Rig) -> None:
    """Check that a member writes down what it received and committed, and that the next session
    continues there.
    """
    topic = rig.topic()
    consumer = rig.consumer(topic)
    producer = rig.feed(topic)
    count = producer.done_line.ok
    stats = consumer.wait_stats(lambda stats: stats.delivered >= count)
    consumer.leave()
    probes = consumer.probes_delivered
    expect(
        probes >= rig.partitions[topic], f"{probes} probes were handed over, each partition has one"
    )
    equal("sum of the positions it tells", sum(stats.positions.values()), count + probes)
    equal("delivered, without probes", consumer.done_line.delivered, count)
    _check_deliveries(rig, topic, consumer, producer)
    _check_commits(consumer)

    # the next session of the group continues after the commits, and commits only when it leaves
    again = rig.consumer(topic, commit_every_s=60)
    more = rig.feed(topic, rate=100).done_line.ok
    again.wait_stats(lambda stats: stats.delivered >= more)
    again.leave()
    for stream, seen in positions(again).items():
        equal(
            f"first position of the next session in stream {stream}",
            seen[0],
            len(positions(consumer)[stream]),
        )
    _check_commits(again)


def _check_deliveries(rig: Rig, topic: str, consumer: DrivenWorker, producer: DrivenWorker) -> None:
    rows, got = consumer.rows(TableId.DELIVERIES), consumer.events(Event.DELIVER)
    equal("checks of the payloads", set(got["check"].tolist()), {Payload.OK})
    equal("messages handed over", sorted(messages(got["header"])), sorted(messages(producer.sends)))
    for stream, seen in positions(consumer).items():
        equal(f"positions in stream {stream}", seen, list(range(len(seen))))
    for event in (Event.ASSIGN, Event.REVOKE):
        equal(f"rows of {event.name}", len(rows[rows["kind"] == event]), rig.partitions[topic])
    equal("epochs", len(set(got["epoch"].tolist())), 1)
    for event in np.unique(rows["kind"]):
        grows = (np.diff(rows["t_ns"][rows["kind"] == event]) >= 0).all()
        expect(grows, f"times of {Event(event).name} rows go back")


def _check_commits(consumer: DrivenWorker) -> None:
    rows = consumer.rows(TableId.DELIVERIES)
    called, confirmed = (rows[rows["kind"] == kind] for kind in (Event.COMMIT_CALLED, Event.COMMIT))
    # a commit that was under way when the session ended is never confirmed
    expect(
        0 < len(confirmed) <= len(called), f"{len(confirmed)} commits confirmed of {len(called)}"
    )
    asked, kept = (
        {(int(r["stream"]), int(r["position"])) for r in part} for part in (called, confirmed)
    )
    equal("commits confirmed that were not asked for", kept - asked, set())
    for stream, seen in positions(consumer).items():
        last = int(confirmed["position"][confirmed["stream"] == stream].max(initial=-1))
        equal(f"last commit of stream {stream}", last, seen[-1] + 1)


@check("consumer", applies=has_groups)
def a_second_member_takes_partitions_over(rig: Rig) -> None:
    """Check that two members share the partitions, and that both write down the rebalance."""
    topic = rig.topic()
    first, second = rig.consumer(topic), rig.consumer(topic)

    def shared() -> bool:
        held = [stream for consumer in (first, second) for stream in _held(consumer)]
        return len(held) == len(set(held)) == rig.partitions[topic] and bool(_held(second))

    # what a member processed and did not commit before a partition moves is handed over again
    expect(wait_until(shared, 40), "the members do not share the partitions")
    producer = rig.feed(topic)

    def delivered() -> int:
        return sum(int(consumer.stats.delivered) for consumer in (first, second))

    wait_until(lambda: delivered() >= producer.done_line.ok, 40)
    for consumer in (first, second):
        consumer.leave()
    rows = first.rows(TableId.DELIVERIES)
    expect(
        rows["epoch"].max() > 1 or (rows["kind"] == Event.REVOKE).any(),
        "the first saw no rebalance",
    )
    expect(positions(second), "the second was handed nothing")
    headers = np.concatenate([each.events(Event.DELIVER)["header"] for each in (first, second)])
    equal("messages handed over", sorted(messages(headers)), sorted(messages(producer.sends)))


def _held(consumer: DrivenWorker) -> set[int]:
    """The streams of the partitions that a member has now."""
    held = set()
    rows = consumer.rows(TableId.DELIVERIES)
    for row in rows[np.isin(rows["kind"], (Event.ASSIGN, Event.REVOKE))]:
        if row["kind"] == Event.ASSIGN:
            held.add(int(row["stream"]))
        else:
            held.discard(int(row["stream"]))
    return held


@check("consumer", slow=True, applies=has_groups)
def kill_9_of_a_member_leaves_its_journal(rig: Rig) -> None:
    """Check that the journal of a member that was killed (SIGKILL) is readable."""
    topic = rig.topic()
    consumer = rig.consumer(topic)
    count = rig.feed(topic).done_line.ok
    consumer.wait_stats(lambda stats: stats.delivered >= count)
    assert consumer.pid is not None
    os.kill(consumer.pid, signal.SIGKILL)
    equal("exit code", consumer.wait_end(), -signal.SIGKILL)
    equal("rows", sum(map(len, positions(consumer).values())), count + rig.partitions[topic])


@check("consumer", applies=has_groups)
def work_on_a_message_delays_neither_heartbeats_nor_commits(rig: Rig) -> None:
    """An application that is slow: it keeps its partitions, and what it has done is committed
    meanwhile."""
    topic = rig.topic()
    consumer = rig.consumer(topic, work_s=0.02)
    rig.feed(topic, rate=100)
    begun = time.monotonic()
    consumer.wait_stats(lambda stats: stats.delivered >= 50)
    took_s = time.monotonic() - begun
    expect(took_s < 30, f"50 messages with work of 20 ms took {took_s:.0f} s")
    consumer.leave()
    got = consumer.rows(TableId.DELIVERIES)
    equal("epochs", len(set(got["epoch"][got["kind"] == Event.DELIVER].tolist())), 1)
    seen = positions(consumer)
    rows = got[got["kind"] == Event.COMMIT]
    expect(len(rows) > 0, "nothing was committed")
    for stream in np.unique(rows["stream"]):
        last = int(rows["position"][rows["stream"] == stream].max())
        expect(
            last <= len(seen[int(stream)]),
            f"committed more than was handed over of stream {stream}",
        )
