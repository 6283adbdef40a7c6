"""Contract of clients of a queue (Qpid): transactions, and a connection that the broker closes."""

from __future__ import annotations

import os
import signal

import numpy as np

from harness.contract.checks import check
from harness.contract.driving import DrivenWorker, dense, equal, expect, outcomes
from harness.contract.rig import Rig
from harness.records import Event, Outcome, TableId
from harness.systems import System
from harness.waiting import wait_until
from harness.workers.facts import SettingFacts


def is_queue(system: System) -> bool:
    """Return whether the system has queues instead of logs."""
    return system.is_queue


def has_transactions(system: System) -> bool:
    """Return whether the system has queues, and transactions cover them."""
    return system.is_queue and ("consumer", "per_transaction") not in system.foreign


def transactions_of(rig: Rig, count: int) -> dict[str, str]:
    """The producer's option for so many messages a transaction."""
    stated: SettingFacts | None = getattr(rig.worker.promises, "transacted", None)
    return {stated.options[0]: str(count)} if stated and stated.options else {}


@check("consumer", applies=is_queue, supports={"settle": "transacted"})
def what_was_committed_is_taken_once(rig: Rig) -> None:
    """Transactions of five, every fourth rolled back."""
    topic = rig.topic()
    count = rig.feed(topic).done_line.ok
    consumer = rig.consumer(topic, settle="transacted", per_transaction=5, rollback_every=4)

    def is_empty() -> bool:
        left: dict[str, int] = rig.cluster.admin.backlogs([topic])[f"{topic}-0"]
        return left == {"": 0}

    expect(wait_until(is_empty, 60, every_s=0.2), "the queue is not empty after 60 s")
    consumer.leave()
    rows = consumer.rows(TableId.DELIVERIES)
    given = rows[rows["kind"] == Event.DELIVER]
    committed, rolled_back = (
        set(rows["txn_id"][rows["kind"] == kind].tolist())
        for kind in (Event.COMMIT, Event.ROLLBACK_END)
    )
    expect(rolled_back, "nothing was rolled back")
    equal("rollbacks beyond every fourth transaction", [n for n in rolled_back if n % 4], [])
    kept = given[np.isin(given["txn_id"], list(committed))]
    equal("messages of committed transactions", kept["header"]["seq"].tolist(), list(range(count)))
    equal("messages left", len(rig.stored(topic)), 0)


@check("consumer", applies=is_queue, supports={"settle": "transacted"})
def no_acknowledgement_covers_what_the_application_was_not_given(rig: Rig) -> None:
    """A consumer of several queues that is killed: messages that it was never given are still
    there."""
    topics = [rig.topic() for _ in range(4)]
    fed = {topic: rig.feed(topic).done_line.ok for topic in topics}
    consumer = rig.consumer(
        topics[0], also=topics[1:], settle="transacted", per_transaction=5, work_s=0.002
    )
    consumer.wait_stats(lambda stats: stats.delivered >= 100)
    assert consumer.pid is not None
    os.kill(consumer.pid, signal.SIGKILL)
    consumer.wait_end()
    given = consumer.events(Event.DELIVER)
    expect(len(given) < sum(fed.values()), "everything was given before the consumer was killed")
    for number, topic in enumerate(topics, start=1):
        seen = given["header"]["seq"][given["stream"] == number]
        left = rig.stored(topic)["header"]["seq"]
        missing = set(range(fed[topic])) - set(seen.tolist()) - set(left.tolist())
        equal(f"messages of queue {number} that were removed and never given", sorted(missing), [])


@check("producer", applies=has_transactions)
def a_killed_producer_leaves_only_whole_transactions(rig: Rig) -> None:
    """Check that a producer that was killed leaves only whole transactions in the queue."""
    topic = rig.topic()
    producer = rig.producer(topic, load_s=30, options=transactions_of(rig, 10))
    producer.begin()
    producer.wait_stats(lambda stats: stats.ok >= 100)
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGKILL)
    producer.wait_end()
    sends, audit = producer.sends, rig.audit(topic)
    found, bounds = audit.rows(TableId.LOG), audit.bounds()[f"{topic}-0"]
    equal("bounds", (bounds["why"], bounds["read_to"]), ("end", len(found)))
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    stored = set(found["header"]["seq"].tolist())
    equal("acknowledged and not stored", set(_with(producer, Outcome.OK)) - stored, set())
    equal("stored without a row", stored - set(sends["seq"].tolist()), set())
    equal("positions", found["position"].tolist(), list(range(len(found))))
    equal("messages beyond whole transactions", len(found) % 10, 0)


@check("producer", applies=has_transactions)
def a_connection_that_the_broker_closes_costs_no_more_than_its_transaction(rig: Rig) -> None:
    """Check that a connection that the broker closes loses the open transaction and nothing
    else."""
    topic = rig.topic()
    producer = rig.producer(topic, load_s=30, name="cut-off", options=transactions_of(rig, 10))
    producer.begin()
    producer.wait_stats(lambda stats: stats.ok >= 50)
    (own,) = [found for found in rig.cluster.admin.connections() if found.client_name == "cut-off"]
    expect(
        own.pid in (producer.pid, 0), f"the connection names process {own.pid}, not {producer.pid}"
    )
    rig.cluster.admin.close_connection(own)
    producer.wait_stats(lambda stats: stats.attempted >= 900)
    producer.finish()
    stored = set(rig.stored(topic)["header"]["seq"].tolist())
    ok = _with(producer, Outcome.OK)
    equal("acknowledged and not stored", set(ok) - stored, set())
    equal("failed and stored", set(_with(producer, Outcome.FAIL)) & stored, set())
    expect(max(ok) > 800, f"the last message on a new connection is {max(ok)}, must be above 800")
    unknown = len(_with(producer, Outcome.INFO))
    expect(unknown <= 20, f"{unknown} sends are unknown, a transaction has 10")
    expect(Outcome.NONE not in outcomes(producer.sends), "a send without an outcome")


def _with(producer: DrivenWorker, outcome: Outcome) -> list[int]:
    sends = producer.sends
    return [int(seq) for seq in sends["seq"][sends["outcome"] == outcome]]
