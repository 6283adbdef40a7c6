"""Checks of the worker contract drive a worker: the rules, without a worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.contract.driving import ContractBroken, DrivenWorker, after_refusals, outcomes
from harness.contracts.worker import StatsLine
from harness.records import RAW, Outcome, TableId


def test_stats_of_a_worker_that_still_connects_have_no_counts(tmp_path: Path) -> None:
    worker = DrivenWorker.__new__(DrivenWorker)
    worker._process, worker.errors, worker.folder = None, [], tmp_path
    worker.stats = StatsLine(t_ns=1, cpu_s=0.3)
    with pytest.raises(ContractBroken, match="not in 1 s of stats lines"):
        worker.wait_stats(lambda stats: stats.attempted > 0, 1)


def test_what_is_sent_on_a_lane_after_its_first_refusal() -> None:
    """A broker may fence a producer on one partition and take it back on another (docs/bugs/)."""
    sends = np.zeros(7, RAW[TableId.SENDS])
    sends["lane"] = [0, 1, 0, 1, 0, 1, 1]
    sends["outcome"] = (
        [Outcome.OK] * 2 + [Outcome.FAIL] + [Outcome.OK] + [Outcome.FAIL] * 2 + [Outcome.OK]
    )
    assert outcomes(after_refusals(sends[[0, 2, 4]])) == {Outcome.FAIL}
    assert len(after_refusals(sends[[0, 1, 3]])) == 0
    assert len(after_refusals(sends[:0])) == 0
    assert outcomes(after_refusals(sends)) == {Outcome.FAIL, Outcome.OK}, (
        "lane 1 went on after a refusal"
    )
