"""Estimates what the rounds of a command add up to: messages, bytes, disk, memory of the clients,
time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.contracts.plan import Plan
from harness.plan.build import UNLIMITED_GUESS_PER_S
from harness.plan.hours import SEALED_WITHIN_S, audit_follows, retained_s
from harness.plan.profile import mean_rate_per_s
from harness.plan.rates import is_open
from harness.records import RAW, TableId
from harness.systems import SYSTEMS

#: Sealed rows are packed: their share of the raw ones (5 to 7 % in the smoke scenarios).
_SEALED_SHARE: Final = 0.1
#: Brokers drop whole files only.
_ROLLED: Final = 1.25
#: What brokers write before the first message (journals made in advance), logs, the report.
_BASE_DISK_BYTES: Final = 1_000_000_000
#: Readers of the log, besides the workers of the plan, and the memory of one.
_AUDIT_MB: Final = 400
#: Memory of a worker process by the language of its client, buffers full.
_WORKER_MB: Final = {"python": 150, "go": 150, "java": 350, "rust": 150}


#: Of a round besides its load: recovery, drain, audit, judging. A guess for a machine of two cores.
ROUND_OVERHEAD_S: Final = 25.0
#: Of a command besides its rounds: the brokers start, Spark starts.
START_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Totals over all rounds, warm-up included; a load without a limit is guessed.

    Attributes:
        is_limited: every load has a rate.
        is_measured: some load goes at what the machine keeps; all of this is the most that it may
            come to.
        disk_bytes: the most there is at once, on the disk of the runs.
        clients_mb: memory of the workers of the round that has most of them.
        load_s: warm-up and load.
        total_s: a guess of the whole command: start, load, recovery, drain, audit and judging.
    """

    is_limited: bool
    messages: int
    payload_bytes: int
    disk_bytes: int
    clients_mb: int
    load_s: float
    total_s: float
    is_measured: bool = False


def estimate(plans: Sequence[Plan], language_of: Callable[[str, Sequence[str]], str]) -> Estimate:
    """Estimate what these rounds need when they run one after the other.

    Args:
        language_of: client library, folders of workers -> the language of its worker.
    """
    raw = [_raw_bytes(plan) for plan in plans]
    at_once = [int(own * _share_at_once(plan)) for own, plan in zip(raw, plans, strict=True)]
    brokers = [_broker_bytes(plan) for plan in plans]
    load_s = sum(plan.warm_up_s + plan.load_s for plan in plans)
    # Brokers take their time to delete the topics of a round: the next one begins meanwhile.
    disk = _BASE_DISK_BYTES + sum(raw) * _SEALED_SHARE + max(at_once) + sum(sorted(brokers)[-2:])
    return Estimate(
        is_limited=all(plan.rate_per_s for plan in plans),
        is_measured=any(is_open(plan) for plan in plans),
        messages=sum(map(messages, plans)),
        payload_bytes=sum(messages(plan) * _payload(plan) for plan in plans),
        disk_bytes=int(disk),
        clients_mb=max(_clients_mb(plan, language_of) for plan in plans),
        load_s=load_s,
        total_s=START_S + load_s + ROUND_OVERHEAD_S * len(plans),
    )


def messages(plan: Plan) -> int:
    """Sends of one round, warm-up included."""
    return int((mean_rate_per_s(plan) or UNLIMITED_GUESS_PER_S) * (plan.warm_up_s + plan.load_s))


def _stored(plan: Plan) -> int:
    """Messages of one round that lie in topics in the end; each pipeline is taken to read all of
    them."""
    return messages(plan) * (1 + len({member.to for member in plan.pipelines}))


def _payload(plan: Plan) -> int:
    """Bytes of a message, on average."""
    if plan.payload_sizes:
        return sum(plan.payload_sizes) // len(plan.payload_sizes)
    return (plan.payload_bytes + (plan.payload_max_bytes or plan.payload_bytes)) // 2


def _broker_bytes(plan: Plan) -> int:
    system = SYSTEMS[plan.system]
    copies = system.stored_copies(max(topic.replication for topic in plan.topics), plan.topology)
    kept = min(1.0, (retained_s(plan) or math.inf) * _ROLLED / (plan.warm_up_s + plan.load_s))
    return int(_stored(plan) * kept) * (_payload(plan) + system.stored_overhead_bytes) * copies


def _raw_bytes(plan: Plan) -> int:
    """Rows as workers write them: each send, each message in the log, each delivery and
    settlement."""
    settled = {
        consumer.group: consumer.settle not in ("auto", "none") for consumer in plan.consumers
    }
    deliveries = sum(2 if settles else 1 for settles in settled.values())
    row = RAW[TableId.SENDS].itemsize + RAW[TableId.LOG].itemsize
    return _stored(plan) * (row + deliveries * RAW[TableId.DELIVERIES].itemsize)


def _share_at_once(plan: Plan) -> float:
    """Return the largest share of a round's raw rows that is not sealed yet at one moment."""
    return min(1.0, SEALED_WITHIN_S / plan.load_s) if audit_follows(plan) else 1.0


def _clients_mb(plan: Plan, language_of: Callable[[str, Sequence[str]], str]) -> int:
    clients = [*(p.client for p in plan.producers), *(c.client for c in plan.readers)]
    most = max(_WORKER_MB.values())
    return _AUDIT_MB + sum(
        _WORKER_MB.get(language_of(client, plan.workers), most) for client in clients
    )
