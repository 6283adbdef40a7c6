"""Says what a run does so as not to grow with its length."""

from __future__ import annotations

from typing import Final

from harness.contracts.plan import Plan, TopicPlan
from harness.systems import SYSTEMS

#: From a load that long on, our brokers keep this much of the log, which was read before it goes.
RETAIN_FROM_S: Final = 2 * 3600.0
RETAINED_S: Final = 3600.0
#: Raw rows are sealed and gone after this at the latest, where clients answer and the disk keeps
#: up.
SEALED_WITHIN_S: Final = 180.0


def audit_follows(plan: Plan) -> bool:
    """Whether the log is read while it grows. With transactions all of it is read once more at the
    end."""
    uses = any(producer.transactions for producer in plan.producers)
    return not uses and plan.load_s >= SYSTEMS[plan.system].follows_from_s


def retained_s(plan: Plan) -> float | None:
    """How long brokers keep messages, where they keep them longest; None = all of them, to the
    end."""
    kept = [topic_retained_s(plan, topic) for topic in plan.topics]
    return None if None in kept else max(each for each in kept if each is not None)


def topic_retained_s(plan: Plan, topic: TopicPlan) -> float | None:
    """How long brokers keep messages of a topic; None = to the end. Those of others are not ours to
    set."""
    is_long = audit_follows(plan) and plan.load_s >= RETAIN_FROM_S and plan.external is None
    system = SYSTEMS[plan.system]
    return (
        (system.retention_s(topic.config) or RETAINED_S)
        if is_long and system.forgets_read
        else None
    )
