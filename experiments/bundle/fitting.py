"""Chooses what of a capture a bundle holds when it has no room for all of it.

A bucket is taken whole or not at all. A part of its rows would accuse (a message whose row of the
log was cut off looks lost) or acquit. Buckets in which nothing was found go first, so the findings
stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analysis.findings import Status
from analysis.spark.judge import judged_buckets
from analysis.spark.task import SECOND_PASS, judge_units
from analysis.verdict.campaign import VariantResult
from analysis.verdict.merge import judged_status
from experiments.bundle.contents import Judged, JudgedRound

Buckets = frozenset[int]
_DECIDING = (Status.VIOLATION, Status.SUSPECT, Status.APPLICATION_ERROR)


@dataclass(frozen=True, slots=True)
class BucketChoice:
    """Buckets to take of each round, by prefix; ``what``: in words, for the message that it does
    not fit."""

    what: str
    kept: Mapping[str, Buckets]

    def bucket_bytes(self, judged: Judged) -> int:
        """Return the size of the chosen buckets of all rounds, in bytes."""
        return sum(each.bucket_bytes(self.kept[each.prefix]) for each in judged.rounds)


def choices(judged: Judged) -> Iterator[BucketChoice]:
    """From everything to the least that still shows what was found; the later ones judge again."""
    everything = {each.prefix: each.buckets for each in judged.rounds}
    yield BucketChoice("the whole capture", everything)
    if not all(each.capture.checksums for each in judged.rounds):
        # sealed by an early version: it would not be known what was left out from what is lost
        return
    shown = _shown_rounds(judged)
    if len(shown) < len(judged.rounds):
        yield BucketChoice("the capture of one round of each variant", _only(everything, shown))
    found = {each.prefix: _concerned(each) for each in judged.rounds if each.prefix in shown}
    some = {prefix: some for prefix, (some, _) in found.items()}
    yield BucketChoice(
        "the buckets of the capture in which something was found", _only(everything, some)
    )
    grave = {prefix: grave for prefix, (_, grave) in found.items()}
    if grave != some:
        yield BucketChoice("the buckets of the capture with violations", _only(everything, grave))


def _only(everything: Mapping[str, Buckets], some: Mapping[str, Buckets]) -> dict[str, Buckets]:
    return {prefix: some.get(prefix, frozenset()) for prefix in everything}


def _shown_rounds(judged: Judged) -> dict[str, Buckets]:
    """All buckets of the first round of every variant that shows its class, else of the first that
    counts."""
    buckets = {each.prefix: each.buckets for each in judged.rounds}
    if judged.campaign is None:
        return buckets
    paths = [f"{path}/" for variant in judged.campaign.variants if (path := _shown(variant))]
    return {path: buckets[path] for path in paths if path in buckets}


def _shown(variant: VariantResult) -> str:
    counted = [run for run in variant.runs if not run.not_counted] or variant.runs
    hits = [run for run in counted if run.shows(variant.expect)]
    return next((run.path for run in [*hits, *counted]), "")


def _concerned(each: JudgedRound) -> tuple[Buckets, Buckets]:
    """Buckets in which anything was found, and those whose findings decide the verdict."""
    judged = judged_buckets(each.run, judge_units)
    split = {number for s in judged.splits for number in (s.home, *s.unread)}
    some: set[int] = set()
    grave: set[int] = set()
    for report in judged.reports:
        episodes = report.partial.episodes if report.partial else []
        own = split if report.bucket == SECOND_PASS else {report.bucket}
        if episodes:
            some |= own
        if any(judged_status(episode, judged.context)[0] in _DECIDING for episode in episodes):
            grave |= own
    return each.buckets & some, each.buckets & grave
