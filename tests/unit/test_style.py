"""The style of texts for people: lines that fit, module docstrings that say what a module does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.test_docs import PAGES
from tests.unit.test_imports import OURS, ROOT, name_of, sources, tree_of

MAX_COLUMNS = 120
WRAPPED = (".css", ".go", ".html", ".java", ".js", ".rs", ".toml", ".yaml")


def too_long(path: Path) -> list[str]:
    """A row of a table with a link, and a line that is one word, cannot be wrapped."""
    return [
        f"{name_of(path)}:{number} has {len(line)} columns"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > MAX_COLUMNS
        and not (line.startswith("|") and "](" in line)
        and len(line.split()) > 1
    ]


def test_lines_fit() -> None:
    """Pages, and the code that ruff does not read; native settings of brokers are not ours to
    wrap."""
    other = [
        path for suffix in WRAPPED for part in OURS for path in (ROOT / part).rglob(f"*{suffix}")
    ]
    assert [line for path in [*PAGES, *other] for line in too_long(path)] == []


@pytest.mark.long
def test_a_module_docstring_says_what_the_module_does() -> None:
    """Not *What ...* or *How ...*: a sentence about the module, not a question that it answers."""
    wrong = [
        f"{name_of(path)}: {docstring.splitlines()[0]}"
        for path in sources()
        if (docstring := ast.get_docstring(tree_of(path)) or "").startswith(("What ", "How "))
    ]
    assert wrong == []
