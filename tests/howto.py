"""The files that a how-to has its reader write: code blocks that follow the name of a file and a
colon."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"`(?P<file>[\w/.-]+)`[^\n`]*:\n\n```\w+\n(?P<code>.*?)```", re.DOTALL)


def files_of(page: Path) -> dict[str, str]:
    """Path in the tree -> content, in the order of the page."""
    return dict(_BLOCK.findall(page.read_text()))
