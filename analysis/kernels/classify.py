"""Judges one bucket: runs the kernels, counts each message once by its root cause, folds hits into
episodes.

The only place that ranks. Several kernels may find the same message (late *and* stored twice); it
is counted under the class that comes first: a violation before what is merely permitted, then by
rank in `analysis.classes`. The other classes become symptoms of its witness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.capture.bucket import Array, Bucket, piecewise
from analysis.classes import CLASSES
from analysis.findings import Status
from analysis.kernels import (
    applications,
    copies,
    dispatch,
    exposure,
    fencing,
    hang,
    lies,
    moves,
    numbering,
    order,
    pipelines,
    placement,
    presence,
    queues,
    refusals,
    silence,
    stable,
    stall,
    transactions,
    unchecked,
    unrecorded,
)
from analysis.kernels.episodes import ChosenHits, episodes_of
from analysis.kernels.every_hit import every_hit
from analysis.kernels.evidence import LogEvidence
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, unmet_names
from analysis.kernels.matching import Matching, judged_groups
from analysis.kernels.partial import Episode, Partial, RawWitness
from harness.records import Event, Kind, Outcome

__all__ = ["Episode", "Partial", "RawWitness", "classify"]

_URGENCY = {
    Status.VIOLATION: 0,
    Status.SUSPECT: 1,
    Status.APPLICATION_ERROR: 2,
    Status.PERMITTED: 3,
    Status.INFO: 4,
}
_MOST_URGENCY = 10_000  # above any urgency: five statuses of a thousand ranks
_LOG_KERNELS = (
    presence.judge,
    unrecorded.judge,
    placement.judge,
    order.judge,
    copies.judge,
    hang.judge,
    unchecked.judge,
)
_ROLLBACKS = (Event.ROLLBACK_BEGIN, Event.ROLLBACK_END, Event.RECOVER)


def classify(
    bucket: Bucket, calls: exposure.Calls | None = None, *, with_hits: bool = False
) -> Partial:
    """Everything that can be said of one bucket. Frees columns as it goes.

    Args:
        calls: which have seen all sends; None = they are passed once more for it.
        with_hits: list every hit, not only witnesses.
    """
    calls = calls or exposure.Calls.from_bucket(bucket)
    history = BucketHistory(bucket, calls.longest_ns)
    unread = presence.unread(history)
    counts = _counts(history) | unread | exposure.of_bucket(bucket, calls)
    counts["info_not_stored"] -= unread["info_unread"] + unread["info_undecided"]
    hits = [h for judge in _LOG_KERNELS for h in judge(history)]
    member = transactions.Membership(history)
    hits += transactions.judge(history, member)
    hits += fencing.judge(history, member)
    never_visible = transactions.never_visible(history, member)
    held = stable.held_rows(history, member)
    atoms = transactions.atoms(history, member)
    hits += pipelines.judge(history)
    made = list(applications.made_by(history))
    for one in made:
        hits += applications.judge(history, one, member)
    del member
    hits += numbering.judge(history, hits)
    bucket.sends.drop("t_intended_ns", "late_outcome")  # witnesses look at the others again
    matching = Matching(history)
    groups = judged_groups(history, matching)
    hits += dispatch.judge(history, matching, groups, never_visible)
    hits += refusals.judge(groups)
    hits += stall.judge(history, groups, held)
    hits += queues.judge(history)
    hits += silence.judge(history)
    hits = lies.unsynced(history, lies.believed(history, _between_topics(history, hits)))
    chosen = _by_root_cause(history, hits)
    episodes = [e for one in chosen for e in episodes_of(history, matching, one)]
    handed = {given.group: given.messages() for given in groups}
    delays = {given.group: given.delays() for given in groups}
    output_delays = {one.application.name: one.delays() for one in made}
    flows = {one.application.name: one.flow() for one in made}
    outputs = {one.application.name: one.messages() for one in made}
    bucket.log.drop("t_intended_ns")
    hits_listed = tuple(every_hit(history, chosen)) if with_hits else ()
    return Partial(
        bucket=bucket.number,
        episodes=episodes,
        evidence=_evidence(chosen),
        counts=counts,
        given={group: given for group, (given, _) in handed.items()},
        given_again={group: again for group, (_, again) in handed.items()},
        delays=delays,
        outputs={name: count for name, (count, _) in outputs.items()},
        outputs_again={name: again for name, (_, again) in outputs.items()},
        output_delays=output_delays,
        flows=flows,
        redelivered={given.group: dispatch.most_redelivered(given) for given in groups},
        moved=moves.moved_partitions(matching),
        hits=hits_listed,
        atoms=atoms,
    )


def _between_topics(history: BucketHistory, found: Sequence[Hits]) -> list[Hits]:
    """The hits with the bit of those messages that were sent to one topic and may have come to the
    next one of its name, where the class asks for it."""
    if not history.context.remade.any():
        return list(found)
    evidence = LogEvidence(history)
    told = []
    for one in found:
        if "topic-kept" in CLASSES[one.cls].needs:
            own = np.flatnonzero(one.slot >= 0)
            unmet = one.unmet.copy()
            unmet[own[piecewise(evidence.before_remade, one.slot[own])]] |= BITS["topic-kept"]
            one = replace(one, unmet=unmet)
        told.append(one)
    return told


def _by_root_cause(history: BucketHistory, found: Sequence[Hits]) -> list[ChosenHits]:
    """Keep the most urgent hit of each message. Hits without a message all stay."""
    found = [hits for hits in found if len(hits)]
    # that a message was hit; the last: of those without one
    times = np.zeros(history.n_slots + 1, np.int32)
    for hits in found:
        np.add.at(times, hits.slot, 1)
    times[-1] = 0
    ranked = _Ranked.from_hits(
        history, found, [np.flatnonzero(times[hits.slot] > 1) for hits in found]
    )
    del times
    out = []
    for number, hits in enumerate(found):
        own = np.delete(np.arange(len(hits)), ranked.losers(number))
        if len(own):
            out.append(ChosenHits(hits, own, ranked.symptoms_of(number, found)))
    return out


@dataclass(frozen=True)
class _Ranked:
    """The hits of messages with several, end to end: message, urgency, which kernel result each
    came from and where it is in there."""

    slot: Array
    urgency: Array
    source: Array
    index: Array
    order: Array  # by (slot, urgency)

    @classmethod
    def from_hits(
        cls, history: BucketHistory, found: Sequence[Hits], contested: Sequence[Array]
    ) -> _Ranked:
        """Rank the hits of a message by urgency; only contested messages take part."""
        none = np.empty(0, np.int64)
        pairs = list(zip(found, contested, strict=True))
        slot = np.concatenate([none, *(h.slot[own] for h, own in pairs)])
        urgency = np.concatenate([none, *(_urgency(history, h, own) for h, own in pairs)])
        source = np.repeat(np.arange(len(found)), [len(own) for own in contested])
        index = np.concatenate([none, *contested])
        # One number sorts in a single pass when, as mostly, the hits come in order of their slots.
        return cls(
            slot, urgency, source, index, np.argsort(slot * _MOST_URGENCY + urgency, kind="stable")
        )

    @cached_property
    def ordered(self) -> Array:
        """Message of each hit, the most urgent hit of a message first."""
        return np.asarray(self.slot[self.order])

    def losers(self, number: int) -> Array:
        """Hits of a kernel result whose message has a more urgent one."""
        slot = self.ordered
        beaten = self.order[1:][slot[1:] == slot[:-1]]
        return np.asarray(self.index[beaten[self.source[beaten] == number]])

    def symptoms_of(self, number: int, found: Sequence[Hits]) -> _Symptoms:
        """Return the other classes that describe messages of a kernel result."""
        return _Symptoms(self, number, tuple(h.cls for h in found))


@dataclass(frozen=True, slots=True)
class _Symptoms:
    """Other classes that describe a message, asked for witnesses only."""

    ranked: _Ranked
    number: int
    classes: tuple[str, ...]

    def __call__(self, slot: int) -> tuple[str, ...]:
        if slot < 0:
            return ()
        low, high = np.searchsorted(self.ranked.ordered, [slot, slot + 1])
        sources = self.ranked.source[self.ranked.order[low:high]]
        names = dict.fromkeys(self.classes[s] for s in sources.tolist())
        own = self.classes[self.number]
        return tuple(f"{name}: {CLASSES[name].sentence}" for name in names if name != own)


def _urgency(history: BucketHistory, hits: Hits, own: Array) -> Array:
    """Violations first, whatever their evidence, then by rank; less is more urgent."""
    entry = CLASSES[hits.cls]
    instances = np.append(history.groups.instance, 0)  # the last: hits without a message
    numbers, index = np.unique(instances, return_inverse=True)
    table = np.empty((len(numbers), len(hits.splits)), np.int32)
    for i, number in enumerate(numbers.tolist()):
        promise = history.context.instance(number).promise
        for j, split in enumerate(hits.splits):
            table[i, j] = _URGENCY[entry.status(split, promise)] * 1000 + entry.rank

    def of(slot: Array, split: Array) -> Array:
        number = np.full(len(slot), index[-1])
        number[slot >= 0] = history.by_group(index[:-1], slot[slot >= 0])
        return np.asarray(table[number, split])

    return piecewise(of, hits.slot[own], hits.split[own])


def _evidence(chosen: Sequence[ChosenHits]) -> dict[str, dict[str, int]]:
    """By class, how many hits lack which precondition."""
    missing: dict[str, Counter[str]] = {}
    for one in chosen:
        masks, numbers = np.unique(one.hits.unmet[one.index], return_counts=True)
        for mask, number in zip(masks.tolist(), numbers.tolist(), strict=True):
            for name in unmet_names(mask):
                missing.setdefault(one.hits.cls, Counter())[name] += number
    return {cls: dict(names) for cls, names in missing.items()}


def _counts(history: BucketHistory) -> dict[str, int]:
    """Exact sums over messages, warm-up included, probes not."""
    sends, outcome = history.bucket.sends, history.outcome
    by_outcome = {o: int(np.count_nonzero(outcome == o)) for o in Outcome if o}
    unknown = outcome == Outcome.INFO
    stored = history.present
    info_stored = int(np.count_nonzero(unknown & stored))
    is_open = np.flatnonzero(unknown)
    is_open = is_open[history.of_send("t_done_ns", is_open) == 0] if sends.rows else is_open
    deliveries = history.bucket.deliveries
    return {
        "attempted": sum(by_outcome.values()),
        "ok": by_outcome[Outcome.OK],
        "fail": by_outcome[Outcome.FAIL],
        "info": by_outcome[Outcome.INFO],
        "aborted": by_outcome[Outcome.ABORTED],
        "info_stored": info_stored,
        "info_not_stored": by_outcome[Outcome.INFO] - info_stored,
        "open": len(is_open),
        "warm_up": int(np.count_nonzero(sends["kind"] == Kind.WARM_UP)),
        "late_outcomes": int(np.count_nonzero(sends["late_outcome"])),
        "doubled_send_records": history.doubled_sends,
        "stored": int(np.count_nonzero(stored)),
        "delivered": int(np.count_nonzero(deliveries["event"] == Event.DELIVER)),
        "send_rows": sends.rows,
        "log_rows": history.bucket.log.rows,
        "log_probes": int(np.count_nonzero(history.bucket.log["kind"] == Kind.PROBE)),
        "rollback_rows": sum(
            int(np.count_nonzero(deliveries["event"] == each)) for each in _ROLLBACKS
        ),
        "refusal_rows": int(np.count_nonzero(deliveries["event"] == Event.NACK)),
        "transaction_rows": int(np.count_nonzero(history.bucket.log["txn"])),
        "numbered_rows": int(np.count_nonzero(history.bucket.log["client_name"])),
        "delivery_rows": deliveries.rows,
    }
