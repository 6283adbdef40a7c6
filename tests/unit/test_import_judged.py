"""Tables of another tool: judged as a recorded run is, and never better than what was stated with
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.findings import Result, Status, Verdict
from analysis.report.charts import charts
from analysis.report.result_words import latency_line
from analysis.report.trace import trace
from harness.contracts.plan import Plan
from harness.errors import UsageError
from harness.importing.capture import import_run
from harness.importing.source import ImportSource
from harness.records import SEALED, Event, Txn
from harness.rundir import RunDir, read_json
from tests.planted.foreign import COLUMNS, KNOWN, description, rows_of, write_import
from tests.planted.judged import judge_here
from tests.planted.pairs import Pair
from tests.planted.streams import STREAMS, PlantedStream
from tests.planted.tiny import History
from tests.unit.test_kernels_twins import PAIRS

Judged = Callable[..., Result]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """Judges a history (or rows of it) as an import; ``said`` changes import.yaml."""

    def judge_it(
        history: History, *, rows: Any = None, kind: str = "csv", buckets: int = 4, **said: Any
    ) -> Result:
        source = write_import(
            tmp_path / "in", rows or rows_of(history), description(history, **said), kind
        )
        return judge_here(
            import_run(ImportSource.open(str(source)), tmp_path / "runs", buckets=buckets)
        )

    return judge_it


def latest(tmp_path: Path) -> RunDir:
    return RunDir((tmp_path / "runs" / "latest").resolve())


def found(result: Result) -> dict[str, tuple[Status, int]]:
    return {f.cls: (f.status, f.count) for f in result.findings if f.status is not Status.INFO}


CASES = [(stream, "csv") for stream in STREAMS]
CASES += [(stream, kind) for stream in STREAMS[:1] for kind in ("jsonl.gz", "parquet")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("planted", "kind"), CASES, ids=[f"{planted.name}-{kind}" for planted, kind in CASES]
)
def test_an_import_is_judged_as_a_recorded_run(
    judged: Judged, planted: PlantedStream, kind: str
) -> None:
    result = judged(planted.history(), kind=kind)
    expected = {planted.cls: (Status.VIOLATION, len(planted.seqs))} if planted.cls else {}
    assert found(result) == expected
    assert result.verdict is (Verdict.FAIL if planted.cls else Verdict.PASS), result.reasons


def clean(count: int = 10) -> History:
    return History().sent(count).log(*range(count)).assign(0).deliver(*range(count)).commit(count)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("all_sends", "import.yaml does not say evidence.all_sends"),
        ("producers_ended", "import.yaml does not say evidence.producers_ended"),
        ("cluster_recovered", "import.yaml does not say evidence.cluster_recovered"),
        ("all_deliveries", "import.yaml does not say evidence.all_deliveries"),
        ("drained", "import.yaml does not say evidence.drained"),
    ],
)
def test_what_is_not_stated_makes_no_pass(judged: Judged, statement: str, reason: str) -> None:
    evidence = {name: True for name in KNOWN["evidence"] if name != statement}
    result = judged(clean(), evidence=evidence)
    assert (result.verdict, result.reasons) == (Verdict.UNKNOWN, [reason])


def test_nothing_is_claimed_that_nobody_stated(judged: Judged) -> None:
    result = judged(clean(), evidence=None, producers=None)
    assert result.verdict is Verdict.UNKNOWN
    assert "generator" not in {check.name for check in result.coverage}, (
        "nobody watched the generator"
    )
    assert {
        "acked-lost",
        "not-dispatched",
        "phantom",
        "hang",
        "stall",
        "corrupt",
    } <= result.untested.keys()
    assert result.untested["hang"] == "not known: import.yaml does not say producers.deadline"
    assert result.untested["corrupt"] == "not known: no table has a column check"


def test_without_settings_a_loss_is_suspect(judged: Judged) -> None:
    history = next(s for s in STREAMS if s.name == "acked-loss-last-two").history()
    assert found(judged(history, producers=None)) == {"acked-lost": (Status.SUSPECT, 2)}


def test_without_bounds_the_tail_is_not_read(judged: Judged) -> None:
    history = next(s for s in STREAMS if s.name == "acked-loss-last-two").history()
    rows = rows_of(history) | {"log_bounds": []}
    result = judged(history, rows=rows)
    assert found(result) == {}
    assert result.verdict is Verdict.UNKNOWN
    assert (
        "no audit: none of 1 streams was read to its end; 2 acknowledged messages not read"
        in result.reasons
    )


def test_a_phantom_may_be_of_another_writer(judged: Judged) -> None:
    history = next(s for s in STREAMS if s.name == "phantom").history()
    evidence = KNOWN["evidence"] | {"only_writer": False}
    assert found(judged(history, evidence=evidence)) == {"phantom": (Status.SUSPECT, 1)}


def test_groups_are_judged_apart(judged: Judged) -> None:
    """Group B was given three messages less than group A."""
    history = clean()
    rows = rows_of(history)
    own = [row for row in rows["deliveries"] if row["event"] != "deliver" or row["seq"] < 7]
    rows["deliveries"] += [
        row | {"session": 2, "subscription": "b", "ordinal": i} for i, row in enumerate(own)
    ]
    groups = {name: {"topics": ["orders"], "from_start": True} for name in ("group", "b")}
    assert found(judged(history, rows=rows, groups=groups)) == {
        "not-dispatched": (Status.VIOLATION, 3)
    }


def test_a_group_that_may_have_begun_late_has_missed_nothing(judged: Judged) -> None:
    history = History().sent(6).log(*range(6)).assign(0).deliver(4, 5).commit(6)
    late = judged(history, groups={"group": {"topics": ["orders"]}})
    assert found(late) == {"not-dispatched": (Status.SUSPECT, 4)}


def test_topics_keep_the_order_of_import_yaml(judged: Judged) -> None:
    """Lanes are partitions, of topics that are not in the order of the alphabet."""
    history = clean()
    rows: Any = {name: [] for name in ("sends", "log", "log_bounds")}
    for number, topic in enumerate(("zoo", "ant")):
        for table in rows:
            rows[table] += [
                row | {"stream": f"{topic}-0"} | ({"lane": number} if "lane" in row else {})
                for row in rows_of(history)[table]
            ]
    lanes = [
        {"topic": "zoo", "mode": "partition", "first": 0},
        {"topic": "ant", "mode": "partition", "first": 1},
    ]
    result = judged(history, rows=rows, topics={"zoo": 1, "ant": 1}, lanes=lanes, groups=None)
    assert (result.verdict, found(result)) == (Verdict.PASS, {})


def test_an_event_without_a_stream_is_seen_with_every_stream(
    judged: Judged, tmp_path: Path
) -> None:
    """A commit of a JMS session settles what it took from all of its queues."""
    history = History(system="qpid", partitions=3, settle="transacted")
    for partition in range(3):
        history.sent(4, partition=partition).deliver(*range(4), partition=partition)
    history.ends(Event.COMMIT_CALLED, Event.COMMIT)
    rows = rows_of(history)
    rows["log"] = []
    for row in rows["deliveries"]:
        row["stream"] = row["stream"] if row["event"] == "deliver" else None
    source = tmp_path / "in"
    source.mkdir()
    (source / "log.csv").write_text(",".join(COLUMNS["log"]) + "\n")
    groups = {"group": {"topics": ["orders"], "settle": "transacted"}}
    result = judged(history, rows=rows, system="qpid", groups=groups)
    assert Plan.model_validate(read_json(latest(tmp_path).plan)).buckets == 3
    assert "lost-after-rollback" not in found(result)
    assert result.verdict is Verdict.PASS, result.reasons


def test_partitions_go_to_buckets_of_their_own(judged: Judged, tmp_path: Path) -> None:
    history = History(partitions=5)
    for partition in range(5):
        history.sent(20, partition=partition).log(*range(20), partition=partition)
        history.deliver(*range(20), partition=partition)
    result = judged(history, buckets=4)
    assert len(list((latest(tmp_path).sealed / "log").glob("bucket=*"))) == 4
    assert (result.verdict, result.reasons) == (Verdict.PASS, [])
    assert result.rows["sends"] == 100


def test_a_repeat_after_an_unseen_rebalance_is_only_suspected(judged: Judged) -> None:
    """Neither epochs nor assign events: nobody can tell whether the partition changed hands."""
    history = History().sent(4).log(*range(4)).deliver(0, 1).deliver(0, 1, 2, 3)
    rows = rows_of(history)
    own = [row for row in rows["deliveries"] if row["event"] == "deliver"]
    rows["deliveries"] = [row | {"ordinal": i} for i, row in enumerate(own)]
    assert found(judged(history, rows=rows))["delivery-duplicate"] == (Status.SUSPECT, 2)


@pytest.mark.parametrize(
    ("deadline", "expected"), [("1s", {"hang": (Status.VIOLATION, 1)}), (None, {})]
)
def test_an_open_send_hangs_past_a_stated_deadline_only(
    judged: Judged, deadline: str | None, expected: Mapping[str, Any]
) -> None:
    history = History().send(0, "open", at_ms=0).send(1, at_ms=5_000).log(1)
    producers = {"acks": "all", "idempotence": True} | ({"deadline": deadline} if deadline else {})
    rows = rows_of(history) | {"deliveries": []}
    assert found(judged(history, rows=rows, producers=producers, groups=None)) == expected


def test_who_held_a_message_is_not_known_without_rows_of_acknowledgements(judged: Judged) -> None:
    """One key, given to two consumers in turn: nobody wrote down whether the first had dealt with
    it."""
    history = History(system="pulsar", mode="key", keys=1, sessions=2, partitions=1)
    history.sent(3, lane=0).log(0, 1, 2, lane=0)
    for seq, session in enumerate((1, 2, 1)):
        history.deliver(seq, lane=0, session=session)
    columns = {table: (*names, "ledger", "batch") for table, names in COLUMNS.items()}
    groups = {"group": {"topics": ["orders"], "subscription": "key_shared", "from_start": True}}
    rows, lanes = (
        rows_of(history, columns),
        [{"topic": "orders", "mode": "key", "first": 0, "count": 1}],
    )
    result = judged(history, rows=rows, system="pulsar", groups=groups, lanes=lanes)
    assert found(result) == {"per-key-reorder": (Status.SUSPECT, 1)}


#: Pairs that rest on more than rows: the end of a process, a torn record, a fault, a replica.
BESIDE_ROWS = (
    "hang",
    "record missing, not phantom",
    "client died",
    "a replica",
    "replicas",
    "key in a third partition",
    "key that two producers put",
    "key that one producer keeps",
)
#: No import has a journal of transactions, nor the markers of a log, nor pipelines.
OF_RUNS = ("transaction", "txn_end", "source_partition", "source_position")
EVERYTHING = {
    table: tuple(c.name for c in SEALED[table] if c.name not in OF_RUNS) for table in COLUMNS
}


@pytest.mark.long
@pytest.mark.parametrize("pair", [p for p in PAIRS if not p.name.startswith(BESIDE_ROWS)], ids=str)
def test_a_planted_anomaly_is_the_same_in_an_import(tmp_path: Path, pair: Pair) -> None:
    """The rows of a recorded run, as another tool would have written them."""

    def violations(result: Result) -> dict[str, int]:
        bad = (f for f in result.findings if f.status is Status.VIOLATION)
        # the runs have a consumer, idle
        return {f.cls: f.count for f in bad if f.cls != "not-dispatched"}

    history = pair.planted()
    said = description(
        history, lanes=stated_lanes(history), producers=stated_producers(history), groups=None
    )
    rows = rows_of(history, EVERYTHING) | {"deliveries": []}
    source = write_import(tmp_path / "in", rows, said, "jsonl")
    imported = judge_here(import_run(ImportSource.open(str(source)), tmp_path / "runs"))
    assert violations(imported) == violations(
        judge_here(pair.planted().write(tmp_path / "recorded"))
    )


def stated_lanes(history: History) -> list[dict[str, Any]] | None:
    fixed = [g for g in history.plan.lane_groups if g.mode != "routed"]
    return [
        {"topic": g.topic, "mode": g.mode, "first": g.first, "count": g.count} for g in fixed
    ] or None


def stated_producers(history: History) -> dict[str, Any]:
    promise = history.promise
    acks = "all" if promise.delivery == "durable" else promise.delivery
    return {"acks": acks, "idempotence": promise.dedup, "order": promise.order}


def test_producers_may_have_settings_of_their_own(judged: Judged, tmp_path: Path) -> None:
    both = History(producers=2).sent(3).sent(3, instance=2).log(1, 2).log(1, 2, instance=2)
    both = both.deliver(1, 2).deliver(1, 2, instance=2)
    one_is_weak = {**KNOWN["producers"], "each": {2: {"acks": "leader", "deadline": None}}}
    result = judged(both, producers=one_is_weak)
    lost = {f.witnesses[0].message: f.status for f in result.findings if f.cls == "acked-lost"}
    plan = Plan.model_validate_json(latest(tmp_path).plan.read_text())
    assert [p.promise.because["delivery"] for p in plan.producers] == [
        "producers.acks: all in import.yaml",
        "producers.each.2.acks: leader in import.yaml",
    ]
    assert [p.call_deadline_s for p in plan.producers] == [130.0, 0.0]
    assert lost["1/0/0"] is Status.VIOLATION
    assert lost["2/0/0"] is not Status.VIOLATION
    assert (
        result.untested["hang"] == "not known: import.yaml does not say producers.each.2.deadline"
    )


def test_settings_of_a_producer_that_sent_nothing_are_refused(judged: Judged) -> None:
    with pytest.raises(UsageError, match=r"import.yaml:\d+: producers.each\[7\]: no row of sends"):
        judged(clean(), producers={**KNOWN["producers"], "each": {7: {"acks": "leader"}}})


@pytest.mark.long
@pytest.mark.parametrize(
    ("without", "told"),
    [
        (0, "from the intended time, of which waiting to send p99 0.1 ms"),
        (4, "from the call, as 4 of 10 sends have no intended time"),
        (10, "from the call, as sends have no intended time"),
    ],
)
def test_latency_says_since_when_it_counts(
    judged: Judged, tmp_path: Path, without: int, told: str
) -> None:
    rows = rows_of(clean())
    for number, row in enumerate(rows["sends"]):
        row["t_intended_ns"] = None if number < without else row["t_start_ns"] - 100_000
    result = judged(clean(), rows=rows)
    line = latency_line(result.latency_ms, result.no_intended_times)
    assert line.endswith(f"   {told}")
    latency = next(chart for chart in charts(result) if chart.key == "latency")
    assert ("From the intended time, so that" in latency.summary) is (not without)
    (first, *_) = trace(latest(tmp_path), "1/0/0").sends
    assert (first.t_intended_s is None) is (without > 0)


def in_transactions(*ends: str, outcomes: str = "ok") -> tuple[History, Any]:
    """Messages that are sent and stored in order, each in a transaction that the log says ended so;
    of the last one the producer says ``outcomes``."""
    history = History()
    for seq in range(len(ends)):
        history.send(seq, outcomes if seq == len(ends) - 1 else "ok")
    history.log(*range(len(ends)))
    for row, how in zip(history.rows["log"], ends, strict=True):
        row["txn"] = Txn[how.upper()]
    rows = rows_of(history, COLUMNS | {"log": (*COLUMNS["log"], "txn")})
    for row in rows["log"]:
        row["txn"] = Txn(row["txn"]).name.lower()
    return history, rows


@pytest.mark.parametrize(
    ("end", "outcome", "expected"),
    [
        ("committed", "ok", {}),
        ("aborted", "ok", {"acked-lost": (Status.SUSPECT, 1)}),
        ("open", "ok", {"acked-lost": (Status.SUSPECT, 1)}),
        ("unknown", "ok", {}),
        ("aborted", "aborted", {}),
        ("unknown", "aborted", {}),
        ("committed", "aborted", {"aborted-read": (Status.VIOLATION, 1)}),
        ("none", "aborted", {"aborted-read": (Status.SUSPECT, 1)}),
    ],
)
def test_an_import_with_transactions_passes_only_as_its_outcomes_say(
    judged: Judged, end: str, outcome: str, expected: Mapping[str, Any]
) -> None:
    """An import has no journal of transactions: its outcomes and the state in the log are all there
    is."""
    history, rows = in_transactions("committed", "committed", end, outcomes=outcome)
    result = judged(history, rows=rows | {"deliveries": []}, groups=None)
    assert found(result) == expected
    passes = end == "committed" if outcome == "ok" else end in ("aborted", "unknown")
    if not passes:
        assert result.verdict in (Verdict.UNKNOWN, Verdict.FAIL)
    else:
        assert (result.verdict, result.reasons) == (Verdict.PASS, [])
    if end == "unknown" and outcome == "ok":
        assert result.reasons == [
            "the ends of transactions of acknowledged messages were not read: 1"
        ]


def test_an_import_lists_what_it_cannot_show_of_transactions(judged: Judged) -> None:
    history, rows = in_transactions("committed", "committed")
    classes = {
        "torn-transaction",
        "lost-commit",
        "mixed-transaction",
        "hanging-transaction",
        "intermediate-read",
        "fence-breach",
    }
    history.deliver(0, 1)
    said = judged(history, rows=rows | {"deliveries": rows_of(history)["deliveries"]}).untested
    assert {said[cls] for cls in classes} == {"not known: an import has no journal of transactions"}
    plain = judged(clean(), rows=rows_of(clean())).untested
    assert plain["aborted-read"] == "not known: log has no column txn"
