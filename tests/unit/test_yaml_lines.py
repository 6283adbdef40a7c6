"""YAML of strangers is refused at the place where it goes wrong, before it costs anything."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from harness.errors import ScenarioError
from harness.yaml_lines import MAX_DEPTH, parse, value_of


def test_a_deep_document_is_refused_where_it_becomes_too_deep() -> None:
    allowed = "a:\n " + "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert parse(PurePath("x.yaml"), allowed)[0].keys() == {"a"}
    # No bracket is closed: composing stops before that is missed.
    with pytest.raises(
        ScenarioError, match=r"^x\.yaml:2: not valid YAML: nested more than 100 levels deep"
    ):
        parse(PurePath("x.yaml"), "a:\n " + "[" * 200)


def test_a_deep_value_on_the_command_line_is_refused() -> None:
    assert value_of("[1, {a: 2}]") == [1, {"a": 2}]
    with pytest.raises(ValueError, match="not valid YAML"):
        value_of("[" * 5_000)
