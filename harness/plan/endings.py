"""Which clients of a plan may be ended in the middle of the load, and why others must not."""

from __future__ import annotations

from harness.contracts.plan import Plan
from harness.systems import SYSTEMS


def endings(plan: Plan) -> dict[str, str]:
    """By name of each client, why nobody could judge a run that ends its process; empty = it can be judged.

    A queue gives a message away for good when its consumer settles it by taking it. What such a process holds
    when it ends is in no journal and in no queue, and would look lost.
    """
    is_queue = SYSTEMS[plan.system].is_queue
    found = {p.name: f"{p.name} comes and goes by itself" if p.lives else "" for p in plan.producers}
    for consumer in plan.consumers:
        why = f"{consumer.name} settles messages by taking them (settle: auto): what it holds would look lost"
        found[consumer.name] = why if is_queue and consumer.settle == "auto" else ""
    return found
