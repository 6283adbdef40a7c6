"""The commands that README, tutorial and the pages in docs/start/ tell a reader to type, in their
order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
#: For people who begin there, without `make run` before.
STARTS = tuple(sorted((ROOT / "docs" / "start").glob("*.md")))
#: In place of what the reader fills in.
FILLED_IN = {"RUN": "latest/unsafe-1"}
_FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(\./brokerstorm [^`]+)`")


def commands_of(page: Path) -> list[list[str]]:
    """The words of each command behind ``make`` and ``./brokerstorm``, without comments."""
    text = page.read_text()
    found = [
        (block.start(1) + line.start(), line[0])
        for block in _FENCED.finditer(text)
        for line in re.finditer(r"^(?:make|\./brokerstorm) .+$", block[1], re.MULTILINE)
    ]
    found += [(match.start(1), match[1]) for match in _INLINE.finditer(_FENCED.sub(_blank, text))]
    words = [shlex.split(line, comments=True) for _, line in sorted(found)]
    return [[FILLED_IN.get(word, word) for word in each] for each in words]


def _blank(block: re.Match[str]) -> str:
    return " " * len(block[0])
