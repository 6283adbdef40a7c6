"""Records the positions that groups have committed, where judging asks for them."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict

from harness.contracts.plan import Plan
from harness.contracts.rows import CommittedOffset
from harness.errors import BrokerstormError
from harness.protocols.cluster import Admin, HasCommittedOffsets
from harness.run.worker_specs import group_id
from harness.rundir import RunDir, write_jsonl
from harness.waiting import wait_until

_LOG = logging.getLogger(__name__)
_EVERY_S = 0.5


def record_committed(plan: Plan, run: RunDir, admin: Admin, *, timeout_s: float) -> None:
    """Write the committed positions of groups of pipelines and applications, and of those whose
    workers watch commits.

    Nothing is written without such a group. Call when all members have ended.

    Args:
        timeout_s: for all groups together; positions that are not known by then are left out.
    """
    topics = _asked(plan)
    if not topics or not isinstance(admin, HasCommittedOffsets):
        return
    rows: list[CommittedOffset] = []
    give_up = time.monotonic() + timeout_s
    for group, own in topics.items():
        rows += _committed(plan, admin, group, sorted(own), give_up - time.monotonic())
    kept = [asdict(row) for row in rows]
    for row in kept:
        del row["stream_id"]  # sealing gives it
    write_jsonl(run.raw_committed_offsets, kept)


def _asked(plan: Plan) -> dict[str, set[str]]:
    """Groups to ask about -> the topics that they read."""
    pipelines = {member.session for member in plan.pipelines}
    topics: dict[str, set[str]] = {}
    for consumer in plan.consumers:
        if consumer.session in pipelines or consumer.watches_commits:
            topics.setdefault(consumer.group, set()).update(consumer.topics)
    for application in plan.applications:
        topics.setdefault(application.group, set()).add(application.source)
    return topics


def _committed(
    plan: Plan, admin: HasCommittedOffsets, group: str, topics: list[str], timeout_s: float
) -> list[CommittedOffset]:
    wanted = sum(topic.partitions for topic in plan.topics if topic.name in topics)
    found: dict[str, CommittedOffset] = {}

    def is_whole() -> bool:
        try:
            told = admin.committed_offsets(group_id(plan, group), topics)
        except BrokerstormError as error:
            _LOG.warning("what group %s has committed is not known yet: %s", group, error)
            return False
        now_ns = time.monotonic_ns()
        found.update(
            {s: CommittedOffset(group, s, position, now_ns) for s, position in told.items()}
        )
        return len(told) == wanted

    wait_until(is_whole, timeout_s, every_s=_EVERY_S)
    return list(found.values())
