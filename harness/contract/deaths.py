"""Contract of clients that give themselves up: the worker writes down what they said, and lives
on."""

from __future__ import annotations

import time

from harness.contract.checks import check
from harness.contract.driving import READY_S, DrivenWorker, after_refusals, equal, expect, outcomes
from harness.contract.outcomes import refuses_by_size
from harness.contract.rig import Rig
from harness.records import Outcome
from harness.run.worker_process import Message
from harness.waiting import wait_until

#: A member learns that it was fenced by its next heartbeat, at the latest.
DIES_S = 30.0


def _has_died(worker: DrivenWorker) -> Message:
    """The event of a client that died, which comes once."""

    def told() -> list[Message]:
        return [line for line in list(worker.said) if line.get("kind") == "client-died"]

    wait_until(lambda: bool(told()) or not worker.is_alive, DIES_S, every_s=0.05)
    ended = "" if worker.is_alive else f"; it ended with {worker.exit_code}: {worker.why()}"
    expect(told(), f"no event client-died in {DIES_S:g} s; it said {worker.said[-2:]}{ended}")
    for key in ("name", "text", "why"):
        expect(told()[0].get(key), f"its event client-died has no {key}")
    return told()[0]


def _goes_on(producer: DrivenWorker) -> None:
    """Check that a producer continues: what is due later has a row and the outcome of a refused
    call, and the worker ends as usual.

    Pulsar's broker may take a fenced producer back on a partition that refused it before
    (docs/bugs/other-defects.md).
    """
    _has_died(producer)
    since_ns = time.monotonic_ns()
    producer.wait_stats(lambda stats: stats.t_ns > since_ns + 1.5e9)
    producer.finish()
    sends = producer.sends
    equal("rows", len(sends), producer.done_line.attempted)
    equal("open sends", producer.done_line.open, 0)
    later = after_refusals(sends[sends["t_start_ns"] > since_ns + 500_000_000])
    expect(len(later) > 0, "nothing was offered after its client died")
    equal("outcomes after that", outcomes(later), {Outcome.FAIL})
    equal("events client-died", sum(line.get("kind") == "client-died" for line in producer.said), 1)


@check("producer", "dies_refused", applies=refuses_by_size)
def a_producer_that_gives_itself_up_is_reported_and_lives_on(rig: Rig) -> None:
    """Check that a producer with a fatal error reports it once, and that the worker continues."""
    topic = rig.topic(config={rig.system.size_setting: "1000"})
    options = rig.worker.contract.words("dies_refused")
    producer = rig.producer(topic, payload=2000, rate=100, load_s=30, options=options)
    producer.begin()
    _goes_on(producer)


@check("producer", "fenced_producer")
def a_producer_that_is_fenced_is_reported_and_lives_on(rig: Rig) -> None:
    """Check that a producer that another one fenced reports it, and that the worker continues."""
    topic = rig.topic()
    options = rig.worker.contract.words("fenced_producer")
    first = rig.producer(topic, rate=100, load_s=60, options=options)
    first.begin()
    first.wait_stats(lambda stats: stats.ok > 20)
    second = rig.producer(topic, rate=100, load_s=60, options=options)
    second.wait_ready(READY_S)
    equal("its reason", _has_died(first)["why"], "fenced")
    _goes_on(first)
    second.leave()


@check("consumer", "fenced_consumer")
def a_consumer_that_is_fenced_is_reported_and_lives_on(rig: Rig) -> None:
    """Check that a consumer that another one fenced reports it, and that the worker continues."""
    topic = rig.topic()
    options = rig.worker.contract.words("fenced_consumer")
    first = rig.consumer(topic, options=options)
    # A member of the group has read the probes, which are not counted as delivered.
    first.wait_stats(lambda stats: sum(stats.positions.values()) >= rig.partitions[topic])
    second = rig.consumer(topic, options=options)
    count = rig.feed(topic).done_line.ok  # some clients learn it when they commit
    equal("its reason", _has_died(first)["why"], "fenced")
    second.wait_stats(lambda stats: stats.delivered >= count)
    expect(first.is_alive, f"the first ended with {first.exit_code}: {first.why()}")
    first.leave()
    second.leave()
