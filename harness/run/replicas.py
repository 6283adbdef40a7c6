"""Records what every replica has: readers of the audit see only the leader's."""

from __future__ import annotations

import logging
from dataclasses import asdict

from harness.contracts.plan import Plan
from harness.contracts.rows import EVERY_REPLICA
from harness.errors import BrokerstormError
from harness.protocols.cluster import Admin, ReadsReplicas
from harness.rundir import RunDir, write_jsonl

_LOG = logging.getLogger(__name__)


def record_replicas(plan: Plan, run: RunDir, admin: Admin, *, timeout_s: float) -> None:
    """Write what the replicas have, where the scenario asks for it. What is not known makes it
    *unknown*."""
    if plan.audit != EVERY_REPLICA or not isinstance(admin, ReadsReplicas):
        return
    try:
        told = admin.read_replicas([topic.name for topic in plan.topics], timeout_s=timeout_s)
    except BrokerstormError as error:
        _LOG.warning("the replicas were not read: %s", error)
        return
    rows = [asdict(row) for row in told]
    for row in rows:
        del row["stream_id"]  # sealing gives it
    write_jsonl(run.raw_replicas, rows)
