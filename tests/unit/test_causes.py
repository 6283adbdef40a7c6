"""The cause of a loss and of a repeat, from planted captures to the words that people read."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analysis.capture.capture import Capture
from analysis.findings import Cause, Finding, Result, Status
from analysis.report.html import run_page
from analysis.report.terminal import print_result
from analysis.report.trace import trace
from harness.rundir import RunDir
from tests.planted.judged import judge_here
from tests.planted.plans import DURABLE
from tests.planted.tiny import History


def epochs(history: History, *, over_ms: float = 0) -> History:
    """kafka-3 leads orders-0 in epoch 4 up to offset 100; kafka-1 in epoch 5 from then on."""
    history.led("kafka-3", 4, at_ms=-5_000, first=0, over_ms=over_ms)
    return history.led("kafka-1", 5, at_ms=7_900, first=3)


def lossy(at_ms: float = 4_500, history: History | None = None) -> History:
    """Three messages stay, two acknowledged at 3 and 4 are not there, two more take their
    places."""
    h = history or History().fault("pause", "kafka-3", 5_000, 10_000)
    for seq in range(3):
        h.send(seq, position=seq, at_ms=1_000 + seq)
    for seq in (3, 4):
        h.send(seq, position=seq, at_ms=at_ms + seq)
    for seq in (5, 6):
        h.send(seq, position=seq - 2, at_ms=9_000 + seq)
    return h.log(0, 1, 2, 5, 6)


def judged(history: History, root: Path, cls: str = "acked-lost") -> tuple[Result, Finding]:
    result = judge_here(history.write(root / "run"))
    return result, next(finding for finding in result.findings if finding.cls == cls)


def cause_of(history: History, root: Path, cls: str = "acked-lost") -> Cause:
    (cause,) = judged(history, root, cls)[1].causes
    return cause


def test_a_loss_names_the_leader_the_epoch_and_the_fault(tmp_path: Path) -> None:
    _, finding = judged(epochs(lossy()), tmp_path)
    (cause,) = finding.causes
    assert cause.sentence == (
        "acknowledged at 3 to 4 by kafka-3 in epoch 4; epoch 5 began at 3 on kafka-1, "
        "2.9 s after fault #1 (pause kafka-3)"
    )
    assert (cause.count, cause.episodes, finding.caused_episodes, finding.episodes) == (2, 1, 1, 1)
    assert cause.moved_by is not None
    assert (cause.moved_by.fault, cause.moved_by.after_s, cause.moved_by.is_target) == (
        1,
        2.9,
        True,
    )
    assert finding.attribution == ()  # nothing is left to be asked of chance
    assert finding.witnesses[0].cause.startswith(
        "acknowledged at 3 by kafka-3 in epoch 4; epoch 5 began at 3"
    )


#: No broker takes a send for a repeat: the producer does not number its messages.
UNNUMBERED = DURABLE.model_copy(update={"dedup": False})


def test_a_leader_that_was_deposed_is_said_to_be(tmp_path: Path) -> None:
    history = History(promise=UNNUMBERED).fault("pause", "kafka-3", 5_000, 10_000)
    cause = cause_of(epochs(lossy(at_ms=10_100, history=history)), tmp_path)
    assert cause.late
    assert (
        "by kafka-3 in epoch 4, which was no longer leader; epoch 5 had begun at 3 on kafka-1"
        in cause.sentence
    )


def test_a_leader_may_have_taken_a_numbered_send_for_a_repeat(tmp_path: Path) -> None:
    """kafka-1, which leads for two seconds, has messages 5 and 6 of this producer at 3 and 4: a
    client that gives their numbers to 3 and 4 too is answered with these positions, and nothing is
    stored."""
    _, finding = judged(epochs(lossy(at_ms=10_100)), tmp_path)
    (cause,) = finding.causes
    assert not cause.named
    told = "by kafka-3 in epoch 4 or by kafka-1 in epoch 5: the recorded data do not show which"
    assert cause.sentence == f"acknowledged at 3 to 4, {told}"
    assert f"acknowledged at 3, {told}" in finding.witnesses[0].cause
    assert f"acknowledged at 3, {told}" in trace(RunDir(tmp_path / "run"), "1/0/3").cause


def thawed(kept_at_ms: float) -> History:
    """kafka-3 thaws at 10 s and acknowledges at 3 to 6 what it is about to throw away; kafka-1,
    which led by then, keeps 3 and 4, the last of them due at ``kept_at_ms``; epoch 6 begins at
    5."""
    h = (
        History(promise=UNNUMBERED)
        .fault("pause", "kafka-3", 5_000, 10_000)
        .fault("leader-move", "kafka-2", 14_000, 14_500)
    )
    for seq in range(3):
        h.send(seq, position=seq, at_ms=1_000 + seq)
    for seq in range(3, 7):
        h.send(seq, position=seq, at_ms=7_000 + seq, took_ms=3_000)
    h.send(7, position=3, at_ms=kept_at_ms - 1).send(8, position=4, at_ms=kept_at_ms)
    h.send(9, position=5, at_ms=15_000).send(10, position=6, at_ms=15_001)
    return epochs(h.log(0, 1, 2, 7, 8, 9, 10), over_ms=10_200).led(
        "kafka-2", 6, at_ms=14_200, first=5
    )


@pytest.mark.parametrize(
    ("unkept", "synced", "required", "status"),
    [
        (["orders-0"], False, None, Status.PERMITTED),
        (["orders-0"], False, "durable", Status.VIOLATION),
        (["orders-0"], True, None, Status.VIOLATION),
        (["orders-0"], None, None, Status.SUSPECT),
        # a replica in sync of this one kept what it had
        (["orders-1"], False, None, Status.VIOLATION),
    ],
)
def test_what_went_with_the_power_is_held_to_what_is_synced(
    unkept: list[str], synced: bool | None, required: str | None, status: Status, tmp_path: Path
) -> None:
    because = {"delivery": "acks=all", "synced": "Kafka says so"}
    made = {"synced": synced, "because": because, "required": {"delivery": required}}
    history = History(promise=DURABLE.model_copy(update=made))
    history.fault("power-loss", "kafka-3", 5_000, 10_000, details={"unkept": unkept})
    _, finding = judged(epochs(lossy(history=history)), tmp_path)
    assert (finding.status, finding.count) == (status, 2)
    assert finding.split == ({"power": 2} if unkept == ["orders-0"] else {"middle": 2})
    if status is Status.PERMITTED:
        assert finding.promise == "not promised; synced: Kafka says so"


@pytest.mark.parametrize(
    ("lied", "status"), [(["orders-0"], Status.SUSPECT), (["orders-1"], Status.VIOLATION)]
)
def test_no_broker_answers_for_what_the_disks_of_all_replicas_only_said_to_have_synced(
    lied: list[str], status: Status, tmp_path: Path
) -> None:
    made = {"synced": True, "because": {"delivery": "acks=all", "synced": "flushed"}}
    history = History(promise=DURABLE.model_copy(update={**made, "required": {}}))
    details = {"unkept": ["orders-0"], "lied": lied}
    history.fault("power-loss", "kafka-3", 5_000, 10_000, details=details)
    _, finding = judged(epochs(lossy(history=history)), tmp_path)
    assert (finding.status, finding.count, finding.split) == (status, 2, {"power": 2})


@pytest.mark.parametrize("is_led", [True, False])
@pytest.mark.parametrize(
    ("lied", "other", "status"),
    [
        ((5_000, 10_000), (12_500, 14_000), Status.SUSPECT),
        ((12_500, 14_000), (5_000, 10_000), Status.VIOLATION),  # all was gone by then
        ((100, 900), (5_000, 10_000), Status.VIOLATION),  # nothing was sent by then
    ],
)
def test_a_lie_excuses_what_one_loss_of_power_took_and_not_what_another_did(
    lied: tuple[int, int], other: tuple[int, int], status: Status, is_led: bool, tmp_path: Path
) -> None:
    made = {"synced": True, "because": {"delivery": "acks=all", "synced": "flushed"}}
    history = History(promise=DURABLE.model_copy(update={**made, "required": {}}))
    details = {"unkept": ["orders-0"]}
    history.fault("power-loss", "kafka-3", *lied, details={**details, "lied": ["orders-0"]})
    history.fault("power-loss", "kafka-2", *other, details=details)
    for seq in range(5):
        history.send(seq, position=seq, at_ms=1_000 + seq)
    for seq in (5, 6):
        history.send(seq, position=seq - 2, at_ms=12_000 + seq)
    history.log(0, 1, 2, 5, 6)
    _, finding = judged(epochs(history) if is_led else history, tmp_path)
    assert (finding.status, finding.count, finding.split) == (status, 2, {"power": 2})


@pytest.mark.parametrize("is_lied", [True, False])
def test_a_lie_excuses_what_was_given_out_by_the_loss_of_power_that_took_it(
    is_lied: bool, tmp_path: Path
) -> None:
    """The other one is over before the messages are sent."""
    made = {"synced": True, "because": {"delivery": "acks=all", "synced": "flushed"}}
    history = History(promise=DURABLE.model_copy(update={**made, "required": {}}))
    kept: dict[str, list[str]] = {"unkept": ["orders-0"]}
    first, second = kept, {**kept, "lied": ["orders-0"]}
    if not is_lied:
        first, second = second, first
    history.fault("power-loss", "kafka-3", 100, 900, details=first)
    history.fault("power-loss", "kafka-3", 5_000, 15_000, details=second)
    for seq in range(3):
        history.send(seq, position=seq, at_ms=1_000 + seq)
    history.send(3, "info", at_ms=4_500)
    for seq in (4, 5):
        history.send(seq, position=seq - 1, at_ms=9_000 + seq)
    history.log(0, 1, 2, 4, 5).deliver(0, 1, 2, at_ms=4_000).deliver(3, position=3, at_ms=4_600)
    _, finding = judged(epochs(history), tmp_path, "delivered-then-lost")
    status = Status.SUSPECT if is_lied else Status.VIOLATION
    assert (finding.status, finding.count) == (status, 1)


@pytest.mark.parametrize(("from_s", "status"), [(5, Status.PERMITTED), (12, Status.VIOLATION)])
def test_what_was_given_out_and_went_with_the_power_is_held_to_the_same(
    from_s: int, status: Status, tmp_path: Path
) -> None:
    """Never acknowledged, as its leader died first, but read by a consumer before."""
    history = History(promise=DURABLE.model_copy(update={"synced": False, "required": {}}))
    history.fault("power-loss", "kafka-3", from_s * 1000, 15_000, details={"unkept": ["orders-0"]})
    for seq in range(3):
        history.send(seq, position=seq, at_ms=1_000 + seq)
    history.send(3, "info", at_ms=4_500)
    for seq in (4, 5):
        history.send(seq, position=seq - 1, at_ms=9_000 + seq)
    history.log(0, 1, 2, 4, 5).deliver(0, 1, 2, at_ms=4_000).deliver(3, position=3, at_ms=4_600)
    _, finding = judged(epochs(history), tmp_path, "delivered-then-lost")
    assert (finding.status, finding.count) == (status, 1)


def test_what_a_fault_removed_on_purpose_is_not_lost(tmp_path: Path) -> None:
    """Two of the messages that are gone lay before the cut; the third, behind it, is lost."""
    history = History().fault(
        "truncate", "orders-0", 5_000, 5_001, details={"cut": {"orders-0": 2}}
    )
    for seq in range(4):
        history.send(seq, position=seq)
    history.log(3, position=3).bounds(begin=2, end=4, read_to=4)
    result = judge_here(epochs(history).write(tmp_path / "run"))
    lost = [finding for finding in result.findings if finding.cls == "acked-lost"]
    assert {(f.status, f.count, tuple(f.split), len(f.causes)) for f in lost} == {
        (Status.PERMITTED, 2, ("removed",), 0),  # no leader change is looked for, of millions
        (Status.VIOLATION, 1, ("prefix",), 1),
    }


def test_what_a_fault_removed_before_it_was_given_to_anybody_is_not_missed(tmp_path: Path) -> None:
    """Of a log that was read while it grew the audit has it, and the consumer could not get it."""
    history = History().fault(
        "truncate", "orders-0", 5_000, 5_001, details={"cut": {"orders-0": 2}}
    )
    for seq in range(4):
        history.send(seq, position=seq)
    history.log(0, 1, 2, 3).deliver(0, 3)
    result = judge_here(history.write(tmp_path / "run"))
    missed = [
        (f.count, f.witnesses[0].message) for f in result.findings if f.cls == "not-dispatched"
    ]
    assert missed == [(1, "1/0/2")]


def remade() -> History:
    """Its topic is deleted at 5 s and made again at 6 s."""
    return History().fault("recreate-topic", "orders", 5_000, 6_000, details={"remade": ["orders"]})


def test_what_was_acknowledged_before_a_topic_was_made_again_is_not_expected_in_it(
    tmp_path: Path,
) -> None:
    """0 was in the first one; of 1 nobody knows in which it was acknowledged; 2 and 3 are of the
    second."""
    history = (
        remade().send(0, position=7, at_ms=4_000).send(1, position=8, at_ms=5_500, took_ms=700)
    )
    history.send(2, position=0, at_ms=7_000).send(3, position=1, at_ms=7_001).log(3, position=1)
    result = judge_here(history.write(tmp_path / "run"))
    lost = [finding for finding in result.findings if finding.cls == "acked-lost"]
    assert {(f.status, f.witnesses[0].message, tuple(f.split)) for f in lost} == {
        (Status.PERMITTED, "1/0/0", ("removed",)),
        (Status.SUSPECT, "1/0/1", ("prefix",)),
        (Status.VIOLATION, "1/0/2", ("prefix",)),
    }


@pytest.mark.parametrize(
    ("epoch_at", "kept_at_ms", "status"),
    [
        (None, 6_500, Status.PERMITTED),
        # the second topic may have come to 8 when 1 was acknowledged
        (None, 6_100, Status.SUSPECT),
        (5, 6_500, Status.SUSPECT),  # and a change of its leader may have cut 1 off
    ],
)
def test_an_acknowledgement_above_what_the_topic_made_again_had_is_of_the_first(
    epoch_at: int | None, kept_at_ms: int, status: Status, tmp_path: Path
) -> None:
    history = remade().led("kafka-1", 0, at_ms=6_000, first=0)
    if epoch_at is not None:
        history.led("kafka-2", 1, at_ms=6_300, first=epoch_at)
    history.send(1, position=8, at_ms=5_500, took_ms=700)
    history.send(2, position=8, at_ms=kept_at_ms).log(2, position=8)
    _, finding = judged(history, tmp_path)
    assert (finding.status, finding.count) == (status, 1)


def test_positions_that_begin_again_with_their_topic_are_no_return(tmp_path: Path) -> None:
    """The second topic has other messages at the places of the first: nothing is wrong with
    either."""
    history = remade()
    for seq in range(4):
        history.send(seq, position=seq % 2, at_ms=4_000 if seq < 2 else 7_000)
    history.log(2, 3).deliver(0, position=0, at_ms=4_100).deliver(1, position=1, at_ms=4_101)
    history.commit(2, at_ms=4_200).deliver(2, position=0, at_ms=7_100).deliver(
        3, position=1, at_ms=7_101
    )
    result = judge_here(history.write(tmp_path / "run"))
    assert [(f.cls, f.status, f.count) for f in result.findings] == [
        ("acked-lost", Status.PERMITTED, 2)
    ]


@pytest.mark.parametrize(("given_out", "status"), [(1, Status.SUSPECT), (0, Status.VIOLATION)])
def test_where_a_group_goes_on_in_a_topic_that_was_made_again_nobody_promises(
    given_out: int, status: Status, tmp_path: Path
) -> None:
    history = remade()
    for seq in range(3):
        history.send(seq, position=seq, at_ms=7_000 + seq)
    history.log(0, 1, 2).deliver(given_out, at_ms=7_100).deliver(2, at_ms=7_101)
    _, finding = judged(history, tmp_path, "not-dispatched")
    assert (finding.status, finding.count) == (status, 1)


def test_the_power_takes_nothing_that_an_earlier_change_cut_off(tmp_path: Path) -> None:
    history = History(promise=DURABLE.model_copy(update={"synced": False, "required": {}}))
    history.fault("power-loss", "kafka-3", 12_000, 14_000, details={"unkept": ["orders-0"]})
    assert judged(epochs(lossy(history=history)), tmp_path)[1].status is Status.VIOLATION


def test_positions_of_ledgers_do_not_tell_what_the_power_took(tmp_path: Path) -> None:
    """They begin again with each: a higher one may be of an earlier ledger."""
    promise = DURABLE.model_copy(update={"synced": False, "required": {}})
    history = History(promise=promise, system="pulsar")
    history.fault("power-loss", "bookie-1", 5_000, 10_000, details={"unkept": ["orders-0"]})
    for seq in range(4):
        history.send(seq, position=seq, at_ms=1_000 + seq)
    history.log(0, 1, 2)
    _, finding = judged(history, tmp_path)
    assert (finding.status, finding.split) == (Status.VIOLATION, {"tail": 1})


@pytest.mark.parametrize(
    ("lost", "status"),
    [((3, 4), Status.PERMITTED), ((1,), Status.VIOLATION), ((0, 1, 2, 3, 4), Status.PERMITTED)],
)
def test_where_nobody_tells_where_a_leader_began_the_log_tells_what_the_power_took(
    lost: tuple[int, ...], status: Status, tmp_path: Path
) -> None:
    history = History(promise=DURABLE.model_copy(update={"synced": False, "required": {}}))
    history.fault("power-loss", "kafka-3", 5_000, 10_000, details={"unkept": ["orders-0"]})
    for seq in range(5):
        history.send(seq, position=seq, at_ms=1_000 + seq)
    for seq in range(5):
        if seq not in lost:
            history.log(seq, position=seq)
    end = 5 if lost == (1,) else min(lost)
    for seq in (5, 6):
        history.send(seq, position=end + seq - 5, at_ms=12_000 + seq).log(
            seq, position=end + seq - 5
        )
    _, finding = judged(history, tmp_path)
    assert (finding.status, finding.count) == (status, len(lost))


def test_a_later_change_is_no_cause_of_what_its_deposed_leader_had_not_come_to(
    tmp_path: Path,
) -> None:
    _, finding = judged(thawed(kept_at_ms=13_900), tmp_path)
    (cause,) = finding.causes
    assert cause.sentence == (
        "acknowledged at 3 to 6 by kafka-3 in epoch 4, which was no longer leader; "
        "epoch 5 had begun at 3 on kafka-1, 2.9 s after fault #1 (pause kafka-3)"
    )
    assert (cause.count, cause.acked_s) == (4, (10.003, 10.006))
    assert [(row.fault, row.count) for row in finding.by_fault] == [(1, 4)]
    assert trace(RunDir(tmp_path / "run"), "1/0/6").cause == cause.sentence.replace("3 to 6", "6")


def test_what_two_leaders_may_have_acknowledged_has_no_named_cause(tmp_path: Path) -> None:
    _, finding = judged(thawed(kept_at_ms=10_000), tmp_path)
    named, unnamed = finding.causes
    assert (named.named, named.count, unnamed.named, unnamed.count) == (True, 2, False, 2)
    assert unnamed.sentence == (
        "acknowledged at 5 to 6, by kafka-3 in epoch 4 or by kafka-1 in epoch 5: the recorded data "
        "do not show which"
    )
    assert (finding.caused_episodes, finding.episodes) == (0, 1)
    assert [(row.fault, row.count, row.episodes) for row in finding.by_fault] == [(1, 4, 1)]


def test_messages_are_counted_beside_the_fault_that_their_cause_names(tmp_path: Path) -> None:
    """Acknowledged within 2 s of a kill that is over, lost by the leader change after a later
    pause."""
    h = epochs(lossy(at_ms=4_200)).fault("kill", "kafka-2", 2_000, 4_000)
    _, finding = judged(h, tmp_path)
    assert [(row.fault, row.count) for row in finding.by_fault] == [(1, 2)]


def test_a_fault_that_hit_another_node_is_near_in_time_alone(tmp_path: Path) -> None:
    h = epochs(lossy())
    for row in h.faults:
        row.update({"targets": ["kafka-2"]} if row["event"] == "inject" else {})
    assert cause_of(h, tmp_path).sentence.endswith(
        "2.9 s after fault #1 (pause kafka-2) (by the time alone)"
    )


def test_a_change_in_no_fault_s_window_says_so(tmp_path: Path) -> None:
    h = epochs(lossy())
    h.faults.clear()
    assert cause_of(h, tmp_path).sentence.endswith(
        "epoch 5 began at 3 on kafka-1, in no fault's window"
    )


def test_without_who_led_nothing_is_said_and_chance_is_asked(tmp_path: Path) -> None:
    _, finding = judged(lossy(), tmp_path)
    assert (finding.causes, finding.caused_episodes, finding.witnesses[0].cause) == ((), 0, "")
    assert [row.kind for row in finding.attribution] == ["pause"]


def no_offset() -> History:
    h = epochs(lossy())
    for row in h.rows["sends"][3:5]:
        row["position"] = -1
    return h


def before_the_cut() -> History:
    h = epochs(lossy())
    h.leaderships[1]["first"] = 5
    return h


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (no_offset, "the acknowledgement named no place"),
        (before_the_cut, "no later epoch of orders-0 begins at or before 3 to 4"),
    ],
)
def test_what_is_no_leader_change_has_no_name(history: object, said: str, tmp_path: Path) -> None:
    _, finding = judged(history(), tmp_path)  # type: ignore[operator]
    (cause,) = finding.causes
    assert (cause.named, cause.sentence, finding.caused_episodes) == (False, said, 0)
    assert finding.attribution


def test_a_repeat_across_a_leader_change_names_both(tmp_path: Path) -> None:
    h = epochs(History().fault("kill", "kafka-3", 5_000, 10_000))
    for seq in range(4):
        h.send(seq, at_ms=4_000 + seq)
    h.log(0, 1, 2, 2, 3)
    cause = cause_of(h, tmp_path, "write-duplicate")
    assert cause.sentence == (
        "stored at 2 by kafka-3 in epoch 4 and again at 3 by kafka-1 in epoch 5, which began at 3, "
        "2.9 s after fault #1 (kill kafka-3)"
    )


def test_a_repeat_by_one_leader_is_told_and_no_cause(tmp_path: Path) -> None:
    h = epochs(History())
    for seq in range(3):
        h.send(seq, at_ms=4_000 + seq)
    cause = cause_of(h.log(0, 1, 1, 2), tmp_path, "write-duplicate")
    assert (cause.named, cause.sentence) == (
        False,
        "both copies were written by kafka-3 in epoch 4: no leader change lies between",
    )


def test_an_entry_beyond_its_closed_ledger_names_the_owner(tmp_path: Path) -> None:
    h = History(system="pulsar").fault("kill", "broker-1", 5_000, 9_000)
    for seq in range(3):
        h.send(seq, position=seq, at_ms=4_000 + seq)
    h.log(0, 1).led("broker-1", 7, at_ms=-5_000, entries=2).led("broker-2", 9, at_ms=5_300)
    assert cause_of(h, tmp_path).sentence == (
        "acknowledged at 7:2 by broker-1 in ledger 7; ledger 9 began after 2 entries of ledger 7 "
        "on broker-2, 0.3 s after fault #1 (kill broker-1)"
    )


def test_a_queue_has_nothing_but_the_time(tmp_path: Path) -> None:
    h = History(system="qpid").fault("kill", "qpid-1", 5_000, 9_000)
    for seq in range(3):
        h.send(seq, at_ms=4_000 + seq)
    h.deliver(0, 1, position=-1).led("qpid-1", 1, at_ms=-5_000).led(
        "qpid-2", 2, at_ms=6_000, late_ns=10**9
    )
    cause = cause_of(h, tmp_path)
    assert (cause.by_time, cause.term) == (True, None)
    assert cause.sentence == (
        "acknowledged while qpid-1 led, by the time alone; qpid-2 led from 6.0 s (seen up to 1.0 s "
        "late), 1.0 s after fault #1 (kill qpid-1)"
    )


@pytest.mark.long
def test_trace_terminal_and_report_say_it(tmp_path: Path) -> None:
    run = epochs(lossy()).write(tmp_path / "run")
    result, out = judge_here(run), Console(file=StringIO(), width=100)
    said = (
        "acknowledged at 3 by kafka-3 in epoch 4; epoch 5 began at 3 on kafka-1, "
        "2.9 s after fault #1 (pause kafka-3)"
    )
    assert trace(run, "1/0/3").cause == said
    assert trace(run, "1/0/2").cause == ""
    print_result(out, result)
    shown = " ".join(out.file.getvalue().split())  # type: ignore[attr-defined]
    assert "cause: the leader change is known for 1 of 1 episode" in shown
    assert "2 messages by 1 leader change after fault #1 (pause kafka-3)" in shown
    page = " ".join(run_page(result).split())
    assert said in page
    assert "All leader changes" in page


def test_a_changed_record_of_who_led_proves_nothing(tmp_path: Path) -> None:
    run = epochs(lossy()).write(tmp_path / "run")
    run.leaderships.write_text(run.leaderships.read_text().replace("kafka-3", "kafka-2"))
    assert Capture.find(run).changed_documents(run) == [
        "sealed/leaderships.jsonl is not the file that was sealed"
    ]
