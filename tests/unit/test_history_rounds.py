"""A finished run becomes a row of the history; what it did not measure is unknown, never zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.report.documents import write_result
from experiments.history.rounds import (
    Labels,
    broken_round,
    derived_labels,
    fingerprint,
    round_of,
    rounds_of,
)
from harness.errors import UsageError
from harness.rundir import RunDir, append_jsonl, write_json
from tests.planted.plans import build_plan
from tests.report_samples.results import failing, passing

LABELS = Labels(
    night="2026-11-20", suite="nightly", cell="kafka-acks1 confluent-kafka", settings={"acks": 1}
)
MACHINE = {
    "cpus": 2,
    "memory_bytes": 4 * 2**30,
    "kernel": "6.1",
    "system": "Linux",
    "python": "3.11.7",
}


def finished_run(folder: Path, *, result: Any = None, **plan: Any) -> RunDir:
    """A run folder with its documents, and CPU figures of a producer and of a node that started
    twice."""
    run = RunDir(folder).create()
    judged = failing(run_id=folder.name) if result is None else result
    write_result(run, judged)
    usual = {"scenario": judged.scenario, "system": "kafka", "version": "4.1.2"}
    write_json(
        run.plan, build_plan(topics={"orders": 1}).model_copy(update={**usual, **plan}).model_dump()
    )
    write_json(
        run.manifest,
        {
            "epoch_ns": 10_000_000_000,
            "epoch_wall": "2026-11-20T21:00:00+01:00",
            "versions": {"kafka": "4.1.2", "brokerstorm": "0.1.0"},
            "machine": {**MACHINE, "runtime": "process (asked for)"},
            "phases": [
                {"name": "ready", "start_ns": 4_000_000_000, "end_ns": 5_000_000_000},
                {"name": "audit", "start_ns": 60_000_000_000, "end_ns": 70_000_000_000},
            ],
            "workers": [
                {
                    "name": "producer-1",
                    "role": "producer",
                    "client": "confluent-kafka",
                    "client_version": "2.16.1",
                },
                {
                    "name": "audit-1",
                    "role": "audit",
                    "client": "kafka-python",
                    "client_version": "3.0.12",
                },
            ],
        },
    )
    for who, name, cpu_s in [
        ("worker", "producer-1", 2.0),
        ("worker", "producer-1", 7.5),
        ("node", "kafka-1", 10.0),
        ("node", "kafka-1", 3.0),
    ]:
        append_jsonl(run.metrics, {"t_ns": 1, who: name, "cpu_s": cpu_s})
    return run


def test_a_round_says_what_ran_and_what_it_found(tmp_path: Path) -> None:
    made = round_of(finished_run(tmp_path / "r1"), LABELS)
    assert (made.night, made.suite, made.cell, made.settings) == (
        "2026-11-20",
        "nightly",
        "kafka-acks1 confluent-kafka",
        {"acks": 1},
    )
    assert (made.client, made.client_version) == ("confluent-kafka", "2.16.1")
    assert (made.system, made.broker_version, made.runtime) == ("kafka", "4.1.2", "process")
    assert made.key == "2026-11-20T20:00:00+00:00 r1"
    assert (made.started, made.ended) == ("2026-11-20T19:59:54+00:00", "2026-11-20T20:01:00+00:00")
    assert (made.verdict, made.exit_code, made.seed) == ("fail", 1, 7)
    lost = made.found[0]
    assert (lost.cls, lost.status, lost.count) == ("acked-lost", "violation", 1486)
    assert lost.message
    assert lost.said.startswith(lost.message)
    assert (made.cpu_clients_s, made.cpu_brokers_s) == (7.5, 13.0)
    assert made.machine == "Linux 6.1, 2 CPUs, 4.0 GiB, Python 3.11.7"


def test_what_was_not_measured_is_unknown(tmp_path: Path) -> None:
    bare = passing(run_id="r1", latency_ms={}, rate={}, faults=[])
    run = finished_run(tmp_path / "r1", result=bare)
    run.metrics.unlink()
    made = round_of(run, LABELS)
    assert made.rate_held_per_s is made.rate_asked_per_s is made.longest_outage_s is None
    assert made.cpu_clients_s is made.cpu_brokers_s is None
    assert (made.latency_ms, made.recoveries_s, made.outages_s) == ({}, [], [])
    assert fingerprint({}) is None


def test_each_variant_of_a_campaign_is_a_cell_and_its_rounds_are_counted(tmp_path: Path) -> None:
    for name, variant in [("a-1", "a"), ("b-1", "b"), ("a-2", "a")]:
        finished_run(tmp_path / name, variant=variant)
    campaign = RunDir(tmp_path)
    write_json(campaign.campaign, {"runs": ["a-1", "b-1", "a-2"]})
    made = rounds_of(campaign, LABELS)
    assert [(each.cell.rpartition("/")[2], each.round) for each in made] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]


def test_a_round_of_a_bug_is_what_its_campaign_says(tmp_path: Path) -> None:
    """The same result three times: it counts; it has not met what the bug needs; it is another
    bug's."""
    for name in ("a-1", "a-2", "a-3"):
        finished_run(tmp_path / name, variant="a")
    runs = [
        {"path": "a-1", "sighted": "the text", "not_counted": ""},
        {"path": "a-2", "sighted": None, "not_counted": "retries 0, at least 5 needed"},
        {"path": "a-3", "sighted": "", "not_counted": ""},
    ]
    campaign = RunDir(tmp_path)
    reproduction = {"question": {"expect": "acked-lost"}}
    document = {
        "runs": ["a-1", "a-2", "a-3"],
        "variants": [{"runs": runs}],
        "reproduction": reproduction,
    }
    write_json(campaign.campaign, document)
    made = rounds_of(campaign, LABELS)
    assert [(row.verdict, "acked-lost" in [found.cls for found in row.found]) for row in made] == [
        ("fail", True), ("unknown", False), ("fail", False),
    ]  # fmt: skip
    assert made[1].reasons == ["retries 0, at least 5 needed"]


def test_a_run_that_no_suite_started_gets_labels_of_its_own(tmp_path: Path) -> None:
    labels = derived_labels(finished_run(tmp_path / "r1"))
    assert (labels.night, labels.suite) == ("2026-11-20", "imported")
    assert labels.cell == "kafka-acks1 confluent-kafka kafka process"


def test_a_round_that_broke_has_a_reason_and_no_verdict() -> None:
    made = broken_round(LABELS, scenario="kafka-acks1", exit_code=4, reason="no cluster")
    assert (made.verdict, made.exit_code, made.reasons, made.is_judged) == (
        None,
        4,
        ["no cluster"],
        False,
    )


def test_a_run_that_was_not_judged_is_refused(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r1")
    run.result.unlink()
    with pytest.raises(UsageError, match="has not been judged"):
        round_of(run, LABELS)
