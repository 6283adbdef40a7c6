"""Starts the command line with the tree first on the path: ``brokerstorm`` and ``python -m
brokerstorm``.

The tree's modules have names that others use, too (`harness`, `analysis`, `cli`): nothing of the
working directory or of PYTHONPATH may come before them.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
#: In an installed package the tree is its folder; in a checkout, two folders up.
TREE = _HERE if (_HERE / "cli.py").is_file() else _HERE.parents[1]


def main() -> int:
    """The command line; returns its exit code."""
    sys.path.insert(0, str(TREE))
    try:
        from cli import main as run
    except ModuleNotFoundError as error:
        remedy = (
            "install it again, with what it needs"
            if _HERE == TREE
            else f"run: make -C {TREE} setup"
        )
        sys.stderr.write(f"brokerstorm: {sys.executable} has no module {error.name}; {remedy}\n")
        return 4
    return run()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory, or this file's
    sys.exit(main())
