"""Merges the episodes of all buckets into findings: one per class and status, with witnesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from analysis.capture.context import Context, Promise
from analysis.classes import CLASSES, status_of, why_evidence, why_promise
from analysis.findings import MAX_WITNESSES, Finding, Status, Witness
from analysis.kernels.partial import Episode, RawWitness
from analysis.verdict.attribution import RunSpan, attribute, nearest
from analysis.verdict.causes import CauseWords, is_explained
from analysis.verdict.spread import by_fault, by_stream
from harness.faultlog import FaultRecord

#: What a reader must see first.
_ORDER = (
    Status.VIOLATION,
    Status.SUSPECT,
    Status.APPLICATION_ERROR,
    Status.PERMITTED,
    Status.INFO,
)
_TEXTS_SHOWN = 3


def findings_of(
    episodes: Iterable[Episode], context: Context, span: RunSpan, seed: int
) -> list[Finding]:
    """Findings in the order of weight: violations first, then by rank of the class.

    Args:
        span: the part of the run that attribution turns the fault schedule round in.
        seed: of the run, so that judging it again gives the same p values.
    """
    groups: dict[tuple[str, Status], list[Episode]] = {}
    for episode in episodes:
        status, _ = judged_status(episode, context)
        groups.setdefault((episode.cls, status), []).append(episode)
    found = [
        _finding(cls, status, rows, context, span, seed) for (cls, status), rows in groups.items()
    ]
    return sorted(found, key=lambda f: (_ORDER.index(f.status), CLASSES[f.cls].rank))


def judged_status(episode: Episode, context: Context) -> tuple[Status, tuple[str, ...]]:
    """Return the status of an episode's hits, and the preconditions that do not hold for them."""
    unmet = _unmet(episode, context)
    return status_of(episode.cls, episode.split, _promise(episode, context), unmet), unmet


def _promise(episode: Episode, context: Context) -> Promise | None:
    """The promise of the producer concerned; what no producer did is held to the full one."""
    return context.promise(episode.instance)


def _unmet(episode: Episode, context: Context) -> tuple[str, ...]:
    """Preconditions that do not hold; one is that the settings which it rests on are known."""
    entry, session = CLASSES[episode.cls], context.sessions.get(episode.session)
    assumed = session.reading.unknown.intersection(entry.rests_on) if session else ()
    asks = entry.asks_promise(episode.split)
    if assumed or (asks and entry.held(_promise(episode, context), episode.split) is None):
        return (*episode.unmet, "settings-known")
    return tuple(episode.unmet)


def _because(episode: Episode, context: Context) -> Mapping[str, str] | None:
    """Settings of the consumer concerned, if one is."""
    session = context.sessions.get(episode.session)
    return session.reading.because if session else None


def _finding(
    cls: str, status: Status, episodes: list[Episode], context: Context, span: RunSpan, seed: int
) -> Finding:
    episodes.sort(key=lambda e: (-e.count, e.first_ns, e.instance, e.lane))
    split: Counter[str] = Counter()
    for episode in episodes:
        if episode.split:
            split[episode.split] += episode.count
    faults = [f for f in context.faults if f.effective]
    wording = CauseWords(cls, context, faults)
    unexplained = [e.first_ns for e in episodes if e.first_ns and not is_explained(e)]
    return Finding(
        cls=cls,
        status=status,
        count=sum(e.count for e in episodes),
        sentence=CLASSES[cls].sentence,
        promise=_texts(
            why_promise(cls, e.split, _promise(e, context), _because(e, context)) for e in episodes
        ),
        evidence=_texts(why_evidence(cls, _unmet(e, context)) for e in episodes),
        episodes=sum(e.episodes for e in episodes),
        split=dict(split.most_common()),
        window_s=context.window_s,
        by_stream=by_stream(episodes, context),
        by_fault=by_fault(episodes, faults, context, wording),
        causes=wording.causes_of(episodes),
        caused_episodes=sum(e.episodes for e in episodes if is_explained(e)),
        attribution=attribute(unexplained, faults, span, seed),
        witnesses=tuple(_witness(cls, raw, faults, context, wording) for raw in _chosen(episodes)),
    )


def _texts(texts: Iterable[str]) -> str:
    """The distinct ones, in the order of the episodes."""
    distinct = list(dict.fromkeys(text for text in texts if text))
    more = len(distinct) - _TEXTS_SHOWN
    return " | ".join(distinct[:_TEXTS_SHOWN]) + (f" | and {more} more" if more > 0 else "")


def _chosen(episodes: Sequence[Episode]) -> list[RawWitness]:
    """The first witness of each episode, largest episode first, then the second of each ..."""
    rounds = zip_longest(*(e.witnesses for e in episodes[:MAX_WITNESSES]))
    return [raw for one in rounds for raw in one if raw is not None][:MAX_WITNESSES]


def _witness(
    cls: str, raw: RawWitness, faults: Sequence[FaultRecord], context: Context, wording: CauseWords
) -> Witness:
    detail = f" ({raw.detail})" if raw.detail else ""
    return Witness(
        message=raw.message,
        where=raw.where,
        sentence=f"{raw.message} on {raw.where}: {CLASSES[cls].sentence}{detail}",
        outcome=raw.outcome,
        error=raw.error,
        acked_position=raw.acked_position,
        t_s=round(context.seconds(raw.t_ns), 6) if raw.t_ns else 0.0,
        around=raw.around,
        near=nearest(raw.t_ns, faults) if raw.t_ns else None,
        symptoms=raw.symptoms,
        cause=wording.sentence(raw.cause) if raw.cause else "",
    )
