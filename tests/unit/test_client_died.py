"""A run whose client gave itself up: the verdict, what it rests on, and what it is not blamed
on."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.findings import Status, Verdict
from tests.planted.judged import judge_here
from tests.planted.tiny import History


def dead_producer(why: str = "error", **circumstances: object) -> History:
    """Three messages stored; then the client dies, and refuses two."""
    h = History().sent(3).client_died("p-1", why=why)
    for seq in (3, 4):
        h.send(seq, "fail", error="_FATAL: Local: Fatal error")
    h.log(0, 1, 2).deliver(0, 1, 2)
    h.manifest |= circumstances
    return h


def test_a_client_that_gives_itself_up_fails_the_run_with_its_own_words(tmp_path: Path) -> None:
    result = judge_here(dead_producer().write(tmp_path / "run"))
    (finding,) = [f for f in result.findings if f.cls == "client-died"]
    assert (result.verdict, finding.status, finding.count) == (Verdict.FAIL, Status.VIOLATION, 1)
    (witness,) = finding.witnesses
    assert witness.message == "p-1"
    assert "_FATAL: Local: Fatal error" in witness.sentence
    assert result.reasons[0].startswith("1 client-died")


def after_a_power_loss(**lied: list[str]) -> History:
    """The brokers lack messages of the producer, which gives up."""
    details = {"unkept": ["orders-0"], **lied}
    return dead_producer().fault("power-loss", "kafka-1", 0, 5, details=details)


@pytest.mark.parametrize(
    ("history", "status"),
    [
        (dead_producer(readiness_restored=False), Status.SUSPECT),  # the brokers never came back
        (dead_producer(why="fenced"), Status.SUSPECT),
        (dead_producer(why="asked"), Status.PERMITTED),
        (dead_producer(), Status.VIOLATION),
        (after_a_power_loss(), Status.VIOLATION),
        (after_a_power_loss(lied=["orders-0"]), Status.SUSPECT),  # the disks of all replicas
    ],
    ids=["no brokers", "fenced", "asked for", "an error", "power loss", "disks that lied"],
)
def test_what_it_is_depends_on_brokers_and_reason(
    history: History, status: Status, tmp_path: Path
) -> None:
    result = judge_here(history.write(tmp_path / "run"))
    assert [f.status for f in result.findings if f.cls == "client-died"] == [status]
    assert (result.verdict is Verdict.FAIL) is (status is Status.VIOLATION)


def dead_consumer(*, says_so: bool) -> History:
    """A consumer is handed one of two messages, and nothing for 40 s after that."""
    h = History().sent(2).log(0, 1).deliver(0)
    if says_so:
        h.client_died("c-1")
    h.at(40_000).revoke(0)  # as it is closed
    h.manifest["drained"] = False
    return h


def test_a_dead_consumer_is_no_stall_as_well(tmp_path: Path) -> None:
    stalled = judge_here(dead_consumer(says_so=False).write(tmp_path / "stalled"))
    assert "stall" in {f.cls for f in stalled.findings if f.status is Status.VIOLATION}
    dead = judge_here(dead_consumer(says_so=True).write(tmp_path / "dead"))
    assert {f.cls for f in dead.findings if f.status is Status.VIOLATION} == {"client-died"}


@pytest.mark.parametrize(
    ("lasts", "status"),
    [((1_000, 5_000), Status.SUSPECT), ((38_000, 39_000), Status.VIOLATION)],
)
def test_a_group_may_wait_for_a_member_that_a_false_error_made_join_again(
    tmp_path: Path, lasts: tuple[int, int], status: Status
) -> None:
    """The coordinator waits for its old id, until its session ends. An error that came when the
    stall was already too long explains nothing."""
    history = dead_consumer(says_so=False)
    told = {"permits": "rejoin", "false_errors": True}
    history.fault("request-error", "kafka-1", *lasts, details=told)
    result = judge_here(history.write(tmp_path / "run"))
    assert [f.status for f in result.findings if f.cls == "stall"] == [status]


def test_nothing_is_said_of_clients_whose_workers_never_tell(tmp_path: Path) -> None:
    history = History().sent(1).log(0)
    silent = {
        role: [
            client.model_copy(update={"says_died": False}) for client in getattr(history.plan, role)
        ]
        for role in ("producers", "consumers")
    }
    history.plan = history.plan.model_copy(update=silent)
    result = judge_here(history.write(tmp_path / "run"))
    assert (
        result.untested["client-died"]
        == "not applicable: no worker says when its client gives itself up"
    )
