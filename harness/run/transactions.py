"""Records which messages of the log were in which transaction: the readers of the audit cannot see it."""

from __future__ import annotations

import logging
from dataclasses import asdict

from harness.contracts.plan import Plan
from harness.errors import BrokerstormError
from harness.protocols.cluster import Admin, HasTransactions
from harness.rundir import RunDir, write_jsonl

_LOG = logging.getLogger(__name__)


def record_transactions(plan: Plan, run: RunDir, admin: Admin, *, timeout_s: float) -> None:
    """Write what the logs hold; nothing where nobody used transactions. What is not known makes a run
    *unknown*."""
    if not any(producer.transactions for producer in plan.producers) or not isinstance(
        admin, HasTransactions
    ):
        return
    try:
        told = admin.transactions([topic.name for topic in plan.topics], timeout_s=timeout_s)
    except BrokerstormError as error:
        _LOG.warning("the transactions of the log were not read: %s", error)
        return
    write_jsonl(run.log_transactions, [asdict(one) for one in told])
