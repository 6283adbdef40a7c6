"""Writes a man page for each command, from the texts of its help: `make man`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from cli import cli
from harness import __version__

#: More characters than any first sentence has.
_WHOLE = 500


def write(folder: Path) -> list[Path]:
    """Write `brokerstorm.1`, `brokerstorm-run.1` and so on into a folder, and return their
    paths."""
    folder.mkdir(parents=True, exist_ok=True)
    _keep_first_sentences(cli)
    write_man_pages("brokerstorm", cli, version=__version__, target_dir=str(folder))
    return sorted(folder.glob("*.1"))


def _keep_first_sentences(command: click.Command) -> None:
    """Give each command its first sentence as short help: otherwise the library cuts it to 45
    characters."""
    command.short_help = command.get_short_help_str(_WHOLE)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _keep_first_sentences(each)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
