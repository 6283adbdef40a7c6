"""Reads what a bundle leaves out of a run's capture, and what judging said of the whole run before.

A bundle that has no room for the capture holds some buckets whole and no row of the others. What is
left out is not damaged and not lost: it was judged once. It is not judged again, so nothing is
found in it, and no run passes without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.contracts import read_document
from harness.rundir import Document, RunDir


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``buckets`` that the bundle does not hold, none where it is whole; ``text``: one sentence for
    people; ``before``: result.json of the whole run."""

    buckets: frozenset[int] = frozenset()
    text: str = ""
    before: Document = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.buckets)

    def document(self) -> Document:
        """The content of left-out.json."""
        return {
            "schema_version": 1,
            "buckets": sorted(self.buckets),
            "text": self.text,
            "before": self.before,
        }


def read_left_out(run: RunDir) -> LeftOut:
    """Return the content of left-out.json; nothing without the file.

    Raises:
        UsageError: it is damaged.
    """
    return read_document(run.left_out, LeftOut) if run.left_out.exists() else LeftOut()
