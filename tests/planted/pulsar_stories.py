"""Histories of Pulsar clients in five messages: each story shows one class, or a near-miss of
it."""

from __future__ import annotations

from typing import Any

from harness.contracts.plan import ConsumerPromise
from tests.planted.plans import DURABLE
from tests.planted.tiny import EPOCH_NS, History

NO_DEDUP = DURABLE.model_copy(update={"dedup": False})
SHARED = ConsumerPromise(
    subscription="shared", order="none", ack_timeout_s=1.0, acks_confirmed=False
)
RECEIPTS = ConsumerPromise(subscription="shared", order="none", acks_confirmed=True)
BY_INDEX = RECEIPTS.model_copy(update={"batch_index_acks": True})
#: Refused messages come again after 1 s, as often as it takes; or twice at most.
REFUSING = SHARED.model_copy(
    update={"ack_timeout_s": 0.0, "nack_delay_s": 1.0, "max_deliveries": 0}
)
DEAD_LETTERS = REFUSING.model_copy(update={"max_deliveries": 2})
KEYED = ConsumerPromise(subscription="key_shared", order="key", acks_confirmed=False)
FAILOVER = ConsumerPromise(subscription="failover", order="stream", acks_confirmed=False)


def pulsar(reading: ConsumerPromise = RECEIPTS, **more: Any) -> History:
    return History(system="pulsar", reading=reading, settle="ack", **more)


def five(reading: ConsumerPromise = RECEIPTS, **more: Any) -> History:
    return pulsar(reading, **more).sent(5).log(0, 1, 2, 3, 4).at(1_000)


def reconnected(*seqs: int, ids: bool = True) -> History:
    """What a client without deduplication leaves behind after a reconnect."""
    h = pulsar(promise=NO_DEDUP).sent(5)
    return h.log(*seqs, client_seqs=[s + 10 for s in seqs] if ids else ())


def deduplicated(*stored: int, copies_of: tuple[int, ...] = ()) -> History:
    """Messages that are not stored were acknowledged at -1:-1."""
    h = pulsar()
    for seq in range(5):
        h.send(seq, dropped=seq not in stored or seq in copies_of)
    return h.log(*stored)


def threads(*ids: int) -> History:
    """Lanes of two threads of one producer; the client numbers all of their messages."""
    h = pulsar(partitions=1, mode="routed")
    h.sent(len(ids), lane=0)
    return h.log(*range(len(ids)), lane=0, client_seqs=ids)


def timed(acked_ms: float, again_ms: float, *, batch: int = 1, fault: bool = False) -> History:
    """Message 1 (position 1) is handed over at 2 s and again at ``again_ms``; the ack timeout is 1
    s."""
    h = (
        five(SHARED, batch=batch)
        .deliver(0, at_ms=2_000)
        .acked(0, at_ms=2_010)
        .deliver(1, at_ms=2_000)
    )
    if acked_ms < again_ms:
        h.acked(1, at_ms=acked_ms)
    if fault:
        h.fault("unload", "orders", 2_100, 2_200)
    h.deliver(1, position=1, at_ms=again_ms).acked(1, at_ms=again_ms + 10)
    return h.deliver(2, 3, 4, at_ms=again_ms + 20)


def refused() -> History:
    h = five(SHARED).deliver(0, 1, at_ms=2_000).acked(0, at_ms=2_010).nack(1, at_ms=2_020)
    return h.deliver(1, position=1, at_ms=2_500).deliver(2, 3, 4)


def never_again(
    reading: ConsumerPromise = REFUSING, *, drained: bool = True, for_s: float = 20.0
) -> History:
    """Message 1 is refused at 2 s, the others are acknowledged; the consumer runs ``for_s`` after
    that."""
    h = (
        five(reading)
        .deliver(0, 1, 2, 3, 4, redelivery=0, at_ms=1_990)
        .acked(0, 2, 3, 4)
        .nack(1, at_ms=2_000)
    )
    h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": EPOCH_NS + round((2 + for_s) * 1e9)}
    h.manifest["drained"] = drained
    return h


def refused_in_between(*acknowledged: int) -> History:
    """Cumulative: message 1 is refused at 2 s and never comes again."""
    reading = FAILOVER.model_copy(
        update={"acks_confirmed": True, "nack_delay_s": 1.0, "max_deliveries": 0}
    )
    h = History(system="pulsar", reading=reading, settle="cumulative").sent(5).log(0, 1, 2, 3, 4)
    h.deliver(0, 1, 2, 3, 4, redelivery=0, at_ms=1_990).acked(*acknowledged).nack(1, at_ms=2_000)
    h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": EPOCH_NS + 22_000_000_000}
    h.manifest["drained"] = True
    return h


def given_twice(reading: ConsumerPromise) -> History:
    """Message 1 is refused, given again and refused again."""
    return never_again(reading).deliver(1, position=1, redelivery=1, at_ms=3_000).nack(1)


def confirmed(confirmed_ms: float, again_ms: float, **more: Any) -> History:
    """Message 1 is acknowledged at 2.1 s; the broker's answer and the second delivery come when
    told."""
    h = five(**more).deliver(0, 1, at_ms=2_000)
    if confirmed_ms < again_ms:
        h.acked(1, at_ms=2_100, confirmed_ms=confirmed_ms)
        return h.deliver(1, position=1, at_ms=again_ms).deliver(2, 3, 4)
    h.acked(1, at_ms=2_100, confirmed=False).deliver(1, position=1, at_ms=again_ms)
    return h.acked(1, at_ms=confirmed_ms).deliver(2, 3, 4)


def half_a_batch(*acked: int) -> History:
    """Messages 0 and 1 are one entry; 1 comes again."""
    h = five(batch=2).deliver(0, 1, at_ms=2_000).acked(*acked, at_ms=2_100)
    return h.deliver(1, position=1, at_ms=3_000).deliver(2, 3, 4)


def sought(to: int = 0) -> History:
    """All messages are acknowledged, the application seeks, and message 1 comes twice more."""
    h = five().deliver(0, 1, 2, 3, 4, at_ms=2_000).acked(0, 1, 2, 3, 4, at_ms=2_100)
    if to:
        h.seek(to, at_ms=2_200)
    return h.deliver(1, position=1, at_ms=2_300).deliver(1, position=1, at_ms=9_000)


def half_a_batch_between_unloads(
    confirmed_ms: float, sent_ms: float, nacked: bool = False
) -> History:
    """Messages 0 and 1 are one entry, acknowledged one by one. Message 1 comes again after an
    unload. The unload before was over at 1.8 s, and message 2, sent at ``sent_ms``, came over the
    same connection."""
    h = pulsar(BY_INDEX, batch=2).sent(2).send(2, at_ms=sent_ms).send(3).send(4).log(0, 1, 2, 3, 4)
    h.fault("unload", "orders", 1_700, 1_800, acks="kept").fault(
        "unload", "orders", 2_500, 2_600, acks="kept"
    )
    h.assign(0, at_ms=1_750).deliver(0, 1, 2, at_ms=2_000)
    if nacked:
        h.nack(0, at_ms=2_050)
        h.acked(0, at_ms=2_060)
    h.acked(1, at_ms=2_100, confirmed_ms=confirmed_ms).assign(0, at_ms=2_700)
    return h.deliver(1, position=1, at_ms=3_000).deliver(3, 4)


def keyed(reading: ConsumerPromise = KEYED) -> History:
    h = pulsar(reading, mode="key", keys=2, sessions=2)
    for seq in range(4):
        h.send(seq, lane=0).log(seq, lane=0)
    return h.at(1_000)


def handed_over(*, settled: bool) -> History:
    """Session 1 works on message 0 while session 2 is given 1."""
    h = keyed().deliver(0, lane=0, session=1, at_ms=2_000)
    if settled:
        h.acked(0, session=1, at_ms=2_050)
    h.deliver(1, lane=0, session=2, at_ms=2_100)
    if not settled:
        h.acked(0, session=1, at_ms=2_150)
    return h.deliver(2, 3, lane=0, session=2)


def one_key(*order: int, reading: ConsumerPromise = KEYED) -> History:
    h = keyed(reading)
    for seq in order:
        h.deliver(seq, lane=0, position=seq)
    return h


def reconnecting(*given: int) -> History:
    """Given 0 and 1, then, on a new connection, these; nothing is acknowledged."""
    h = five(FAILOVER).deliver(0, 1)
    h._epoch[1] = 1
    for seq in given:
        h.deliver(seq, position=seq)
    return h


def swapped(reading: ConsumerPromise) -> History:
    return five(reading).deliver(0, 2, 1, 3, 4)
