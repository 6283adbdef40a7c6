"""docs/howto/when-it-says-unknown.md has every reason that there is, and quotes none that there is
not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from analysis.verdict import coverage
from tests.unit.test_verdict import UNKNOWN

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "when-it-says-unknown.md"


def phrases() -> dict[str, list[str]]:
    """What the page quotes in italics, by the check that it stands under."""
    checks = PAGE.read_text().partition("### ")[2].partition("\n## ")[0]
    sections = (section.partition("\n") for section in f"### {checks}".split("### ")[1:])
    return {
        name: [
            " ".join(text.split()).lower() for text in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", body)
        ]
        for name, _, body in sections
    }


def failing() -> list[tuple[str, str]]:
    """Check and text of every place in the code where one does not hold; values are left out of the
    text."""
    found = []
    for function in ast.parse(Path(coverage.__file__).read_text()).body:
        texts = {
            node.targets[0].id: written(node.value)
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "ValidityCheck"
            ):
                name, ok, text = node.args
                if isinstance(name, ast.Constant) and isinstance(ok, ast.Constant) and not ok.value:
                    found.append((str(name.value), written(text, texts)))
    return found


def written(node: ast.expr, texts: dict[str, str] | None = None) -> str:
    """The literal words of a text, those of the names in it too."""
    if isinstance(node, ast.Constant):
        return str(node.value).lower()
    if isinstance(node, ast.Name):
        return (texts or {}).get(node.id, "")
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part, texts) for part in node.values)
    return written(node.value, texts) if isinstance(node, ast.FormattedValue) else ""


@pytest.mark.parametrize("name", UNKNOWN)
def test_every_reason_is_quoted_under_its_check(name: str) -> None:
    make, _ = UNKNOWN[name]
    for check in coverage.coverage(make()):
        if not check.ok:
            assert any(phrase in check.text.lower() for phrase in phrases()[check.name]), check


def test_every_place_in_the_code_is_quoted_too() -> None:
    assert len(failing()) > 15
    missing = [
        (name, text)
        for name, text in failing()
        if not any(word in text for word in phrases().get(name, []))
    ]
    assert missing == []


def test_the_page_quotes_nothing_that_is_not_said() -> None:
    said: dict[str, list[str]] = {}
    for name, text in failing():
        said.setdefault(name, []).append(text)
    for make, _ in UNKNOWN.values():
        for check in coverage.coverage(make()):
            said.setdefault(check.name, []).append(check.text.lower())
    emphasis = {"stall", "backlog-stuck", "calibration"}
    unsaid = [
        (name, phrase)
        for name, quoted in phrases().items()
        for phrase in quoted
        if phrase not in emphasis and not any(phrase in text for text in said[name])
    ]
    assert unsaid == []
    assert set(phrases()) == set(said)
