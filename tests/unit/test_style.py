"""The style of texts for people: lines that fit, plain module docstrings, the words of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_docs import PAGES
from tests.unit.test_imports import OURS, ROOT, is_test, name_of, sources, tree_of

MAX_COLUMNS = 120
WRAPPED = (".css", ".go", ".html", ".java", ".js", ".toml", ".yaml")
READ_BY_USERS = [*PAGES, *sorted((ROOT / "scenarios").rglob("*.yaml"))]
#: What must not be said, and what is said instead. Checked as whole words, in any case.
SAID_INSTEAD = {
    r"bug of ours|our bug": "internal error",
    r"roll[ -]backs?(?= (?:that|or|and|of|the|in)\b)|(?:a|the|no|after|each) roll[ -]backs?": "rollback",
    r"(?:did not|does not|do not|that|faults?|none) (?:bit|bite)\b|bit(?= (?:live|traffic))": "took effect",
    r"(?:messages|requests|bytes|times|samples) a second": "per second",
    r"innocent twin": "near-miss",
    r"what would happen, touching nothing": "dry run",
    r"time-outs?": "timeout",
    r"never right": "wrong under any settings",
    r"people ask": "informational",
    r"met on the way": "other defects seen",
}


def too_long(path: Path) -> list[str]:
    """A row of a table with a link, and a line that is one word, cannot be wrapped."""
    return [
        f"{name_of(path)}:{number} has {len(line)} columns"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > MAX_COLUMNS and not (line.startswith("|") and "](" in line) and len(line.split()) > 1
    ]


def test_lines_fit() -> None:
    """Pages, and the code that ruff does not read; native settings of brokers are not ours to wrap."""
    other = [path for suffix in WRAPPED for part in OURS for path in (ROOT / part).rglob(f"*{suffix}")]
    assert [line for path in [*PAGES, *other] for line in too_long(path)] == []


def wrong_words(text: str) -> Iterator[str]:
    for wrong, right in SAID_INSTEAD.items():
        for found in re.finditer(rf"\b(?:{wrong})\b", text, re.IGNORECASE):
            line = text.count("\n", 0, found.start()) + 1
            yield f"line {line}: {found[0]!r}: say {right!r}"


@pytest.mark.parametrize("page", READ_BY_USERS, ids=name_of)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    assert list(wrong_words(page.read_text())) == []


def texts(path: Path) -> Iterator[str]:
    """The string constants of a module, docstrings among them: messages, help texts, reports."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.long
def test_texts_of_the_code_use_the_words_of_the_field() -> None:
    wrong = [
        f"{name_of(path)}: {what}"
        for path in sources()
        if not is_test(path)
        for text in texts(path)
        for what in wrong_words(text)
    ]
    assert wrong == []


@pytest.mark.long
def test_a_module_docstring_says_what_the_module_does() -> None:
    """Not *What ...* or *How ...*: a sentence about the module, not a question that it answers."""
    wrong = [
        f"{name_of(path)}: {docstring.splitlines()[0]}"
        for path in sources()
        if (docstring := ast.get_docstring(tree_of(path)) or "").startswith(("What ", "How "))
    ]
    assert wrong == []
