"""Commands and pages named in messages, as the user can type or open them.

Messages say `brokerstorm ...` in backquotes and ``docs/...md``; files and JSON documents keep them
so. What a terminal shows goes through `for_terminal`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

NAME: Final = "brokerstorm"
#: Set by the launcher of a checkout to how it was called.
CALLED_AS: Final = "BROKERSTORM_CALLED_AS"
_TREE: Final = Path(__file__).resolve().parents[1]
_COMMAND: Final = re.compile(rf"(^ *|`(?:sudo |[A-Z_]+=\S+ )?){NAME}(?= [A-Za-z-])")
_PAGE: Final = re.compile(r"(?<![\w/])docs/[\w/-]+\.md\b")


@cache
def called() -> str:
    """How this process was called: ``brokerstorm``, ``./brokerstorm``, ``python3 -m
    brokerstorm``."""
    return call_of(os.environ, sys.argv, sys.orig_argv)


def call_of(environment: Mapping[str, str], argv: Sequence[str], orig_argv: Sequence[str]) -> str:
    """The words that call the command again from the same folder; ``brokerstorm`` where nothing
    tells."""
    given = environment.get(CALLED_AS) or argv[0]
    folder, name = os.path.split(given)
    if name == "__main__.py" and os.path.basename(folder) == NAME:
        return shlex.join([orig_argv[0], "-m", NAME])
    if name != NAME and CALLED_AS not in environment:
        return NAME
    # A shell that found it on PATH hands over the whole path of it.
    found = shutil.which(name, path=environment.get("PATH"))
    is_on_path = found is not None and os.path.abspath(found) == os.path.abspath(given)
    return shlex.quote(name if is_on_path else given)


def how_to_install() -> str:
    """Return the command that installs the libraries of brokerstorm, for a checkout or an installed
    package.
    """
    if (_TREE / "Makefile").is_file():
        return f"run: make -C {shlex.quote(str(_TREE))} setup"
    return "install brokerstorm again, with its dependencies"


def how_to_install_extra(extra: str) -> str:
    """The command that installs the packages of an extra into this environment, such as
    ``telemetry``.

    It names those packages. There is no release yet: what an index holds under our name, if
    anything, is not ours.
    """
    try:
        needed = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        return how_to_install()
    wanted = [each.partition(";") for each in needed]
    packages = [
        name.strip() for name, _, marker in wanted if re.search(rf"extra == .{extra}\b", marker)
    ]
    if not packages:
        return how_to_install()
    return f"run: {shlex.join([sys.executable, '-m', 'pip', 'install', *packages])}"


def for_terminal(text: str) -> str:
    """A message with its commands as the user calls them, and pages of ours where they are."""
    return _PAGE.sub(
        lambda found: _page(found[0]), _COMMAND.sub(lambda found: found[1] + called(), text)
    )


def _page(name: str) -> str:
    path = _TREE / name
    if not path.is_file():
        return name
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
