"""Headers of messages: what people write, what a plan holds, who can send them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.run.worker_specs import Endpoints, client_spec
from harness.rundir import RunDir
from harness.scenario.file import load_scenario
from harness.scenario.headers import header_names, read_headers
from harness.scenario.model import Scenario
from harness.workers import known_workers


def test_a_text_stands_for_itself_and_a_size_for_letters_that_stay_the_same() -> None:
    headers = read_headers(
        {"tenant": "acme", "trace": {"bytes": 100}, "x": {"bytes": 3, "count": 2}}
    )
    assert list(headers) == ["tenant", "trace", "x_1", "x_2"]
    assert headers["tenant"] == "acme"
    assert [len(headers[name]) for name in ("trace", "x_1", "x_2")] == [100, 3, 3]
    assert headers == read_headers(
        {"tenant": "acme", "trace": {"bytes": 100}, "x": {"bytes": 3, "count": 2}}
    )


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ([], "must be a mapping"),
        ({"a b": "x"}, "the name 'a b' must be"),
        ({"a": 3}, "a must be a text, or"),
        ({"a": {"bytes": -1}}, "bytes of a must be a whole number from 0"),
        ({"a": {"bytes": 5, "count": 0}}, "count of a must be a whole number from 1"),
        ({"a": {"bytes": 5, "size": 0}}, "a must be a text, or"),
        ({"x": {"bytes": 1, "count": 2}, "x_1": "y"}, "x_1 is there twice"),
        ({"x": {"template": "t-{i}"}}, "x: template has {i}, which is not a place: use {id}, {n}"),
        ({"x": {"template": 3}}, "template of x must be a text"),
        ({"x": {"bytes": 1000, "count": 500}}, "at most 1000 headers"),
    ],
)
def test_what_cannot_be_says_what_is_allowed(written: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_headers(written)


def test_jms_names_are_identifiers() -> None:
    assert header_names({}) == "none"
    assert header_names({"tenant_id": "x"}) == "identifiers"
    assert header_names({"trace-id": "x", "tenant": "y"}) == "any"


def test_a_worker_is_told_the_headers_and_what_is_compressible() -> None:
    load = {
        "payload": {"bytes": 1000, "compressible": "60%"},
        "producers": {"p": {"headers": {"tenant": "acme"}, "options": {"compression.type": "lz4"}}},
    }
    plan = build_plan(Scenario.model_validate({"name": "s", "load": load}), seed=1)
    spec = client_spec(
        plan, RunDir(Path()), plan.producers[0], Endpoints("localhost:1")
    ).document()["producer"]
    assert spec["headers"] == [["tenant", "acme"]]
    assert (spec["payload_bytes"], spec["payload_compressible"]) == (1000, 600)
    assert plan.producers[0].codec == "lz4 (compression.type=lz4)"


def test_keys_and_headers_are_made_from_texts_with_places() -> None:
    load = {
        "payload": {"template": '{"id": "{id}"}'},
        "producers": {
            "p": {
                "lanes": "key",
                "keys": 3,
                "key": "customer-{number}",
                "headers": {"tenant": "acme", "trace": {"template": "t-{id}"}},
            }
        },
    }
    plan = build_plan(Scenario.model_validate({"name": "s", "load": load}), seed=1)
    (group,) = plan.lane_groups
    assert group.text(group.first + 2) == f"{group.topic}/customer-2"
    spec = client_spec(
        plan, RunDir(Path()), plan.producers[0], Endpoints("localhost:1")
    ).document()["producer"]
    assert spec["headers"] == [["tenant", "acme"]]
    assert spec["header_templates"] == [["trace", "t-{id}"]]
    assert spec["lane_groups"][0]["key"] == "customer-{number}"


@pytest.mark.parametrize(
    ("producer", "says"),
    [
        ({"lanes": "key", "key": "customer"}, "has no {number} and no {key}"),
        ({"lanes": "key", "key": "{n}"}, "{n}, which is not a place: use {number} or {key}"),
        ({"key": "c-{number}"}, "load.producers.p.key: has a meaning only with lanes: key"),
        (
            {"headers": {"trace": {"template": "t-{id}"}}},
            "load.producers.p.headers.trace: a template needs load.payload: {template: TEXT}",
        ),
        (
            {"client": "kafkajs", "headers": {"trace": {"template": "t-{id}"}}},
            "load.producers.p.headers: is not supported by the kafkajs worker, got",
        ),
    ],
)
def test_a_key_or_a_header_that_cannot_be_made_is_refused(
    tmp_path: Path, producer: dict[str, object], says: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({"name": "s", "load": {"producers": {"p": producer}}}))
    with pytest.raises(ScenarioError) as refused:
        load_scenario(file, clients=known_workers)
    assert says in "\n".join([str(refused.value), *refused.value.further])
