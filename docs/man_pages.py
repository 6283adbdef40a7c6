"""Writes a man page for each command, from the texts of its help: `make man`."""

from __future__ import annotations

import sys
from pathlib import Path

from click_man.core import write_man_pages

from cli import cli
from harness import __version__


#: More characters than any first sentence has.
_WHOLE = 500


def write(folder: Path) -> list[Path]:
    """Write `brokerstorm.1`, `brokerstorm-run.1` and so on into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in cli.commands.values():
        # Without one, the library cuts the first sentence to 45 characters.
        command.short_help = command.get_short_help_str(_WHOLE)
    cli.short_help = cli.get_short_help_str(_WHOLE)
    write_man_pages("brokerstorm", cli, version=__version__, target_dir=str(folder))
    return sorted(folder.glob("*.1"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
