"""The worker of docs/howto/add-a-worker.md, copied into a folder."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
PAGE = (_ROOT / "docs" / "howto" / "add-a-worker.md").read_text()
EXAMPLE = _ROOT / "examples" / "worker" / "plain"


def write_page_worker(folder: Path) -> Path:
    """Copy its files below ``folder``; returns the folder of the worker."""
    made = Path(shutil.copytree(EXAMPLE, folder / EXAMPLE.name))
    toml = made / "worker.toml"
    # the version that lies beside brokerstorm needs no download
    toml.write_text(toml.read_text().replace("3.0.12", metadata.version("kafka-python")))
    return made
