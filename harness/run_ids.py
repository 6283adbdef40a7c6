"""The form of run ids. One enters in many places: environments of processes, files, labels of
containers, names of folders. It becomes part of paths and commands, so each of these places checks
it here."""

from __future__ import annotations

import re
from typing import Final

from harness.errors import UsageError

_MOST_LETTERS: Final = 200
_FORM: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_MOST_LETTERS - 1}}}", re.ASCII)


def is_run_id(text: object) -> bool:
    """Whether this is a run id: letters, digits, ``.``, ``_`` and ``-``, the first a letter or
    digit."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


def checked_run_id(text: str) -> str:
    """The text, which is a run id.

    Raises:
        UsageError: it is none.
    """
    if not is_run_id(text):
        raise UsageError(
            f"{text[:_MOST_LETTERS]!r} is not a run id: it must have 1 to {_MOST_LETTERS} letters, digits,"
            " '.', '_' or '-', and begin with a letter or digit",
            hint="`brokerstorm list runs` shows the runs; a run folder with another name must be renamed",
        )
    return text


def run_id_from(name: str) -> str:
    """A run id made of any name: every other character becomes ``-``, and what is too long is cut,
    with room for a number at its end."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name, flags=re.ASCII)[: _MOST_LETTERS - len("-99")]
