"""What goes wrong with a fault step, before (`StepProblem`) and during (`NotNow`) a run."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StepProblem(ValueError):
    """A key of a fault step is wrong; `compile` adds the step's number and makes it a ScenarioError."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class NotNow(Exception):
    """A firing has no target at the moment it is due; it is skipped and the reason recorded."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'kill'?)`` or nothing: for the middle or the end of a message."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""
