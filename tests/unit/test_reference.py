"""Generated pages and the published schema: fresh, and true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from docs import generate, model_keys
from experiments.nights.model import Suite
from experiments.plans import read_scenario
from faults.kinds import KINDS
from harness.errors import EXIT_MEANING, Exit
from harness.scenario.bundled import (
    IMPORT_SCHEMA_FILE,
    SCHEMA_FILE,
    bundled_bugs,
    bundled_scenarios,
)
from harness.scenario.file import load_scenario
from harness.scenario.model import Part, Scenario
from harness.scenario.schema import copied_scenario, new_scenario
from harness.systems import SYSTEMS


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_nothing_is_stale() -> None:
    assert [str(path) for path in generate.stale()] == [], "run `make docs`"


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"fault": "kil", "at": "1s"}, "'kil' is not one of ["),
        ({"fault": "kill", "at": "1s", "targett": "x"}, "('targett' was unexpected)"),
        ({"fault": "kill"}, "'at' is a required property"),
        ({"fault": "kill", "at": "1s", "every": "2s"}, "False schema does not allow '1s'"),
        ({"fault": "pause", "at": "1s", "for": "soon"}, "'soon' is not valid"),
        ({"mix": {"every": "5s", "of": [{"fault": "kill", "at": "1s"}]}}, "('at' was unexpected)"),
        ({"mix": {"every": "5s", "of": [{"fault": "kil"}]}}, "'kil' is not one of ["),
        ({"at": "1s"}, "'fault' is a required property"),
    ],
)
def test_a_mistake_in_a_fault_is_one_message_of_an_editor(
    step: dict[str, Any], says: str, validator: jsonschema.Draft202012Validator
) -> None:
    (error,) = validator.iter_errors({"name": "x", "faults": [step]})
    assert says in error.message
    assert validator.is_valid({"name": "x", "faults": [{"fault": "kill", "at": "1s", "for": "2s"}]})


@pytest.mark.parametrize(
    "path", sorted(SCHEMA_FILE.parent.glob("*.schema.json")), ids=lambda path: path.name
)
def test_every_property_of_a_schema_is_described(path: Path) -> None:
    schema = json.loads(path.read_text())
    assert list(undescribed(schema, schema.get("$defs", {}))) == []


def undescribed(part: Any, defs: dict[str, Any], path: str = "") -> Iterator[str]:
    """Properties without a description, their own or that of the part they refer to; an ``if`` only
    asks."""
    if isinstance(part, list):
        for number, each in enumerate(part):
            yield from undescribed(each, defs, f"{path}/{number}")
    if isinstance(part, dict):
        named = part.get("properties", {})
        for name, each in named.items():
            meant = defs.get(each["$ref"].rpartition("/")[2], {}) if each and "$ref" in each else {}
            if each and "description" not in {**meant, **each}:
                yield f"{path}/{name}"
        for key, each in part.items():
            if key != "if":
                yield from undescribed(each, defs, f"{path}/{key}")


@pytest.mark.parametrize("name", bundled_scenarios())
def test_bundled_scenarios_fit_the_published_schema(
    name: str, validator: jsonschema.Draft202012Validator
) -> None:
    validator.validate(yaml.safe_load(bundled_scenarios()[name].read_text()))


def test_the_example_of_an_import_fits_its_published_schema() -> None:
    schema = json.loads(IMPORT_SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    example = Path(__file__).resolve().parents[2] / "examples" / "import" / "import.yaml"
    first, text = example.read_text().split("\n", 1)
    assert (example.parent / first.partition("$schema=")[2]).resolve() == IMPORT_SCHEMA_FILE
    validator.validate(yaml.safe_load(text))
    assert not validator.is_valid({"system": "kafka", "topics": {"orders": 0}})


@pytest.mark.parametrize("name", bundled_scenarios())
def test_bundled_scenarios_name_the_schema_for_editors(name: str) -> None:
    first = bundled_scenarios()[name].read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"


@pytest.mark.parametrize(
    "change",
    [
        {"lod": {}},
        {"load": {"rate": "fast"}},
        {"load": {"rate": 10**9}},
        {"load": {"duration": "10 parsecs"}},
        {"topics": {"a": {"partitions": 0}}},
        {"faults": [{"fault": "kil", "at": 1}]},
        {"faults": [{"fault": "kill"}]},
        {"faults": [{"fault": "kill", "at": 1, "topic": "orders"}]},
        {"variants": {"a": {"expected": "clean"}}},
        {"rounds": 0},
    ],
)
def test_schema_refuses_what_the_loader_refuses(
    change: dict[str, Any], validator: jsonschema.Draft202012Validator
) -> None:
    validator.validate({"name": "x"})
    assert list(validator.iter_errors({"name": "x", **change}))


def test_schema_takes_what_people_write(validator: jsonschema.Draft202012Validator) -> None:
    load = {
        "duration": "90s",
        "warm_up": 2.5,
        "producers": {"p": {"options": {"acks": 1, "b": True}}},
    }
    validator.validate({"$schema": "x", "name": "x", "load": load})


@pytest.mark.parametrize("file", [Scenario, Suite])
def test_every_key_is_explained(file: type[Part]) -> None:
    bare = [
        f"{model.__name__}.{name}"
        for _, model in model_keys.models(file, "")
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert bare == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_has_a_template(system: str, tmp_path: Path) -> None:
    path = tmp_path / "my scenario!.yaml"
    path.write_text(new_scenario(path, system))
    scenario = load_scenario(path)
    assert (scenario.name, scenario.system) == ("my-scenario", system)
    assert f"brokerstorm run {path} " in scenario.text


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_template_still_fits_with_everything_uncommented(system: str, tmp_path: Path) -> None:
    """What is commented out is what users uncomment first."""
    path = tmp_path / "mine.yaml"
    lines = new_scenario(path, system).splitlines()
    head = lines.index("name: mine")
    lines = [
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line
        for line in lines[head:]
    ]
    path.write_text("\n".join(lines))
    scenario = read_scenario(str(path))
    assert len(scenario.variants) == 2
    assert {step["fault"] for step in scenario.faults} <= set(KINDS)
    assert len(scenario.faults) == 3
    assert list(scenario.load.consumers) == ["billing"]


@pytest.mark.parametrize("name", [*bundled_scenarios(), *bundled_bugs()])
def test_a_copy_of_a_ready_scenario_differs_in_name_and_place(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(copied_scenario(path, name))
    mine, ready = load_scenario(path), load_scenario(name)
    assert mine.name == "mine"
    assert mine.model_dump() == {**ready.model_dump(), "name": "mine"}
    first, *comment = [line for line in mine.text.splitlines() if line.startswith("#")]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"
    assert not any(f"brokerstorm run {name}" in line or f"repro {name}" in line for line in comment)


def test_every_exit_code_is_explained() -> None:
    assert set(EXIT_MEANING) == set(Exit)
