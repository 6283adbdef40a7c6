"""A run whose client confirmed a commit that it never sent: the verdict, and what it rests on."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.findings import Status, Verdict
from harness.run.committed import record_committed
from harness.rundir import RunDir, read_jsonl
from tests.planted.judged import judge_here
from tests.planted.tiny import History
from tests.planted.tiny_pipelines import committed

WHY_NOT = "not applicable: no worker sees whether its client sends the commits that it confirms"


def unsent(end: int | None) -> History:
    """The commit of 3 is confirmed and not sent; the group ends at ``end``, None = nobody could
    ask."""
    h = History().sent(3).log(0, 1, 2).deliver(0, 1, 2).commit_not_sent(3)
    return h if end is None else committed(h, end, group="group")


@pytest.mark.parametrize(
    ("end", "status"),
    [(-1, Status.VIOLATION), (2, Status.VIOLATION), (3, Status.INFO), (None, Status.SUSPECT)],
    ids=["nothing committed", "behind", "covered", "not read"],
)
def test_the_status_follows_from_the_position_of_the_group(
    tmp_path: Path, end: int | None, status: Status
) -> None:
    result = judge_here(unsent(end).write(tmp_path / "run"))
    found = [(f.status, f.count) for f in result.findings if f.cls == "commit-not-sent"]
    assert found == [(status, 1)]
    assert (result.verdict is Verdict.FAIL) is (status is Status.VIOLATION)
    is_reason = any("commit-not-sent" in reason for reason in result.reasons)
    assert is_reason is (status is not Status.INFO), result.reasons


def test_a_run_whose_workers_cannot_see_it_does_not_claim_that_it_looked(tmp_path: Path) -> None:
    history = History().sent(1).log(0)
    blind = [each.model_copy(update={"watches_commits": False}) for each in history.plan.consumers]
    history.plan = history.plan.model_copy(update={"consumers": blind})
    assert judge_here(history.write(tmp_path / "run")).untested["commit-not-sent"] == WHY_NOT


class Admin:
    """Answers as the brokers do; the group has committed 7 in partition 0 and nothing in partition
    1."""

    def committed_offsets(self, group: str, topics: list[str]) -> dict[str, int]:
        assert topics == ["orders"]
        return {"orders-0": 7, "orders-1": -1}


@pytest.mark.parametrize("watches", [True, False])
def test_groups_are_asked_whose_workers_watch_commits(tmp_path: Path, watches: bool) -> None:
    run = RunDir(tmp_path / "run").create()
    plan = History(partitions=2).plan
    consumers = [each.model_copy(update={"watches_commits": watches}) for each in plan.consumers]
    plan = plan.model_copy(update={"consumers": consumers})
    record_committed(plan, run, Admin(), timeout_s=5)  # type: ignore[arg-type]
    if not watches:
        assert not run.raw_committed_offsets.exists()
        return
    rows = [
        (row["group"], row["stream"], row["position"])
        for row in read_jsonl(run.raw_committed_offsets)
    ]
    assert rows == [("group", "orders-0", 7), ("group", "orders-1", -1)]
