"""Exposure counters: how much of what a bug needs did a run meet?

A clean round of the fixed version proves something only if the affected version could have failed
in it. So every known bug names one of these counters and a floor. Most are counted from the
capture, for every client alike; what only the client can know comes in the ``exposure`` mapping of
its worker's ``stats`` and ``done`` lines (docs/worker-protocol.md), summed over the workers of the
run, and is named in its worker.toml.
"""

from __future__ import annotations

from typing import Final

#: Counted from the capture by `analysis.kernels.exposure`, whatever the client.
CAPTURED: Final = {
    "faults_effective": "faults that proved their effect",
    "requests_held": "requests that the fault request-stall held back",
    "answers_changed": "answers of brokers that a fault dropped, delayed or replaced",
    "sends_open_at_fault": "sends without an outcome when a fault was applied, summed over the faults",
    "sends_before_first_ok": "sends that started before the first acknowledgement in their bucket of lanes",
    "sends_not_ok": "sends that the client reported as failed or never completed",
    "deliveries": "messages handed to consumers",
    "redeliveries": "messages handed over with a redelivery count or flag above zero",
    "assignments": "assignments of a stream to a consumer; more than streams: the group rebalanced",
    "acks_confirmed": "acknowledgements and commits that the client confirmed",
    "nacks": "negative acknowledgements",
    "rollbacks": "transactions that a consumer rolled back, and recovers",
    "clients_at_fault": "clients that ran when a fault was applied, summed over the faults",
}
