"""A bundle that is opened shows what the run showed; what was cut off accuses nobody and acquits
nobody."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from analysis.findings import Result, Status, Verdict
from analysis.report.documents import write_result
from analysis.report.trace import trace
from experiments.bundle import making
from experiments.bundle.archive import unpack
from experiments.bundle.fitting import choices
from experiments.bundle.making import Made, make_bundle
from harness.errors import UsageError
from harness.rundir import RunDir, read_json
from tests.planted.judged import judge_here
from tests.planted.pairs import Pair
from tests.planted.parts import in_two_parts
from tests.planted.tiny import History
from tests.unit import test_delivery_twins, test_kernels_twins, test_pulsar_twins, test_queue_twins

PAIRS: list[Pair] = [
    *test_kernels_twins.PAIRS,
    *test_delivery_twins.PAIRS,
    *test_pulsar_twins.LOG_PAIRS,
    *test_pulsar_twins.DELIVERY_PAIRS,
    *test_queue_twins.PAIRS,
]
ROOM = 20_000_000


def judged(history: History, root: Path) -> RunDir:
    history.plan = history.plan.model_copy(update={"rate_per_s": 0.0})  # ten messages are no rate
    run = history.write(root)
    write_result(run, judge_here(run))
    return run


def bundled(run: RunDir, folder: Path, most: int = ROOM) -> tuple[Made, RunDir]:
    """The bundle, and the run that it opens to, without the pages that `open` draws."""
    made = make_bundle(run, folder / "made.tar.gz", most, {})
    target = folder / "opened" / run.run_id
    unpack(made.path, target, check=lambda _folder: None)
    return made, RunDir(target)


def said(result: Result) -> dict[str, Any]:
    """All of a result but the time that judging took."""
    document = result.document()
    document["duration_s"].pop("judging")
    return document


def findings(result: Result) -> Any:
    return result.document()["findings"]


@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_class_is_found_in_the_bundle_as_in_the_run(tmp_path: Path, pair: Pair) -> None:
    run = judged(pair.planted(), tmp_path / "run")
    made, opened = bundled(run, tmp_path)
    assert made.left_out == []
    assert said(judge_here(opened)) == said(judge_here(run))


@pytest.mark.long
def test_two_bundles_of_a_run_are_equal_and_so_is_that_of_the_opened_one(tmp_path: Path) -> None:
    run = judged(lossy(), tmp_path / "run")
    made, opened = bundled(run, tmp_path)
    assert f"brokerstorm open {made.path.name}" in (opened.root / "issue.md").read_text()
    (tmp_path / "again").mkdir()
    for each in (run, opened):
        again = make_bundle(each, tmp_path / "again" / made.path.name, ROOM, {})
        assert again.path.read_bytes() == made.path.read_bytes()


def test_the_report_follows_the_first_witness_through_every_part(tmp_path: Path) -> None:
    run = in_two_parts(judged(lost_late(), tmp_path / "run"))
    _, opened = bundled(run, tmp_path)
    issue = (opened.root / "issue.md").read_text()
    assert "The life of 1/0/37:" in issue
    assert "not in the log; orders-0: the audit read 0..38, its end" in issue


def test_the_report_says_why_it_cannot_follow_the_first_witness(tmp_path: Path) -> None:
    run = judged(lost_late(), tmp_path / "run")
    run.bucket_file("sends", 0, 0).write_bytes(b"damaged")
    _, opened = bundled(run, tmp_path)
    issue = (opened.root / "issue.md").read_text()
    assert (
        "The life of 1/0/37 cannot be shown: the capture is damaged: sealed/sends/bucket=00"
        in issue
    )


def lost_late() -> History:
    """Message 37 of 40 is acknowledged and not in the log."""
    history = History(sessions=0).sent(40)
    return history.log(*(seq for seq in range(40) if seq != 37))


# -- cut to size


def lossy(lost_in: tuple[int, ...] = (0,), partitions: int = 4, messages: int = 40) -> History:
    """Message 2 of some partitions is acknowledged and not in the log; each partition has its
    bucket."""
    history = History(partitions=partitions, buckets=partitions, sessions=0)
    for partition in range(partitions):
        history.sent(messages, partition=partition)
        stored = (seq for seq in range(messages) if seq != 2 or partition not in lost_in)
        history.log(*stored, partition=partition)
    return history


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the whole capture did not fit."""
    monkeypatch.setattr(making, "choices", lambda judged: islice(choices(judged), 1, None))


@pytest.mark.long
@pytest.mark.usefixtures("no_room")
def test_a_cut_bundle_keeps_every_finding_and_says_what_it_left_out(tmp_path: Path) -> None:
    run = judged(lossy(), tmp_path / "run")
    made, opened = bundled(run, tmp_path)
    again, before = judge_here(opened), judge_here(run)
    assert findings(again) == findings(before) != []
    assert (again.sends, again.rate, again.timeline) == (before.sends, before.rate, before.timeline)
    assert again.verdict is Verdict.FAIL
    told = [row.text for row in again.coverage if not row.ok]
    assert len(told) == 1
    assert "leaves out 3 of 4 buckets" in told[0]
    assert "judged fail, with acked-lost 1" in told[0]
    assert any("leaves out 3 of 4 buckets" in line for line in made.left_out)
    rows = {row.name: row.text for row in again.coverage}
    assert rows["traffic"].startswith("as judged before: ")


@pytest.mark.long
@pytest.mark.usefixtures("no_room")
def test_a_cut_bundle_of_a_clean_run_is_no_pass(tmp_path: Path) -> None:
    run = judged(lossy(lost_in=()), tmp_path / "run")
    assert judge_here(run).verdict is Verdict.PASS
    _, opened = bundled(run, tmp_path)
    again = judge_here(opened)
    assert (again.verdict, again.findings) == (Verdict.UNKNOWN, [])
    assert "judged pass, with no finding" in again.reasons[0]


@pytest.mark.long
@pytest.mark.usefixtures("no_room")
def test_what_a_bundle_left_out_stays_out_when_it_is_bundled_again(tmp_path: Path) -> None:
    run = judged(lossy(), tmp_path / "run")
    _, opened = bundled(run, tmp_path)
    write_result(opened, judge_here(opened))
    (tmp_path / "2").mkdir()
    _, twice = bundled(opened, tmp_path / "2")
    assert findings(judge_here(twice)) == findings(judge_here(run))
    assert read_json(twice.left_out)["before"]["sends"]["attempted"] == 160


@pytest.mark.usefixtures("no_room")
def test_a_row_that_was_left_out_is_not_a_row_that_is_damaged(tmp_path: Path) -> None:
    run = judged(lossy(), tmp_path / "run")
    _, opened = bundled(run, tmp_path)
    assert trace(opened, "1/0/2").acked_places
    with pytest.raises(UsageError, match="not in the bundle: the bundle leaves out 3 of 4"):
        trace(opened, "1/1/2")


def test_a_file_that_is_gone_from_an_opened_bundle_is_still_damage(tmp_path: Path) -> None:
    _, opened = bundled(judged(lossy(), tmp_path / "run"), tmp_path)
    opened.bucket_file("log", 0, 0).unlink()
    again = judge_here(opened)
    assert again.verdict is Verdict.UNKNOWN
    assert "log/bucket=00/part-0.parquet is missing" in again.reasons[0]


def test_what_is_too_large_is_named_with_a_size_that_takes_it(tmp_path: Path) -> None:
    run = judged(lossy(lost_in=(0, 1, 2, 3)), tmp_path / "run")
    with pytest.raises(
        UsageError, match=r"does not fit into 1\.0 kB: .* \(bucket \d of run alone"
    ) as refused:
        make_bundle(run, tmp_path / "x.tar.gz", 1_000, {})
    assert re.search(r"--max-size \d+MB takes it", refused.value.hint)
    assert not list(tmp_path.glob("*.tar.gz*"))


@pytest.mark.long
@pytest.mark.usefixtures("no_room")
def test_suspects_are_kept_before_what_is_permitted(tmp_path: Path) -> None:
    """A hit without evidence decides the verdict, too: it stays suspect."""
    history = lossy()
    history.bounds(0, end=60, read_to=2, why="stall")
    run = judged(history, tmp_path / "run")
    _, opened = bundled(run, tmp_path)
    again = judge_here(opened)
    assert [f.status for f in again.findings] == [f.status for f in judge_here(run).findings]
    assert Status.SUSPECT in [f.status for f in again.findings]
    assert again.verdict is Verdict.UNKNOWN


@pytest.mark.long
def test_logs_that_do_not_fit_are_cut_to_what_was_found(tmp_path: Path) -> None:
    run = judged(lossy(), tmp_path / "run")
    log = run.cluster / "kafka-1" / "logs" / "stdout.log"
    log.parent.mkdir(parents=True)
    noise = random.Random(7)
    start = datetime.fromisoformat("2026-11-20T11:50:00+00:00")
    lines = [
        f"[{start + timedelta(seconds=n / 2):%Y-%m-%d %H:%M:%S},000] INFO {noise.randbytes(200).hex()}\n"
        for n in range(2_000)  # the load begins at 12:00:00
    ]
    log.write_text("".join(lines))
    made, opened = bundled(run, tmp_path, most=150_000)
    assert made.bytes <= 150_000
    kept = (
        (opened.cluster / "kafka-1" / "logs" / "stdout.log").read_text().splitlines(keepends=True)
    )
    assert lines[1_200] in kept  # at the very second of the first lost message
    assert (kept[0], kept[-1]) == (lines[0], lines[-1])
    assert "lines left out of the bundle ---" in "".join(kept)
    assert any("kafka-1/logs/stdout.log: all but its ends" in text for text in made.left_out)
    assert judge_here(opened).findings == judge_here(run).findings


def test_a_file_that_a_bundle_does_not_take_is_named(tmp_path: Path) -> None:
    run = judged(PAIRS[0].planted(), tmp_path / "run")
    made_elsewhere = [
        "report.html",
        "junit.xml",
        "experiment.json",
        "sealed/.lock",
        "raw/p/sends-p-000000.seg",
    ]
    for name in [
        *made_elsewhere,
        "cluster/qpid-1/derby.log",
        "cluster/qpid-1/conf/passwd",
        "raw/p/heap.hprof",
        "applications/application-billing-1/stdout.log",
    ]:
        (run.root / name).parent.mkdir(parents=True, exist_ok=True)
        (run.root / name).write_text("text\n")
    made, opened = bundled(run, tmp_path)
    assert (opened.root / "cluster/qpid-1/derby.log").read_text() == "text\n"
    assert made.left_out == [
        "applications/application-billing-1/stdout.log: what an application wrote may hold data of its users",
        "cluster/qpid-1/conf/passwd: no bundle may hold a file of this name",
        "raw/p/heap.hprof: no bundle may hold a file of this name",
    ]
