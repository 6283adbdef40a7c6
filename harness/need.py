"""One thing that a run needs of its machine or of a cluster that others started, as it was
found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """``text`` says what was found, ``remedy`` what to do when not ``ok``; a run goes without what
    is not ``needed``.

    ``passing``: the answer may be another one when the run starts, such as that about free memory.
    """

    name: str
    ok: bool
    text: str
    remedy: str = ""
    needed: bool = True
    passing: bool = False
