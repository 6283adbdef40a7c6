"""Decides what a night comes to: which of its cells count, its verdict and its exit code.

Page, summary, JUnit, JSON, `list nights` and the exit code follow `Decision` and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import Exit, FailOn

#: Exit codes of what broke, the most urgent first.
_URGENT: Final = (Exit.NOT_HEALED, Exit.BUG, Exit.ENVIRONMENT, Exit.USAGE)


@dataclass(frozen=True, slots=True)
class Decision:
    """``counted``: cells that make the exit code what it is; ``verdict``: fail, unknown or pass, as
    the exit code says."""

    counted: frozenset[str]
    exit_code: int

    @property
    def verdict(self) -> str:
        """Return the verdict that the exit code means."""
        return {Exit.PASS: "pass", Exit.FAIL: "fail"}.get(Exit(self.exit_code), "unknown")

    @classmethod
    def from_words(
        cls,
        words: Mapping[str, str],
        broken: Collection[int],
        new: Collection[str],
        fail_on: FailOn,
    ) -> Decision:
        """1 for what ``fail_on`` says, else the code of what broke, else 3 for what proved nothing,
        else 0.

        Args:
            words: cell -> pass, fail, unknown, broken or not run.
            broken: exit codes of what broke.
            new: cells that are red since this night.
        """
        if fail_on == "none":
            return cls(frozenset(), Exit.PASS)
        red = {
            cell
            for cell, word in words.items()
            if word == "fail" and (fail_on == "any" or cell in new)
        }
        unsure = {cell for cell, word in words.items() if word in ("broken", "unknown")}
        return cls(frozenset(red | unsure), _exit_code(words, red, unsure, broken))


def _exit_code(
    words: Mapping[str, str], red: Collection[str], unsure: Collection[str], broken: Collection[int]
) -> int:
    if red:
        return Exit.FAIL
    if "broken" in words.values():
        return next((code for code in _URGENT if code in broken), Exit.BUG)
    return Exit.UNKNOWN if unsure or {*words.values()} <= {"not run"} else Exit.PASS
