"""The worker of docs/howto/add-a-worker.md, written into a folder."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "howto" / "add-a-worker.md").read_text()
#: A block of the page; its first line is a comment that names the file.
_BLOCK = re.compile(r"^```\w+\n# \./(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_page_worker(folder: Path) -> Path:
    """Write its files below ``folder``; returns the folder of the worker."""
    for name, text in _BLOCK.findall(PAGE):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # the version that lies beside brokerstorm needs no download
        path.write_text(text.replace("3.0.12", metadata.version("kafka-python")))
    return path.parent
