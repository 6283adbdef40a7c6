"""The target of `shrink`: which variant, class, seed, versions and settings a scenario or a run
means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report.documents import write_result
from experiments.plans import choose_plans, read_scenario
from experiments.shrink.targets import ShrinkTarget, pinned_data, read_target
from harness.errors import UsageError
from harness.rundir import RunDir, write_json
from harness.systems import SYSTEMS
from tests.report_samples import failing, passing


def target(tmp_path: Path, name: str, **changes: Any) -> ShrinkTarget:
    values: dict[str, Any] = {"cls": "", "variant": "", "overrides": (), **changes}
    return read_target(tmp_path, name, **values)


def test_of_a_bug_it_is_the_affected_variant_of_its_first_pair(tmp_path: Path) -> None:
    found = target(tmp_path, "pulsar-12779")
    assert found.cls == "premature-then-repeat"
    assert found.scenario.load.producers["shop"].client_version == "2.8.1"
    other = target(tmp_path, "pulsar-12779", variant="dedup-2.8.1")
    assert other.cls == "dedup-silent-loss"


def test_of_a_scenario_it_is_the_variant_that_shows_a_class(tmp_path: Path) -> None:
    found = target(tmp_path, "kafka-acks1")
    assert found.cls == "acked-lost"
    assert found.scenario.load.producers["shop"].options["acks"] == 1
    assert target(tmp_path, "kafka-storm").cls == ""


def test_versions_are_written_out_and_the_rate_of_the_machine_is_no_claim(tmp_path: Path) -> None:
    found = replace(
        target(tmp_path, "kafka-quick"), rate_per_s=7000, versions={"confluent-kafka": "2.5.0"}
    )
    assert pinned_data(target(tmp_path, "kafka-quick"))["load"]["rate"]["at_most"] == 50000
    data = pinned_data(found)
    assert data["cluster"]["version"] == SYSTEMS["kafka"].version
    assert data["load"]["producers"]["shop"]["client_version"] == "2.5.0"
    assert (data["load"]["rate"], data["require"]["rate_ratio"]) == (7000, 0.0)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run of kafka-acks1 at another rate, with one lost message and two of other classes."""
    scenario = read_scenario("kafka-acks1", ("load.rate=2000",))
    plan = choose_plans(scenario, seed=41, rounds=1, variant="unsafe")[0]
    run = RunDir(tmp_path / "20261122-run").create()
    run.scenario.write_text(scenario.text)
    write_json(run.plan, plan.model_dump(mode="json"))
    worker = {
        "name": "p-1",
        "role": "producer",
        "client": "confluent-kafka",
        "client_version": "2.4.0",
    }
    command = "brokerstorm run kafka-acks1 --seed 41 --set load.rate=2000 --variant unsafe"
    write_json(run.manifest, {"command": command, "workers": [worker]})
    write_result(run, failing())
    return run


def test_a_run_brings_its_settings_versions_class_and_seed(tmp_path: Path, run: RunDir) -> None:
    found = target(tmp_path, run.run_id)
    assert (found.cls, found.seed) == ("acked-lost", 41)
    data = pinned_data(found)
    assert data["load"]["rate"] == 2000
    assert data["load"]["producers"]["shop"]["client_version"] == "2.4.0"
    assert data["load"]["producers"]["shop"]["options"]["acks"] == 1


def test_what_does_not_say_which_is_refused(tmp_path: Path, run: RunDir) -> None:
    with pytest.raises(
        UsageError, match="neither a scenario nor a run: no such scenario: 'nothing'"
    ):
        target(tmp_path, "nothing")
    with pytest.raises(UsageError, match="--class lost is not a class"):
        target(tmp_path, "kafka-storm", cls="lost")
    with pytest.raises(UsageError, match="has no variant 'unsave'"):
        target(tmp_path, "kafka-quick", variant="unsave")
    with pytest.raises(UsageError, match="a run is as it was"):
        target(tmp_path, run.run_id, variant="unsafe")
    write_result(run, passing())
    with pytest.raises(UsageError, match="shows: none"):
        target(tmp_path, run.run_id)
    run.scenario.unlink()
    with pytest.raises(UsageError, match="keeps no scenario"):
        target(tmp_path, run.run_id)


def test_programs_of_a_run_are_where_its_scenario_was(tmp_path: Path) -> None:
    """The folder of the run has the scenario, and none of what its paths mean."""
    own = tmp_path / "own"
    (own / "app").mkdir(parents=True)
    (own / "app" / "billing").touch(mode=0o755)
    (own / "theirs").mkdir()
    (own / "theirs" / "worker.toml").write_text(
        'library = "theirs"\nsystem = "kafka"\nabout = "x"\nlanguage = "other"\nroles = ["producer"]\n'
        'versions = "all"\n[other]\ndefault = "1.2.0"\ncommand = ["true"]\n'
    )
    (own / "mine.yaml").write_text(
        "name: mine\n"
        "workers: [theirs]\n"
        "topics: {orders: {}, invoices: {}}\n"
        "load: {producers: {shop: {client: theirs, topics: [orders]}}}\n"
        "applications:\n"
        "  billing: {run: [./billing], start_in: app, from: orders, to: {topic: invoices}}\n"
    )
    scenario = read_scenario(str(own / "mine.yaml"))
    run = RunDir(tmp_path / "20261129-run").create()
    run.scenario.write_text(scenario.text)
    (plan,) = choose_plans(scenario, seed=41, rounds=1, variant="")
    write_json(run.plan, plan.model_dump(mode="json"))
    write_json(run.manifest, {"command": "brokerstorm run own/mine.yaml", "workers": []})
    write_result(run, failing())
    data = pinned_data(target(tmp_path, run.run_id, cls="acked-lost"))
    assert data["applications"]["billing"]["start_in"] == str(own / "app")
    assert data["workers"] == [str(own / "theirs")]
