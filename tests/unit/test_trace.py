"""`trace`: the one message asked for, whole and nothing else, and clear words when there is
none."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.report.documents import write_result
from analysis.report.terminal_lookups import print_trace
from analysis.report.trace import Trace, trace
from analysis.report.trace_tables import SealedRow, SealedTables
from harness.errors import UsageError
from harness.records import Check, Event, Kind
from harness.rundir import RunDir
from tests.planted.parts import in_two_parts
from tests.planted.tiny import History
from tests.planted.tiny_pipelines import made, piped
from tests.report_samples import failing
from tests.report_samples.findings import reorder_finding


@pytest.fixture(params=["one part", "two parts"])
def premature(request: pytest.FixtureRequest, tmp_path: Path) -> RunDir:
    """1,[4],2,3,4 on orders-1: message 3 is stored early and again; a kill lies around it.

    Once sealed in one go, once as sealing during the load leaves it.
    """
    h = History(partitions=2, buckets=2)
    h.fault("kill", "kafka-1", at_ms=2, until_ms=900)
    for seq in range(6):
        h.send(seq, partition=1, at_ms=10 + seq, took_ms=2, due_ms=9 + seq)
    h.log(0, 3, 1, 2, 3, 4, 5, partition=1)
    h.deliver(0, 3, 1, 2, 3, partition=1, at_ms=50).commit(4, partition=1, at_ms=60)
    h.sent(3).log(0, 1, 2)
    run = h.write(tmp_path / "run")
    return in_two_parts(run) if request.param == "two parts" else run


def test_an_output_and_its_input_name_each_other(tmp_path: Path) -> None:
    h = made(piped(sessions=0).sent(2).log(0, 1), 0, how="committed", number=1)
    run = made(h, 0, how="aborted", number=2, first=1, outcome="aborted", asked="abort").write(
        tmp_path / "run"
    )
    (stored,) = trace(run, "2/1/0").log
    assert stored.made_of == "orders-0@0 (1/0/0)"
    (stored,) = trace(run, "1/0/0").log
    outputs = [(each.group, each.message, each.place, each.txn) for each in stored.made_into]
    assert outputs == [
        ("billing", "2/1/0", "invoices-0@0", "committed"),
        ("billing", "2/1/1", "invoices-0@2", "aborted"),
    ]
    shown = StringIO()
    print_trace(Console(file=shown, width=110), trace(run, "1/0/0"))
    assert "billing made 2/1/1 of it, stored at invoices-0@2 · aborted" in shown.getvalue()
    assert trace(run, "1/0/1").log[0].made_into == ()


def marks(found: Trace, index: int = 0) -> str:
    return " ".join(n.message.rpartition("/")[2] + n.mark for n in found.log[index].around)


def test_every_place_of_a_message_with_its_neighbours(premature: RunDir) -> None:
    found = trace(premature, "1/1/3")
    assert found.lane == "orders-1"
    assert [stored.place for stored in found.log] == ["orders-1@1", "orders-1@4"]
    assert marks(found, 0) == "0 3! 1 2 3+ 4 5"
    assert marks(found, 1) == "0 3+ 1 2 3! 4 5"


def test_its_send_with_times_into_the_load(premature: RunDir) -> None:
    (send,) = trace(premature, "1/1/3").sends
    assert (send.outcome, send.kind, send.attempt) == ("ok", "load", 0)
    assert send.t_intended_s == pytest.approx(0.012)
    assert send.t_start_s == pytest.approx(0.013)
    assert send.t_done_s == pytest.approx(0.015)


def test_deliveries_and_the_commit_that_covers_each(premature: RunDir) -> None:
    first, second = trace(premature, "1/1/3").deliveries
    assert (first.place, second.place) == ("orders-1@1", "orders-1@4")
    assert first.subscription == "group"
    assert first.t_committed_s == pytest.approx(0.060)
    assert second.t_committed_s is None  # committed 4: position 4 itself is not covered


def test_a_group_that_was_not_given_a_stored_message_is_named(tmp_path: Path) -> None:
    h = History().sent(4).log(0, 1, 2, 3).deliver(0, 1, 3)
    run = h.write(tmp_path / "run")
    (group,) = trace(run, "1/0/2").not_given
    assert (group.group, group.members, group.incomplete) == ("group", ("c-1",), ())
    assert "no delivery to group (c-1) is recorded" in shown(run, "1/0/2")
    assert trace(run, "1/0/1").not_given == ()
    assert "no delivery to" not in shown(run, "1/0/1")


@pytest.mark.parametrize("check", [Check.CORRUPT, Check.FOREIGN, Check.OTHER_RUN])
def test_a_damaged_message_was_given_by_its_place(tmp_path: Path, check: Check) -> None:
    """Who it is cannot be read from it; the log says whose place it came from."""
    h = History(partitions=2, buckets=2).sent(2, partition=1).log(0, 1, partition=1)
    h.deliver(0, 1, partition=1)
    h.rows["deliveries"][-1] |= {"check": check, "instance": 0, "lane": 0, "seq": 0}
    found = trace(h.write(tmp_path / "run"), "1/1/1")
    given = [(each.place, each.check) for each in found.deliveries]
    assert given == [("orders-1@1", check.name.lower().replace("_", " "))]
    assert not found.not_given


def test_a_group_without_its_whole_journal_may_have_been_given_it(tmp_path: Path) -> None:
    h = History().sent(2).log(0, 1).deliver(0)
    h.workers["c-1"] = {"exit_code": -9, "done": False}
    assert "no delivery to group (c-1) is recorded; the journal of c-1 is incomplete" in shown(
        h.write(tmp_path / "run"), "1/0/1"
    )


def test_a_message_that_is_not_stored_was_given_to_nobody(tmp_path: Path) -> None:
    assert (
        trace(History().sent(2).log(0).deliver(0).write(tmp_path / "run"), "1/0/1").not_given == ()
    )


def test_faults_around_it(premature: RunDir) -> None:
    (fault,) = trace(premature, "1/1/3").faults
    assert (fault.kind, fault.target) == ("kill", "kafka-1")
    assert fault.until_s == pytest.approx(0.9)


def test_a_place_names_the_message_there(premature: RunDir) -> None:
    assert trace(premature, "orders-1@4").message == "1/1/3"
    assert trace(premature, " orders-0@2 ").message == "1/0/2"


def test_lost_message_says_how_far_the_log_was_read(tmp_path: Path) -> None:
    h = History().sent(4).log(0, 1, 3)
    found = trace(h.write(tmp_path / "run"), "1/0/2")
    assert found.sends[0].outcome == "ok"
    assert found.log == ()
    assert found.log_text == "not in the log; orders-0: the audit read 0..2, its end"


def test_the_place_where_a_lost_message_was_acknowledged(tmp_path: Path) -> None:
    h = History().sent(3).send(3, position=3).send(4, position=3).log(0, 1, 2, 4)
    (acked,) = trace(h.write(tmp_path / "run"), "1/0/3").acked_places
    assert (acked.place, acked.holder) == ("orders-0@3", "1/0/4")
    assert [n.message + n.mark for n in acked.around] == ["1/0/0", "1/0/1", "1/0/2", "1/0/4!"]


def test_a_place_that_the_log_does_not_have_is_held_by_nobody(tmp_path: Path) -> None:
    run = History().sent(3).send(3, position=4).log(0, 1, 2).write(tmp_path / "run")
    (acked,) = trace(run, "1/0/3").acked_places
    assert (acked.place, acked.holder) == ("orders-0@4", "")
    assert [n.message + n.mark for n in acked.around] == ["1/0/0", "1/0/1", "1/0/2"]


def test_on_pulsar_the_place_is_an_entry_of_a_ledger(tmp_path: Path) -> None:
    h = (
        History(system="pulsar", batch=2)
        .sent(3)
        .send(3, position=3)
        .send(4, position=3)
        .log(0, 1, 2, 4)
    )
    (acked,) = trace(h.write(tmp_path / "run"), "1/0/3").acked_places
    assert (acked.place, acked.holder) == ("orders-0@7:1:1", "1/0/4")


def test_only_a_message_that_is_not_in_the_log_has_places_to_explain(tmp_path: Path) -> None:
    run = History().sent(2).send(2, "fail").log(0, 1).write(tmp_path / "run")
    assert trace(run, "1/0/0").acked_places == trace(run, "1/0/2").acked_places == ()


def test_unread_end_is_not_called_absent(tmp_path: Path) -> None:
    h = History().sent(4).log(0, 1).bounds(end=4, read_to=2, why="stall")
    said = "not in what was read of the log; orders-0: the audit read 0..1 of 4 (stall)"
    assert trace(h.write(tmp_path / "run"), "1/0/3").log_text == said


def test_attempts_of_the_application_are_told_apart(tmp_path: Path) -> None:
    h = (
        History()
        .send(0, "info", error="_TIMED_OUT")
        .send(0, "ok", attempt=1)
        .log(0)
        .log(0, attempt=1)
    )
    run = h.write(tmp_path / "run")
    both = trace(run, "1/0/0")
    assert [(s.attempt, s.outcome, s.error) for s in both.sends] == [
        (0, "info", "_TIMED_OUT"),
        (1, "ok", ""),
    ]
    again = trace(run, "1/0/0.1")
    assert [s.attempt for s in again.sends] == [1]
    assert [s.place for s in again.log] == ["orders-0@1"]
    assert again.message == "1/0/0.1"


def test_open_send_has_no_end(tmp_path: Path) -> None:
    found = trace(History().send(0, "open").write(tmp_path / "run"), "1/0/0")
    assert (found.sends[0].outcome, found.sends[0].t_done_s) == ("info", None)


def test_phantom_has_a_place_and_no_send(tmp_path: Path) -> None:
    found = trace(History().sent(2).log(0, 97, 1).write(tmp_path / "run"), "orders-0@1")
    assert (found.message, found.sends, len(found.log)) == ("1/0/97", (), 1)


def test_probes_beside_it_are_called_so(tmp_path: Path) -> None:
    h = History().send(0).log(0, instance=0, kind=Kind.PROBE).log(0)
    assert marks(trace(h.write(tmp_path / "run"), "1/0/0")) == "probe 0!"


def test_foreign_payload_has_only_its_place(tmp_path: Path) -> None:
    h = History(partitions=3, buckets=3).send(0, partition=2)
    h.log(0, partition=2, check=Check.FOREIGN)
    found = trace(h.write(tmp_path / "run"), "orders-2@0")
    assert found.message == ""
    assert found.log[0].check == "foreign"


def test_keyed_lanes_are_found_where_the_client_put_them(tmp_path: Path) -> None:
    h = History(partitions=2, mode="key", keys=4, buckets=2)
    h.send(0, lane=3, partition=1).log(0, lane=3, partition=1)
    found = trace(h.write(tmp_path / "run"), "1/3/0")
    assert found.lane == "orders/k000003"
    assert found.log[0].place == "orders-1@0"


def test_witness_of_a_judged_run_names_its_class(premature: RunDir) -> None:
    finding = reorder_finding()
    witness = replace(finding.witnesses[0], message="1/1/3")
    write_result(premature, failing(findings=[replace(finding, witnesses=(witness,))]))
    assert trace(premature, "1/1/3").classes == ("premature-then-repeat (violation)",)
    assert trace(premature, "1/1/2").classes == ()


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("banana", "does not name a message"),
        ("1/0", "does not name a message"),
        ("-1/0/0", "does not name a message"),
        ("1/0/0.x", "does not name a message"),
        ("", "does not name a message"),
        ("1/0/99999999999999999999", "larger than any id"),
        ("9/0/0", "producer instance 9 sent nothing to lane 0 (orders-0)"),
        ("1/7/0", "no lane 7: its lanes are 0..1"),
        ("1/1/6", "never sent: 1/1 sent seq 0..5"),
        ("1/1/5.3", "never sent: of 1/1/5 the last attempt was 0"),
        ("payments-0@1", "no stream 'payments-0': it has orders-0 .. orders-1"),
        ("orders-1@7", "no row at 7: the audit read 0..6, its end"),
        ("4294967296/0/0", "instance and lane are below"),
    ],
)
def test_what_is_not_there_is_said_with_an_example(
    premature: RunDir, message: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        trace(premature, message)
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_run_without_sealed_capture_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no sealed capture") as caught:
        trace(RunDir(tmp_path), "1/0/0")
    assert "analyze" in caught.value.hint


def test_a_run_that_is_not_sealed_to_its_end_says_nothing_of_a_message(premature: RunDir) -> None:
    premature.seal_report.unlink()
    with pytest.raises(UsageError, match="no sealed capture"):
        trace(premature, "1/1/3")


def test_the_cause_of_a_loss_reads_every_part_of_the_log(tmp_path: Path) -> None:
    h = History().sent(8).log(0, 1, 2, 3, 5, 6, 7)
    h.led("kafka-1", 0, at_ms=-5_000, first=0).led("kafka-2", 1, at_ms=6, first=4)
    run = h.write(tmp_path / "run")
    whole = trace(run, "1/0/4").cause
    assert "kafka-2" in whole
    assert trace(in_two_parts(run), "1/0/4").cause == whole


def test_a_damaged_file_is_a_clear_error(premature: RunDir) -> None:
    file = premature.bucket_file("sends", 1, 0)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UsageError, match=r"the capture is damaged: sealed/sends/bucket=01"):
        trace(premature, "1/1/3")


def shown(run: RunDir, message: str) -> str:
    out = Console(file=StringIO(), width=110)
    print_trace(out, trace(run, message))
    return out.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_message_that_a_queue_gave_out_is_not_lost_and_has_no_cause(tmp_path: Path) -> None:
    h = History(system="qpid").fault("kill", "qpid-1", 5_000, 9_000)
    h.sent(3).deliver(0, 1, position=-1).ends(Event.COMMIT)
    h.led("qpid-1", 1, at_ms=-5_000).led("qpid-1", 2, at_ms=6_000)
    run = h.write(tmp_path / "run")
    text = shown(run, "1/0/1")
    assert trace(run, "1/0/1").cause == ""
    assert "cause" not in text
    assert "not in the log" not in text
    assert (
        "orders-0: a queue, which keeps no log; no message remained in it after the drain" in text
    )
    commit = next(line for line in text.splitlines() if "commit" in line)
    assert commit.rstrip().endswith("by c-1 of group")
    assert trace(run, "1/0/2").cause.startswith("acknowledged while qpid-1 led, by the time alone")


def test_ends_of_deliveries_are_read_once_however_often_a_message_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = History(system="qpid").sent(1)
    for number in range(20):
        h.deliver(0, position=-1, redelivery=number).ends(
            Event.COMMIT if number == 19 else Event.ROLLBACK_END
        )
    run, reads = h.write(tmp_path / "run"), []
    read = SealedTables.read

    def counted(tables: SealedTables, table: str, *asked: Any) -> list[SealedRow]:
        reads.append(table)
        return read(tables, table, *asked)

    monkeypatch.setattr(SealedTables, "read", counted)
    deliveries = trace(run, "1/0/0").deliveries
    assert len(deliveries) == 20
    assert [each.t_committed_s is not None for each in deliveries] == [*[False] * 19, True]
    assert reads.count("deliveries") == 2


def test_what_was_not_read_is_not_called_lost(tmp_path: Path) -> None:
    h = History().sent(4).log(0, 1).bounds(end=4, read_to=2, why="stall")
    h.led("kafka-1", 0, at_ms=-5_000, first=0).led("kafka-2", 1, at_ms=6_000, first=2)
    assert trace(h.write(tmp_path / "run"), "1/0/3").cause == ""
