"""Scenario files: what is accepted, how values are laid over them, how variants merge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from harness.errors import ScenarioError
from harness.scenario.bundled import bundled_scenarios
from harness.scenario.file import load_scenario, variants
from harness.scenario.model import Scenario


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(dedent(text))
    return path


def test_only_a_name_is_needed(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, "name: mine"))
    assert scenario.model_dump() == Scenario(name="mine").model_dump()
    assert list(scenario.topics) == ["orders"]
    assert scenario.load.rate == 50_000
    assert scenario.text == "name: mine"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90.0), ("250ms", 0.25), ("2m", 120.0), ("1.5min", 90.0), ("3", 3.0)],
)
def test_durations_as_people_write_them(tmp_path: Path, written: str, seconds: float) -> None:
    path = write(tmp_path, f"name: mine\nload: {{duration: {written}}}")
    assert load_scenario(path).load.duration == seconds


def test_editors_schema_key_says_nothing_to_us(tmp_path: Path) -> None:
    assert (
        load_scenario(write(tmp_path, "$schema: ./scenario.schema.json\nname: mine")).name == "mine"
    )


def test_bundled_by_name_and_by_path() -> None:
    assert {"kafka-quick", "kafka-storm", "kafka-smoke"} <= set(bundled_scenarios())
    for name, path in bundled_scenarios().items():
        assert load_scenario(name).name == name == load_scenario(path).name


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("load.rate=1000", lambda s: s.load.rate == 1000),
        ("load.duration=2m", lambda s: s.load.duration == 120),
        (
            "load.producers.p.options.linger.ms=5",
            lambda s: s.load.producers["p"].options["linger.ms"] == 5,
        ),
        (
            "load.producers.p.options={acks: 0}",
            lambda s: s.load.producers["p"].options == {"acks": 0},
        ),
        ("cluster.config.num.io.threads=4", lambda s: s.cluster.config == {"num.io.threads": 4}),
        ("topics.a.b.partitions=3", lambda s: s.topics["a.b"].partitions == 3),
        (
            "topics.a.b.config.segment.bytes=1",
            lambda s: s.topics["a.b"].config == {"segment.bytes": 1},
        ),
        ("faults[1].at=7", lambda s: s.faults[1]["at"] == 7),
        ("faults.0.at=7", lambda s: s.faults[0]["at"] == 7),
        ("faults=[]", lambda s: s.faults == []),
    ],
)
def test_set_finds_its_key(tmp_path: Path, text: str, read: Callable[[Scenario], bool]) -> None:
    path = write(
        tmp_path,
        """
        name: mine
        topics: {a.b: {}}
        load: {producers: {p: {}}}
        faults: [{fault: kill, at: 1}, {fault: pause, at: 2}]
        """,
    )
    assert read(load_scenario(path, overrides=[text]))


VARIANTS = """
    name: mine
    load:
      rate: 1000
      producers:
        p: {options: {acks: all, linger.ms: 5}}
    faults: [{fault: kill, at: 1}]
    variants:
      unsafe:
        about: acks=1
        expect: acked-lost
        override:
          load: {rate: 500, producers: {p: {options: {acks: 1}}}}
      calm: {override: {faults: []}}
      default-linger: {override: {load: {producers: {p: {options: {linger.ms: null}}}}}}
"""


def test_variants_merge_key_by_key(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, VARIANTS))
    merged = {name: (variant, expect) for name, variant, expect in variants(scenario)}
    assert list(merged) == ["unsafe", "calm", "default-linger"]
    unsafe, expect = merged["unsafe"]
    assert expect == "acked-lost"
    assert unsafe.load.producers["p"].options == {"acks": 1, "linger.ms": 5}
    assert (unsafe.load.rate, unsafe.faults, unsafe.variants) == (500, scenario.faults, {})
    assert merged["calm"][0].faults == []
    assert merged["calm"][1] == "clean"
    assert merged["default-linger"][0].load.producers["p"].options == {"acks": "all"}


def test_set_wins_over_a_variant(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, VARIANTS), overrides=["load.rate=77"])
    assert [variant.load.rate for _, variant, _ in variants(scenario)] == [77, 77, 77]


def test_set_into_a_variant(tmp_path: Path) -> None:
    text = "variants.unsafe.override.load.producers.p.options.acks=0"
    _, unsafe, _ = variants(load_scenario(write(tmp_path, VARIANTS), overrides=[text]))[0]
    assert unsafe.load.producers["p"].options["acks"] == 0


def test_variants_of_a_scenario_built_in_python() -> None:
    scenario = Scenario.model_validate(
        {"name": "x", "variants": {"a": {"override": {"load": {"rate": 5}}}}}
    )
    assert [(name, v.load.rate, expect) for name, v, expect in variants(scenario)] == [
        ("a", 5, "clean")
    ]


def test_no_variants_is_one_unnamed_clean_run() -> None:
    scenario = Scenario(name="x")
    assert variants(scenario) == [("", scenario, "clean")]


def test_fault_steps_are_checked_by_who_knows_them(tmp_path: Path) -> None:
    path = write(
        tmp_path, "name: mine\nfaults:\n  - {fault: kill, at: 1}\n  - {fault: kil,\n     at: 2}\n"
    )
    seen: list[object] = []

    def check(scenario: Scenario) -> None:
        seen.append(scenario.faults)
        raise ScenarioError("faults[1].fault: no fault 'kil'; did you mean 'kill'?")

    with pytest.raises(ScenarioError, match=r"mine\.yaml:4: faults\[1\]\.fault: no fault 'kil'"):
        load_scenario(path, check_faults=check)
    assert len(seen) == 1
