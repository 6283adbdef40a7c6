"""The folder of a bisection: what is asked and every finished round, so that it can go on after a kill.

runs/<id>/
  bisect.json      what is asked, every finished round, and at the end the answer
  scenario.yaml    as it was
  <version>-<n>/   the run folder of round n; <version>-<n>-cut-<k> one that was cut short,
                   <version>-<n>-aside-<k> one that did not count, and for which --resume asked again
  checkout/        with --repo, until the answer: a clone in which commits are built; git-bisect.log

A round is in bisect.json by one rename, or it is played again. The search itself is not kept: it is a pure
function of the rounds, so to go on is to ask the same again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from analysis.findings import SCHEMA_VERSION
from analysis.verdict.bisection import MOST_LEFT_OUT, Look, Outcome
from experiments.bisect.question import BisectQuestion
from experiments.experiment import begun, set_aside
from experiments.plans import read_scenario
from harness.errors import UsageError
from harness.rundir import RunDir, read_json, write_json

FILE: Final = "bisect.json"


class BisectDir:
    """The folder of a bisection and what is kept in it."""

    def __init__(
        self,
        root: RunDir,
        question: BisectQuestion,
        looks: list[Look],
        spent_s: float = 0.0,
        set_aside: list[Look] | None = None,
        outcome: str = "",
    ) -> None:
        self.root = root
        self.question = question
        self.looks = looks
        self.spent_s = spent_s  # by processes before this one
        self.set_aside = set_aside or []
        self._outcome = outcome  # of the process before this one; empty = it was cut short

    @classmethod
    def load(cls, root: RunDir) -> BisectDir:
        """One that was begun.

        Raises:
            UsageError: no bisection, damaged, or of another version.
        """
        document = read_json(root.root / FILE)
        try:
            if document["schema_version"] != SCHEMA_VERSION:
                raise UsageError(
                    f"{root.root / FILE}: schema_version is {document['schema_version']!r}, "
                    f"this version reads {SCHEMA_VERSION}"
                )
            question = TypeAdapter(BisectQuestion).validate_python(document["question"])
            looks = TypeAdapter(list[Look]).validate_python(document["looks"])
            aside = TypeAdapter(list[Look]).validate_python(document.get("set_aside", []))
            outcome = str(document.get("outcome", ""))
            return cls(root, question, looks, float(document["spent_s"]), aside, outcome)
        except (KeyError, TypeError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
            raise UsageError(f"{root.root / FILE} is damaged: {what}") from error

    def look(self, version: str, number: int) -> Look | None:
        return next((each for each in self.looks if (each.version, each.number) == (version, number)), None)

    def keep(self, look: Look, spent_s: float) -> None:
        self.looks.append(look)
        self.save(spent_s)

    def save(self, spent_s: float, told: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the document, with ``told`` once there is an answer; returns it."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": "bisect",
            "bisect_id": self.root.run_id,
            **(told or {}),
            "question": self.question.document(),
            "looks": [asdict(look) for look in self.looks],
            "set_aside": [asdict(look) for look in self.set_aside],
            "spent_s": round(self.spent_s + spent_s, 1),
        }
        write_json(self.root.root / FILE, document)
        return document

    def fresh_folder(self, name: str) -> RunDir:
        """A folder for a round; what a killed process captured in it stays, under another name."""
        set_aside(self.root.root / name, "cut")
        return RunDir(self.root.root / name)

    def ask_again(self) -> None:
        """Set the rounds aside for which a version was skipped, those that did not count: the machine may be
        calmer now. The same rounds, with the same seeds, are played again. An answer that was found stays.
        """
        if self._outcome == Outcome.FOUND:
            return
        idle = Counter(look.version for look in self.looks if look.not_counted)
        again = [look for look in self.looks if look.not_counted and idle[look.version] > MOST_LEFT_OUT]
        for look in again:
            self.looks.remove(look)
            self.set_aside.append(replace(look, folder=set_aside(self.root.root / look.folder, "aside")))


def resumed(run_dir: Path, name: str) -> BisectDir:
    """One to go on with: an id below the folder of runs, or a path.

    Raises:
        UsageError: there is none, or its scenario is no longer what it was.
    """
    kept = BisectDir.load(begun(run_dir, name, FILE, "bisection"))
    now = read_scenario(kept.question.scenario, kept.question.overrides).text
    if now != kept.root.scenario.read_text():
        raise UsageError(
            f"{kept.question.scenario} has changed since {kept.root.run_id} was begun",
            hint="what was played was another scenario: begin again, or bring the file back",
        )
    kept.ask_again()
    return kept
