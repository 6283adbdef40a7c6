"""Only faults/ knows the kinds of fault by name; everybody else reads what a fault says of
itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.kinds import KINDS
from tests.unit.test_imports import tree_of

ROOT = Path(__file__).resolve().parents[2]
#: Also words for something else: a call, lanes, a column of the report, toxics of the proxy.
OTHER_MEANINGS = {"kill", "partition", "latency", "bandwidth"}
#: Its table gives kinds colours; one that it does not name has a look as well, and no verdict asks
#: it.
COLOURS = ROOT / "analysis" / "report" / "looks.py"
#: Words of other tools, and what they are called here; nothing is asked of a fault there.
OTHER_TOOLS = ROOT / "harness" / "other_words.py"
#: What drivers do to a node (kill, restart, pause ...) is named by the same verbs; no fault is
#: asked there.
ACTIONS = (
    ROOT / "harness" / "connections" / "drivers.py",
    ROOT / "harness" / "clusters" / "drivers",
)
PARTS = ("analysis", "bench", "commands", "docs", "harness", "tests/oracles")


def is_kind(node: ast.AST) -> bool:
    """``fault.kind``, ``row["kind"]``, ``step.get("fault")``."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("kind", "fault")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        return node.func.attr == "get" and is_key(node.args[0])
    return isinstance(node, ast.Subscript) and is_key(node.slice)


def is_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("kind", "fault")


def words(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def knows_a_kind(tree: ast.AST) -> Iterator[int]:
    """Lines with a kind's name, a kind compared with a word that is one, or searched for a part of
    it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in KINDS.keys() - OTHER_MEANINGS:
            yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(is_kind(side) for side in sides) and words(node) & KINDS.keys():
                yield node.lineno
            if isinstance(node.ops[0], ast.In | ast.NotIn) and is_kind(node.comparators[0]):
                yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_search = node.func.attr in (
                "startswith",
                "endswith",
                "find",
                "partition",
                "rpartition",
                "split",
            )
            if is_search and is_kind(node.func.value):
                yield node.lineno
        if isinstance(node, ast.match_case) and words(node.pattern) & KINDS.keys():
            yield node.pattern.lineno


@pytest.mark.parametrize(
    "code",
    [
        'fault.kind == "kill"',
        'row["kind"] in ("kill", "pause")',
        'row.get("fault") != "partition"',
        'any(word in fault.kind for word in ("un", "move"))',
        'fault.kind.startswith("un")',
        'GRACEFUL = ("unload", "transfer")',
        'match fault.kind:\n    case "kill": pass',
    ],
)
def test_it_is_seen(code: str) -> None:
    assert list(knows_a_kind(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ['lane.mode == "partition"', 'runtime.call("kill")', "kinds[fault.kind]"]
)
def test_other_uses_are_left_alone(code: str) -> None:
    assert not list(knows_a_kind(ast.parse(code)))


def test_nobody_outside_faults_knows_a_kind_by_name() -> None:
    files = [
        ROOT / "cli.py",
        *(path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))),
    ]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if path not in (COLOURS, OTHER_TOOLS, *ACTIONS) and path.parent not in ACTIONS
        for line in knows_a_kind(tree_of(path))
    ]
    assert len(files) > 200
    assert wrong == []
