"""Names the leader change that lost or repeated messages, and the fault that it followed, in words.

What leaders acknowledged and where the next one began is recorded by the brokers themselves; which
fault moved the leader rests on time, and on what the fault hit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.capture.context import SETTLE_NS, Context
from analysis.findings import Cause, FaultNear
from analysis.kernels.cause import REPEATED
from analysis.kernels.changes import Because
from analysis.kernels.labels import place_text
from analysis.kernels.partial import Episode, RawCause
from harness.contracts.rows import Leadership
from harness.faultlog import FaultRecord


def is_explained(episode: Episode) -> bool:
    """Whether every message of it has a leader change as its cause."""
    return bool(episode.causes) and all(cause.because is Because.CHANGE for cause in episode.causes)


@dataclass(frozen=True, slots=True)
class _Change:
    """The terms of a `RawCause`. ``deposed``: the one that followed ``term``, whether it wrote or
    not."""

    stream: str
    term: Leadership
    next: Leadership
    deposed: Leadership


class CauseWords:
    """Words the causes of one class.

    Args:
        faults: those that took effect.
    """

    def __init__(self, cls: str, context: Context, faults: Sequence[FaultRecord]) -> None:
        self._repeated = cls == REPEATED
        self._context = context
        self._faults = faults

    def causes_of(self, episodes: Sequence[Episode]) -> tuple[Cause, ...]:
        """Return one cause per leader change, over all episodes; most messages first. Empty if who
        led was not recorded."""
        found: dict[tuple[object, ...], list[tuple[RawCause, int]]] = defaultdict(list)
        for episode in episodes:
            for raw in episode.causes:
                key = (raw.because, raw.stream, raw.term, raw.next, raw.other, raw.late)
                found[key].append((raw, episode.episodes))
        if all(raw.because is Because.NO_TERMS for rows in found.values() for raw, _ in rows):
            return ()
        causes = [
            self._cause(_together([raw for raw, _ in rows]), sum(n for _, n in rows))
            for rows in found.values()
        ]
        return tuple(
            sorted(causes, key=lambda cause: (not cause.named, -cause.count, cause.stream))
        )

    def fault_of(self, raw: RawCause) -> int:
        """Id of the fault that the leader change followed; 0 = in no fault's window."""
        moved_by = self._moved_by(self._change(raw, self._context.stream_name(raw.stream)))
        return moved_by.fault if moved_by else 0

    def sentence(self, raw: RawCause) -> str:
        """Return the cause of a message as a sentence; empty where leaders were not recorded."""
        return "" if raw.because is Because.NO_TERMS else self._cause(raw, 1).sentence

    def _cause(self, raw: RawCause, episodes: int) -> Cause:
        stream = self._context.stream_name(raw.stream) if raw.stream > 0 else ""
        if raw.because is not Because.CHANGE:
            why = self._why_none(raw, stream)
            return Cause(
                sentence=why, named=False, count=raw.count, episodes=episodes, stream=stream
            )
        change = self._change(raw, stream)
        moved_by = self._moved_by(change)
        has_places = raw.low[0] >= 0
        return Cause(
            sentence=self._sentence(raw, change, moved_by),
            named=True,
            count=raw.count,
            episodes=episodes,
            stream=stream,
            places=_places(raw) if has_places else "",
            leader=change.term.leader or "",
            term=change.term.term if self._context.term else None,
            next_leader=change.next.leader or "",
            next_term=change.next.term if self._context.term else None,
            next_first="" if change.next.first is None else str(change.next.first),
            changed_s=round(self._context.seconds(change.deposed.t_ns), 3)
            if change.deposed.t_ns
            else None,
            moved_by=moved_by,
            late=raw.late,
            unclean=change.next.unclean,
            acked_s=None if self._repeated else self._times(raw),
            by_time=not has_places,
        )

    def _change(self, raw: RawCause, stream: str) -> _Change:
        terms = self._context.terms[raw.stream]
        following = terms[min(raw.term + 1, len(terms) - 1)]
        return _Change(stream, terms[raw.term], terms[raw.next], following)

    def _times(self, raw: RawCause) -> tuple[float, float]:
        first_s, last_s = (
            round(self._context.seconds(t_ns), 3) for t_ns in (raw.first_ns, raw.last_ns)
        )
        return first_s, last_s

    # -- words

    def _sentence(self, raw: RawCause, change: _Change, moved_by: FaultNear | None) -> str:
        text = self._copies(raw, change) if self._repeated else self._acknowledged(raw, change)
        text += f", {_moved(moved_by)}" if moved_by else ", in no fault's window"
        if change.next.unclean:
            text += "; its election was unclean"
        return text

    def _acknowledged(self, raw: RawCause, change: _Change) -> str:
        if raw.low[0] < 0:
            led = f"{change.next.leader} led from {self._clock(change.next)}"
            return f"acknowledged while {change.term.leader} led, by the time alone; {led}"
        deposed, had = (", which was no longer leader", "had begun") if raw.late else ("", "began")
        acked = f"acknowledged at {_places(raw)} by {self._led(change.term)}{deposed}"
        on = f" on {change.next.leader}" if change.next.leader else ""
        return f"{acked}; {self._numbered(change.next)} {had} {self._begins(change)}{on}"

    def _copies(self, raw: RawCause, change: _Change) -> str:
        again = f"again at {place_text(*raw.again)}" if raw.count == 1 else "again"
        stored = (
            f"stored at {_places(raw)} by {self._led(change.term)} and {again} by "
            f"{self._led(change.next)}"
        )
        return f"{stored}, which began {self._begins(change)}"

    def _begins(self, change: _Change) -> str:
        """Where the next term begins, as its system counts."""
        if self._context.has_offsets:
            return f"at {change.next.first}"
        entries = change.term.entries
        return (
            "after it"
            if entries is None
            else f"after {entries} entries of {self._numbered(change.term)}"
        )

    def _led(self, term: Leadership) -> str:
        """``kafka-3 in epoch 4``."""
        return f"{term.leader} in {self._numbered(term)}"

    def _numbered(self, term: Leadership) -> str:
        return f"{self._context.term} {term.term}"

    def _clock(self, term: Leadership) -> str:
        late = f" (seen up to {term.late_ns / 1e9:.1f} s late)" if term.late_ns else ""
        return f"{self._context.seconds(term.t_ns):.1f} s{late}"

    def _why_none(self, raw: RawCause, stream: str) -> str:
        if raw.because is Because.SAME_LEADER:
            term = self._context.terms[raw.stream][raw.term]
            return f"both copies were written by {self._led(term)}: no leader change lies between"
        if raw.because is Because.EITHER:
            terms = self._context.terms[raw.stream]
            either = f"{self._led(terms[raw.other])} or by {self._led(terms[raw.term])}"
            return (
                f"acknowledged at {_places(raw)}, by {either}: the recorded data do not show which"
            )
        if raw.because is Because.NO_TERMS:
            return f"who led {stream} is not recorded"
        if raw.because is Because.NO_PLACE:
            return (
                "the copies lie in no one log"
                if self._repeated
                else "the acknowledgement named no place"
            )
        if self._context.has_offsets:
            return f"no later {self._context.term} of {stream} begins at or before {_places(raw)}"
        return f"no later leader of {stream} cut it off"

    # -- the fault

    def _moved_by(self, change: _Change) -> FaultNear | None:
        """The fault that was applied, or just healed, when the leader was deposed; one that hit it
        or the stream before one that is only near in time, the later before the earlier."""
        at_ns = change.deposed.t_ns
        near = [f for f in self._faults if at_ns and f.start_ns <= at_ns < f.over_ns + SETTLE_NS]
        if not near:
            return None
        hit = {change.term.leader, change.stream}
        best = max(near, key=lambda fault: (not hit.isdisjoint(fault.targets), fault.start_ns))
        return FaultNear(
            fault=best.id,
            kind=best.kind,
            target=best.hit,
            after_s=round((at_ns - best.start_ns) / 1e9, 3),
            is_target=not hit.isdisjoint(best.targets),
        )


def _moved(by: FaultNear) -> str:
    alone = "" if by.is_target else " (by the time alone)"
    return f"{by.after_s:.1f} s after fault #{by.fault} ({by.kind} {by.target}){alone}"


def _places(raw: RawCause) -> str:
    low, high = place_text(*raw.low), place_text(*raw.high)
    return low if low == high else f"{low} to {high}"


def _together(rows: Sequence[RawCause]) -> RawCause:
    """Causes of one change, of several episodes."""
    in_order = sorted(rows, key=lambda raw: (raw.low[1], raw.low[0]))
    return replace(
        in_order[0],
        count=sum(raw.count for raw in rows),
        first_ns=min(raw.first_ns for raw in rows),
        last_ns=max(raw.last_ns for raw in rows),
        high=max((raw.high for raw in rows), key=lambda place: (place[1], place[0])),
    )
