"""Errors of a fault step, before (`StepProblem`) and during (`FiringSkipped`) a run."""

from __future__ import annotations


class StepProblem(ValueError):
    """A key of a fault step is wrong; `compile` adds the step's number and makes it a
    ScenarioError."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class FiringSkipped(Exception):
    """A firing has no target at the moment it is due; it is skipped and the reason recorded."""
