"""Contract of who reads: consumers that settle each message (Pulsar), and readers of the log to its
end."""

from __future__ import annotations

import numpy as np

from harness.contract.checks import check
from harness.contract.driving import DrivenWorker, Rows, equal, expect, messages, places
from harness.contract.rig import Rig
from harness.records import Check as Payload
from harness.records import Event, Kind, TableId
from harness.systems import System
from harness.waiting import wait_until

#: A consumer that acknowledges cumulatively has settled everything so long after its last message.
SETTLED_S = 15.0


def has_subscriptions(system: System) -> bool:
    """Return whether consumers of the system settle each message by itself (Pulsar, NATS)."""
    return not system.is_queue and system.subscription != "group"


def entries(rows: Rows) -> set[tuple[int, ...]]:
    """Places without the index in the batch."""
    return {place[:3] for place in places(rows)}


def _journalled(rig: Rig, receive: str) -> str:
    """A topic of which a consumer got and acknowledged everything, as its journal says."""
    topic = rig.topic()
    consumer = rig.consumer(topic, receive=receive, settle="ack")
    producer = rig.feed(topic, mode="key")
    count = producer.done_line.ok
    consumer.wait_stats(lambda stats: stats.delivered >= count)
    consumer.leave()
    got = consumer.events(Event.DELIVER)
    equal("checks of the payloads", set(got["check"].tolist()), {Payload.OK})
    equal("messages handed over", sorted(messages(got["header"])), sorted(messages(producer.sends)))
    equal("redelivery counts", set(got["redelivery"].tolist()), {0})
    called = places(consumer.events(Event.ACK_CALLED))
    equal("handed over and not acknowledged", sorted(set(places(got)) - set(called)), [])
    equal(
        "acknowledgements confirmed",
        sorted(places(consumer.events(Event.ACK_CONFIRMED))),
        sorted(called),
    )
    for stream in np.unique(got["stream"]):
        seen = places(got[got["stream"] == stream])
        expect(seen == sorted(seen), f"messages of stream {stream} are not in its order")
    return topic


@check("consumer", applies=has_subscriptions)
def what_was_acknowledged_is_not_given_again(rig: Rig) -> None:
    """Check that a session receives nothing that an earlier session of its group acknowledged."""
    topic = _journalled(rig, "loop")
    again = rig.consumer(topic)
    count = rig.feed(topic, rate=50).done_line.ok
    again.wait_stats(lambda stats: stats.delivered >= count)
    again.leave()
    equal("messages of the next session", len(again.events(Event.DELIVER)), count)


def _receive_check(receive: str, slow: bool) -> None:
    @check(
        "consumer",
        cases={receive: {}},
        supports={"receive": receive},
        applies=has_subscriptions,
        slow=slow,
    )
    def every_message_is_journalled_that_comes_by(rig: Rig) -> None:
        _journalled(rig, receive)


_receive_check("listener", slow=False)
_receive_check("batch", slow=True)


@check("consumer", applies=has_subscriptions, supports={"settle": "cumulative"})
def the_last_message_is_settled_without_another(rig: Rig) -> None:
    """A cumulative acknowledgement covers the newest message also when no further one arrives."""
    topic = rig.topic()
    consumer = rig.consumer(topic, settle="cumulative")
    count = rig.feed(topic, mode="key").done_line.ok
    consumer.wait_stats(lambda stats: stats.delivered >= count)

    def is_settled() -> bool:
        backlogs = rig.cluster.admin.backlogs([topic])
        return all(own[f"g-{topic}"] == 0 for own in backlogs.values())

    expect(
        wait_until(is_settled, SETTLED_S, every_s=0.2),
        f"messages are unsettled {SETTLED_S:.0f} s after the last",
    )
    consumer.leave()
    got, confirmed = consumer.events(Event.DELIVER), consumer.events(Event.ACK_CONFIRMED)
    for stream in np.unique(got["stream"]):
        last = max(places(got[got["stream"] == stream]))
        equal(
            f"settled of stream {stream}",
            max(places(confirmed[confirmed["stream"] == stream])),
            last,
        )


@check("consumer", "shared", applies=has_subscriptions)
def refused_messages_come_again(rig: Rig) -> None:
    """Check that refused messages, and only these, are given again, with a redelivery count."""
    topic = rig.topic(partitions=1)
    options = rig.worker.contract.words("shared", ms=200)
    consumer = rig.consumer(topic, settle="ack", nack_every=10, options=options)
    producer = rig.feed(topic, rate=200)
    count = producer.done_line.ok
    consumer.wait_stats(lambda stats: stats.delivered >= count + count // 10)
    consumer.leave()
    _check_refused(consumer, producer, count)


def _check_refused(consumer: DrivenWorker, producer: DrivenWorker, count: int) -> None:
    got, refused = consumer.events(Event.DELIVER), consumer.events(Event.NACK)
    equal("messages handed over", set(messages(got["header"])), set(messages(producer.sends)))
    expect(len(refused) >= count // 10, f"{len(refused)} refused of {count}, asked for every tenth")
    again = got[got["redelivery"] > 0]
    expect(
        len(again) >= len(entries(refused)) // 2,
        f"{len(again)} came again of {len(refused)} refused",
    )
    equal("came again and not refused", entries(again) - entries(refused), set())


@check("audit")
def every_stream_is_read_to_its_last_message(rig: Rig) -> None:
    """Check that the audit reads every stream to its end, and reports how far it read."""
    topic = rig.topic()
    # a probe may be stored more than once, also when its client sends it again
    rig.wait_ready(topic)
    producer = rig.feed(topic, rate=0, warm_up_s=0, load_s=1)
    count = producer.done_line.ok
    expect(count >= rig.partitions[topic], f"the producer sent {count} messages only")
    audit = rig.audit(topic, worker=rig.worker)
    log, bounds = audit.rows(TableId.LOG), audit.bounds()
    load = log[log["header"]["kind"] != Kind.PROBE]
    equal("messages read", sorted(messages(load["header"])), sorted(messages(producer.sends)))
    equal(
        "streams of the bounds",
        sorted(bounds),
        sorted(f"{topic}-{p}" for p in range(rig.partitions[topic])),
    )
    equal("why it stopped", {row["why"] for row in bounds.values()}, {"end"})
    equal(
        "read_to beside end",
        [name for name, row in bounds.items() if row["read_to"] != row["end"]],
        [],
    )
    spans = [row["end"] - max(row["begin"], rig.system.first_position) for row in bounds.values()]
    equal("ends in sum", sum(spans), len(log))
