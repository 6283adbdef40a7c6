"""A small campaign as `make run` leaves it: what is asked of finished runs needs no broker to be
tested."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from analysis.report.documents import write_result
from analysis.report.html import write_run_page
from experiments.judging import RoundOutcome, outcome_of, summarize
from harness.contracts.plan import Plan
from harness.plan.build import build_plans
from harness.rundir import RunDir, point_latest
from harness.scenario.bundled import bundled_scenarios
from harness.scenario.file import load_scenario
from tests.planted.judged import judge_here
from tests.planted.tiny import History

#: The message that the summary shows: acknowledged where the log holds `HOLDER`.
LOST, HOLDER = "1/2/3", "1/2/5"


CAMPAIGN = "20260101-000000-kafka-quick"


def leave_campaign(runs: Path) -> RunDir:
    """``unsafe-1``, whose log lost two messages, and ``safe-1``; ``runs/latest`` links to their
    folder.

    A process judges the campaign and draws its pages once (2.5 s of CPU time); each caller has a
    copy.
    """
    shutil.copytree(_judged_campaign(), runs, symlinks=True, dirs_exist_ok=True)
    return RunDir(runs / CAMPAIGN)


@cache
def _judged_campaign() -> Path:
    """The folder of runs that is copied; removed when the process ends."""
    runs = Path(tempfile.mkdtemp(prefix="brokerstorm-planted-"))
    atexit.register(shutil.rmtree, runs)
    root = RunDir(runs / CAMPAIGN).create()
    root.scenario.write_text(bundled_scenarios()["kafka-quick"].read_text())
    plans = build_plans(load_scenario("kafka-quick"), seed=7)
    judged = [_judged(root, plan) for plan in plans]
    command = "brokerstorm run kafka-quick --seed 7"
    summarize(root, plans, judged, command=command, about="planted", duration_s=9.0)
    point_latest(root)
    return runs


def _judged(root: RunDir, asked: Plan) -> RoundOutcome:
    history = History(partitions=3, buckets=3, sessions=0)
    same = ("scenario", "variant", "expect", "about", "seed")
    told = {name: getattr(asked, name) for name in same}
    # nine messages are no rate
    history.plan = history.plan.model_copy(update={**told, "rate_ratio": 0.0})
    history.fault("pause", "kafka-1", at_ms=2, until_ms=20)
    lost = (3, 4) if asked.variant == "unsafe" else ()
    stored = [seq for seq in range(9) if seq not in lost]
    for seq in range(9):
        position = seq if seq in lost else stored.index(seq)
        history.send(seq, partition=2, at_ms=10 + seq, position=position)
    run = history.log(*stored, partition=2).write(root.root / f"{asked.variant}-1")
    result = judge_here(run)
    write_result(run, result)
    write_run_page(run, result, up="../report.html")
    return outcome_of(history.plan, run, result, number=1)
