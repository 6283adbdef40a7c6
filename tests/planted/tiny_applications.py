"""Applications of a tiny history: what a program made of messages of ``orders``, in the topic
``invoices``.

h = applied()            # orders-0 and invoices-0; producer 1 sends, "billing" is the application
h.sent(3).log(0, 1, 2)
made(h, 0, 1, 2)             # outputs that name these messages, stored in this order
committed(h, 3)              # of tests.planted.tiny_pipelines
"""

from __future__ import annotations

import signal
from typing import Any

from harness.contracts.plan import ApplicationPlan
from harness.plan.applications import FIRST_SESSION
from harness.records import Check, Event, Kind
from tests.planted.tiny import TOPIC, History


def applied(
    partitions: int = 1, to: int = 1, *, application: dict[str, Any] | None = None, **where: Any
) -> History:
    """Partition ``partitions + j`` is ``invoices-j``. ``application``: changes to its plan."""
    h = History(partitions=partitions, **{"sessions": 0, **where})
    source = h.plan.topics[0]
    fields = {
        "name": "billing",
        "run": ["billing"],
        "env": {},
        "folder": "/",
        "instances": 2,
        "stop_signal": signal.SIGTERM,
        "stop_within_s": 10.0,
        "restarts": "always",
        "source": TOPIC,
        "to": "invoices",
        "group": "billing",
        "session": FIRST_SESSION,
        "makes": "one",
        "promise": "exactly-once",
        "order": "partition",
    }
    plan = ApplicationPlan(**{**fields, **(application or {})})
    topics = [source, source.model_copy(update={"name": "invoices", "partitions": to})]
    consumers = [c.model_copy(update={"topics": [TOPIC]}) for c in h.plan.consumers]
    h.planned(
        h.plan.model_copy(update={"topics": topics, "applications": [plan], "consumers": consumers})
    )
    lives = [
        {"name": name, "application": "billing", "instance": name, "drained": True}
        for name in plan.instance_names
    ]
    h.manifest["applications"] = lives
    return h


def made(
    h: History,
    *seqs: int,
    instance: int = 1,
    partition: int = 0,
    lane: int | None = None,
    attempt: int = 0,
    to: int = 0,
    check: Check = Check.OK,
    at_ms: float | None = None,
) -> History:
    """Outputs of these messages, stored in partition ``to`` of invoices; ``partition``: of their
    inputs."""
    stream = h.partitions + to + 1
    for seq in seqs:
        identity = h._identity(instance, lane, partition, seq, attempt, Kind.LOAD)
        position = h._next.get(stream, 0)
        h._next[stream] = position + 1
        named = identity if check is Check.OK else dict.fromkeys(identity, 0)
        h._event(Event.OUTPUT, FIRST_SESSION, stream, position, at_ms, **named, check=check)
    return h
