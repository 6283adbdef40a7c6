"""`repro --all`: the order of the bugs, the budget, and the exit code of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.context import CommandContext
from experiments.repro import zoo
from experiments.repro.request import ReproRequest
from harness.errors import Exit
from harness.run.interrupts import Interrupts
from harness.scenario.bundled import bundled_bugs


def shown(run_dir: Path, run_id: str, bug: str, exit_code: int) -> None:
    folder = run_dir / run_id
    folder.mkdir(parents=True)
    (folder / "campaign.json").write_text(
        json.dumps({"bug": bug, "exit_code": exit_code, "runs": []})
    )


def look(bug: str, code: int) -> zoo.QuickLook:
    return zoo.QuickLook(bug=bug, seconds=1.0, exit_code=code)


def test_the_bug_that_was_shown_longest_ago_comes_first(tmp_path: Path) -> None:
    first, second, *_ = before = zoo.by_age(tmp_path)
    assert sorted(before) == sorted(bundled_bugs())
    shown(tmp_path, "20990101-000000-a", first, Exit.PASS)
    shown(tmp_path, "20990101-000001-b", second, Exit.FAIL)  # it did not show
    shown(tmp_path, "named-by-somebody", second, Exit.PASS)
    assert zoo.by_age(tmp_path) == [*before[1:], first]


def test_no_look_begins_when_the_budget_is_used_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[ReproRequest] = []
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(zoo.time, "monotonic", lambda: next(clock))

    def looked(context: CommandContext, request: ReproRequest, *_: Any) -> zoo.QuickLook:
        asked.append(request)
        return look(request.bug, 0)

    monkeypatch.setattr(zoo, "_look", looked)
    context = CommandContext(run_dir=tmp_path, interrupts=Interrupts(), repeat=lambda *_: "")
    told: list[zoo.QuickLook] = []
    looks: list[zoo.QuickLook] = []
    left = zoo.look_at_all(context, request(), 25, lambda *_: None, looks, told.append)
    assert [one.bug for one in looks] == [one.bug for one in told] == zoo.by_age(tmp_path)[:2]
    assert left == zoo.by_age(tmp_path)[2:]
    assert all(one.quick for one in asked)


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([1, 4], 4), ([], Exit.UNKNOWN)]
)
def test_the_most_urgent_exit_code_is_that_of_all(codes: list[int], code: int) -> None:
    assert zoo.exit_code_of([look("a", one) for one in codes]) == code


def request() -> ReproRequest:
    return ReproRequest(
        bug="",
        pair="",
        rounds=None,
        quick=False,
        seed=None,
        overrides=(),
        client_jars=None,
        keep_up=False,
        offline=False,
        runtime="process",
        master=None,
    )
