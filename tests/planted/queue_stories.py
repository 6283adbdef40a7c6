"""Histories of queue clients in six messages: each story shows one class, or a near-miss of it."""

from __future__ import annotations

from typing import Any

from harness.contracts.plan import ConsumerPromise
from harness.records import Event
from tests.planted.plans import DURABLE
from tests.planted.tiny import History

QUEUE = ConsumerPromise(subscription="queue", order="none", acks_confirmed=True)
NO_DEDUP = DURABLE.model_copy(update={"dedup": False})
BACK = (Event.ROLLBACK_BEGIN, Event.ROLLBACK_END)
DONE = (Event.COMMIT_CALLED, Event.COMMIT)


def queue(settle: str = "transacted", **more: Any) -> History:
    """Six messages sent to a queue; `log` says which remained."""
    return (
        History(system="qpid", reading=QUEUE, settle=settle, promise=NO_DEDUP, **more)
        .sent(6)
        .at(1_000)
    )


def work_queue(*, confirmed: bool = True, timeout_s: float = 30.0) -> History:
    """Six messages sent to a stream of NATS that removes them once they are acknowledged."""
    reading = QUEUE.model_copy(update={"acks_confirmed": confirmed, "ack_timeout_s": timeout_s})
    h = History(system="nats", reading=reading, settle="ack", promise=NO_DEDUP, sessions=2)
    topics = [
        topic.model_copy(update={"config": {"retention": "workqueue"}}) for topic in h.plan.topics
    ]
    return h.planned(h.plan.model_copy(update={"topics": topics})).sent(6).at(1_000)


def consumed(*given: int, remain: tuple[int, ...] = (), **more: Any) -> History:
    """Delivered, committed."""
    return queue(**more).log(*remain).deliver(*given).ends(*DONE)


def rolled_back(
    first: tuple[int, ...], again: tuple[int, ...], event: tuple[Event, ...] = BACK, **more: Any
) -> History:
    """Delivered, given back, delivered, committed."""
    return queue(**more).deliver(*first).ends(*event).deliver(*again).ends(*DONE)


def redelivered(first: tuple[Event, ...]) -> History:
    """0..5 delivered, the transaction ends, 3 comes again and is committed with what is left."""
    h = queue(sessions=2).deliver(0, 1, 2, 3).ends(*first).deliver(4, 5).ends(*DONE)
    return h.deliver(*((3,) if first == DONE else (0, 1, 2, 3)), session=2).ends(*DONE, session=2)
