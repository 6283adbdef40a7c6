"""Every kind of anomaly planted at random, judged without Spark: each message found, and nothing
else."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from analysis.findings import Result
from harness.contracts.plan import Plan
from harness.rundir import RunDir
from harness.seal.seal import seal
from tests.planted.judged import judge_here
from tests.planted.large import plant
from tests.planted.planters import ALL_KINDS, PLANTERS, Truth

_NAMELESS = "0/0/0"  # foreign rows and another run's: named by their place


def counts(result: Result) -> dict[str, int]:
    total: Counter[str] = Counter()
    for finding in result.findings:
        total[finding.cls] += finding.count
    return dict(sorted(total.items()))


def witnesses(result: Result) -> dict[str, set[str]]:
    """Messages by class; complete, since fewer are planted than a finding keeps."""
    found: dict[str, set[str]] = defaultdict(set)
    for finding in result.findings:
        assert len(finding.witnesses) == finding.count
        found[finding.cls] |= {w.message for w in finding.witnesses if "@" not in w.message}
    return {cls: names for cls, names in found.items() if names}


def planted_names(truth: Truth) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for (cls, _), identities in truth.found.items():
        for instance, lane, seq, attempt in identities:
            found[cls].add(f"{instance}/{lane}/{seq}" + (f".{attempt}" if attempt else ""))
        found[cls].discard(_NAMELESS)
    found["client-died"].update(truth.dead)
    return {cls: names for cls, names in found.items() if names}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("raw", [False, True], ids=["sealed", "raw"])
def test_every_message_is_found_and_nothing_else(tmp_path: Path, seed: int, raw: bool) -> None:
    run = RunDir(tmp_path / "run")
    truth = plant(
        run.root,
        messages=6_000,
        producers=4,
        topics=2,
        partitions=3,
        buckets=4,
        anomalies=dict.fromkeys(ALL_KINDS, 2),
        deaths=2,
        seed=seed,
        raw=raw,
    )
    if raw:
        seal(run, Plan.model_validate_json(run.plan.read_text()))
    result = judge_here(run)
    assert counts(result) == truth.counts()
    assert witnesses(result) == planted_names(truth)
    assert {name: result.sends[name] for name in truth.sends} == truth.sends
    assert {name: result.rows[name] for name in truth.rows} == truth.rows


@pytest.mark.long
@pytest.mark.parametrize("kind", PLANTERS)
def test_one_kind_alone_gives_its_own_class_only(tmp_path: Path, kind: str) -> None:
    """Alone, so that no other anomaly can hide or cause it."""
    run = RunDir(tmp_path / "run")
    truth = plant(run.root, messages=800, partitions=2, anomalies={kind: 2}, seed=5)
    result = judge_here(run)
    assert counts(result) == truth.counts()
    assert witnesses(result) == planted_names(truth)


def test_a_run_without_anomalies_is_clean(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    plant(run.root, messages=6_000, producers=2, partitions=3, seed=9)
    assert judge_here(run).findings == []
