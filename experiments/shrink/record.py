"""Keeps every question and round of a search on disk, so that it can go on where it was cut off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.rundir import read_json, write_json

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """One round of a candidate.

    Attributes:
        classes: that it showed, and how often.
        why_not: why it shows nothing whatever it found: no fault took effect, the verdict was unknown.
        folder: of the run.
        first_s: of a class, when it first showed, in seconds since the start of load.
    """

    classes: Mapping[str, int]
    why_not: str = ""
    folder: str = ""
    first_s: Mapping[str, float] = field(default_factory=dict)

    def only_class(self) -> str:
        """The class, if it is one.

        Raises:
            UsageError: several; which is the search about?
        """
        if len(self.classes) > 1 and not self.why_not:
            found = ", ".join(self.classes)
            raise UsageError(f"it shows several classes: {found}", hint="--class says which is to stay")
        return "" if self.why_not else next(iter(self.classes), "")


@dataclass(frozen=True, slots=True)
class Step:
    """One question: what was tried and what came out."""

    number: int
    tried: str
    said: str
    shown: bool


@dataclass(slots=True)
class Record:
    """The questions and rounds of one search, by the key of the candidate.

    Attributes:
        path: file of the record; None = nothing is kept.
        asked: what must be the same for the search to go on: target, class, seed.
        steps: of this process; those of one before are asked again, and answered from the rounds.
    """

    path: Path | None
    asked: Mapping[str, Any]
    played: dict[str, list[Seen]] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record of a search that was cut off.

        Raises:
            UsageError: there is none, or it is damaged.
        """
        document = read_json(path)
        try:
            played = {key: [Seen(**each) for each in rounds] for key, rounds in document["rounds"].items()}
            return cls(path, dict(document["asked"]), played)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"{path} is damaged: {error}") from error

    def rounds(self, key: str) -> list[Seen]:
        return self.played.get(key, [])

    def add_round(self, key: str, seen: Seen) -> None:
        self.played.setdefault(key, []).append(seen)
        self.save()

    def add_step(self, key: str, tried: str, said: str, *, shown: bool) -> Step:
        step = Step(len(self.steps) + 1, tried, said, shown)
        self.steps[key] = step
        self.save()
        return step

    def save(self) -> None:
        """Write the record whole, or leave the old one."""
        if self.path is None:
            return
        rounds = {key: [asdict(each) for each in seen] for key, seen in self.played.items()}
        steps = [asdict(step) for step in self.steps.values()]
        document = {"schema_version": SCHEMA_VERSION, "asked": self.asked, "steps": steps, "rounds": rounds}
        write_json(self.path, document)


def key_of(candidate: Mapping[str, Any]) -> str:
    """The same for candidates that are the same."""
    return hashlib.sha256(json.dumps(candidate, sort_keys=True).encode()).hexdigest()[:16]
