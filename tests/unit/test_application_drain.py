"""When an application has finished its input: what its group has committed, without the probes at
the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.admin.probe import PROBE_KEY, probe_payload
from harness.contracts.rows import Bounds
from harness.errors import EnvironmentNotReady
from harness.progress.view import BaseProgress
from harness.protocols.cluster import StoredMessage
from harness.run import applications
from harness.run.applications import Applications, _Drain
from harness.rundir import RunDir
from tests.planted.tiny_applications import applied


class Brokers:
    """Three messages of a producer in ``orders-0``, then two probes. ``committed``: by the
    group."""

    def __init__(self, committed: dict[str, int]) -> None:
        self.committed = committed
        self.tag = 0
        self.answers = True
        self.held_s = 0.0

    def held_for_s(self, group: str, topics: list[str]) -> float:
        return self.held_s

    def end_offsets(self, topics: list[str]) -> dict[str, int]:
        return {f"{topic}-0": 5 for topic in topics}

    def committed_offsets(self, group: str, topics: list[str]) -> dict[str, int]:
        if not self.answers:
            raise EnvironmentNotReady("no node coordinates the group")
        return self.committed

    def read_messages(
        self, topic: str, take: Callable[[StoredMessage], None], *, timeout_s: float, last: int = 0
    ) -> list[Bounds]:
        for position in range(5):
            probe = position >= 3
            value = probe_payload(self.tag) if probe else b"order"
            take(StoredMessage(0, position, 0, PROBE_KEY if probe else b"", value, ()))
        return [Bounds(end=5, read_to=5, why="end", stream=f"{topic}-0")]


class Source:
    """Outputs that do not grow."""

    def size(self) -> object:
        return 3


def drain(brokers: Brokers) -> _Drain:
    h = applied()
    brokers.tag = h.plan.run_tag
    admin: Any = brokers
    source: Any = Source()
    return _Drain(h.plan, h.plan.applications[0], admin, source)


@pytest.mark.parametrize(
    ("committed", "is_done"),
    [
        ({"orders-0": 3}, True),
        ({"orders-0": 5}, True),
        ({"orders-0": 2}, False),
        ({"orders-0": -1}, False),
    ],
)
def test_probes_at_the_end_need_no_commit(
    monkeypatch: pytest.MonkeyPatch, committed: dict[str, int], is_done: bool
) -> None:
    monkeypatch.setattr(applications, "QUIET_S", 0.0)
    check = drain(Brokers(committed))
    assert check.is_done() is is_done
    if not is_done:
        assert "not committed by group billing" in check.why
        assert check.unchanged_since > 0


def test_what_brokers_do_not_tell_is_not_done() -> None:
    brokers = Brokers({})
    check = drain(brokers)
    assert not check.is_done()
    assert "orders-0" in check.why
    brokers.answers = False
    assert not check.is_done()
    assert check.why == "no node coordinates the group"


def test_outputs_that_grow_are_waited_for() -> None:
    check = drain(Brokers({"orders-0": 3}))
    assert not check.is_done()
    assert check.why == "its outputs still grow"


def test_the_last_input_is_found_before_a_long_transaction_that_was_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers of committed data are not given 100 positions at the end; a program may commit only
    what it was given."""
    monkeypatch.setattr(applications, "QUIET_S", 0.0)
    brokers = Brokers({"orders-0": 7})

    def read_messages(
        topic: str, take: Callable[[StoredMessage], None], *, timeout_s: float, last: int = 0
    ) -> list[Bounds]:
        begin = max(0, 107 - last)
        for position in range(begin, 7):
            take(StoredMessage(0, position, 0, b"", b"order", ()))
        return [Bounds(begin=begin, end=107, read_to=107, why="end", stream=f"{topic}-0")]

    monkeypatch.setattr(brokers, "read_messages", read_messages)
    assert drain(brokers).is_done()
    brokers.committed = {"orders-0": 6}
    assert not drain(brokers).is_done()


def is_noted(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    lives: Sequence[tuple[float, int]] = (),
    held_s: float = 0.0,
    unchanged_s: float = 20.0,
    elsewhere: bool = False,
) -> bool:
    """Whether an application that has committed nothing for so long is a stall (limit: 15 s).

    Args:
        lives: other instances: how long ago each one ended, and its exit code.
    """
    now = 1_000.0
    monkeypatch.setattr(applications.time, "monotonic", lambda: now)
    brokers = Brokers({"orders-0": 2})
    brokers.held_s = held_s
    check = drain(brokers)
    if elsewhere:
        check.application = check.application.model_copy(update={"run": []})
    check.unchanged_since = now - unchanged_s
    own = SimpleNamespace(plan=check.application, is_alive=True, t_end_ns=0, exit_code=None)
    others = [
        SimpleNamespace(plan=check.application, t_end_ns=int((now - ago_s) * 1e9), exit_code=code)
        for ago_s, code in lives
    ]
    all_of = Applications.__new__(Applications)
    members = SimpleNamespace(count=2)
    all_of._plan = applied().plan
    all_of._members = {"billing": members} if elsewhere else {}  # type: ignore[dict-item]
    all_of._all, all_of._now = [own, *others], {"application-billing-1": own}  # type: ignore[list-item, dict-item]
    all_of._run, all_of._progress = RunDir(folder), BaseProgress()
    all_of._note_stall(check)
    return check.was_stalled


@pytest.mark.parametrize(
    ("lives", "noted"), [([], True), ([(45, -9)], False), ([(45, 0)], False), ([(65, -9)], True)]
)
def test_the_session_of_an_instance_that_ended_is_no_stall(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lives: list[tuple[float, int]], noted: bool
) -> None:
    """Brokers wait for it, and give its partitions to no other instance. One that ends in good
    order need not leave its group."""
    assert is_noted(monkeypatch, tmp_path, lives=lives) is noted


@pytest.mark.parametrize(("unchanged_s", "noted"), [(50.0, False), (65.0, True)])
def test_an_instance_of_the_user_may_have_ended_at_any_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unchanged_s: float, noted: bool
) -> None:
    found = is_noted(monkeypatch, tmp_path, elsewhere=True, unchanged_s=unchanged_s)
    assert found is noted


@pytest.mark.parametrize(("unchanged_s", "noted"), [(40.0, False), (50.0, True)])
def test_messages_that_brokers_give_out_again_later_are_no_stall(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unchanged_s: float, noted: bool
) -> None:
    assert is_noted(monkeypatch, tmp_path, held_s=30.0, unchanged_s=unchanged_s) is noted


def test_input_that_is_left_is_explained_by_the_last_instance_that_ended_by_itself() -> None:
    """A program that ends on each start has committed nothing, whatever its group is called."""
    brokers: Any = Brokers({})
    plan = applied().plan
    (application,) = plan.applications
    lives = [
        SimpleNamespace(
            plan=application,
            name=f"application-billing.{life}",
            is_alive=life == 3,
            was_reported=life < 3,
            end_text=lambda: "ended with exit code 1",
            last_lines=lambda: ": UnicodeDecodeError",
        )
        for life in (1, 2, 3)
    ]
    problems: list[str] = []
    all_of: Any = Applications.__new__(Applications)
    all_of._plan, all_of._members, all_of._drained = plan, {}, {}
    all_of.sources = {"billing": Source()}
    all_of._all, all_of._now = lives, {"application-billing": lives[-1]}
    all_of._problem = problems.append
    assert not all_of.drain(brokers, 0.0, lambda: False)
    (text,) = problems
    end = "application-billing.2 ended with exit code 1 by itself: UnicodeDecodeError"
    assert text.endswith(f"1 of {application.instances} instances run; {end}")
