"""Reads and declares bundle.json, what a bundle says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from harness.contracts import read_document
from harness.rundir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """The content of bundle.json.

    Attributes:
        rounds: ids of the runs, of a campaign.
        left_out: one line for people each.
        redacted: file -> how many secrets were taken out of it.
    """

    schema_version: Literal[1] = 1
    made_by: str = ""
    run: str = ""
    rounds: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    redacted: dict[str, int] = field(default_factory=dict)


def read_cover(root: RunDir) -> Cover:
    """Return the cover of an opened bundle.

    Raises:
        UsageError: none, or of another version.
    """
    return read_document(root.bundle, Cover)
