"""Headers of messages: what people write, what a plan holds, who can send them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.plan.build import build_plan
from harness.run.worker_specs import Endpoints, client_spec
from harness.rundir import RunDir
from harness.scenario.headers import header_names, read_headers
from harness.scenario.model import Scenario


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
