"""Describes one message as evidence: names, times, and the sequence around it as a reader would
write it.

    1 [4] 2 3 4      premature and repeated: the first 4 is the witness, the last one a repeat
    3 4 - 6          5 is missing

The neighbours of a stored message are the rows around it in the log (of the same producer instance
and lane, in the same stream); of a missing one, the sequences around it; of a delivery, deliveries
of the same session.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array
from analysis.findings import SequenceStep
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note
from analysis.kernels.labels import name_of, place_of, place_text
from analysis.kernels.matching import Matching
from analysis.kernels.partial import STEPS_AROUND, RawWitness
from harness.records import Check, Outcome

_OUTCOMES = {Outcome.NONE: "", **{outcome: outcome.name.lower() for outcome in Outcome if outcome}}
#: Rows on either side among which neighbours of the same lane are looked for: a few, or else many.
_NEAR, _REACH = 64, 2048
_CHECKS = {
    Check.CORRUPT: "corrupt payload",
    Check.FOREIGN: "foreign payload",
    Check.OTHER_RUN: "payload of another run",
}


class Witnesses:
    """Words the witnesses of one kernel result."""

    def __init__(
        self,
        history: BucketHistory,
        matching: Matching,
        hits: Hits,
        symptoms: Callable[[int], tuple[str, ...]],
    ) -> None:
        self._history = history
        self._matching = matching
        self._hits = hits
        self._symptoms = symptoms

    def witness_at(self, i: int) -> RawWitness:
        """The witness of hit ``i``."""
        hits = self._hits
        slot, row = int(hits.slot[i]), int(hits.row[i])
        note = hits.note(i) if hits.note else Note()
        outcome, error, acked = self._outcome(slot)
        return RawWitness(
            message=self._message(i),
            where=self._where(slot, int(hits.stream[i])),
            t_ns=int(hits.t_ns[i]),
            outcome=outcome,
            error=error,
            acked_position=acked,
            detail=note.detail or self._check(row),
            around=self._around(i),
            symptoms=(*note.symptoms, *self._symptoms(slot), *self._seen_by_consumers(slot)),
        )

    def _message(self, i: int) -> str:
        history, hits = self._history, self._hits
        slot, row, delivery = int(hits.slot[i]), int(hits.row[i]), int(hits.delivery[i])
        if slot >= 0 or row >= 0:
            return name_of(history, slot, row)
        stream = history.context.stream_name(int(hits.stream[i]))
        if delivery >= 0:
            return self._message_of_delivery(delivery, stream)
        return stream

    def _message_of_delivery(self, delivery: int, stream: str) -> str:
        slot = int(self._history.delivery_slot[delivery])
        if slot >= 0:
            return name_of(self._history, slot)
        table = self._history.bucket.deliveries
        return f"{stream}@{place_text(*(int(table[n][delivery]) for n in ('position', 'ledger', 'batch')))}"

    def _where(self, slot: int, stream: int) -> str:
        name = self._history.context.stream_name(stream)
        if slot < 0:
            return name
        lane = self._history.context.lane_text(self._history.identity_of(slot)[1])
        return lane if name in ("", lane) else f"{lane} in {name}"

    def _outcome(self, slot: int) -> tuple[str, str, str]:
        """Outcome, error text and acknowledged position."""
        history = self._history
        if slot < 0 or history.sent[slot] < 0:
            return "", "", ""
        one = np.array([slot])
        names = ("outcome", "t_done_ns", "error", "stream", "position", "ledger", "batch")
        outcome, done, error, stream, position, ledger, batch = (
            int(history.of_send(name, one)[0]) for name in names
        )
        text = (
            "never completed"
            if outcome == Outcome.INFO and not done
            else _OUTCOMES[Outcome(outcome)]
        )
        # -1:-1 of a broker that dropped a repeat
        named = (stream > 0 and position >= 0) or ledger < 0
        acked = place_text(position, ledger, batch) if named else ""
        return text, history.context.names.get(error, ""), acked

    def _check(self, row: int) -> str:
        history = self._history
        if row < 0 or not len(history.odd_rows):
            return ""
        at = int(np.searchsorted(history.odd_rows, row))
        if at == len(history.odd_rows) or history.odd_rows[at] != row:
            return ""
        return f"{_CHECKS[Check(int(history.odd_checks[at]))]} at position {place_of(history, row)}"

    def _seen_by_consumers(self, slot: int) -> tuple[str, ...]:
        """A lost message that consumers were given before it vanished."""
        if self._hits.cls != "acked-lost":
            return ()
        unmatched = self._matching.unmatched
        given = unmatched[self._history.delivery_slot[unmatched] == slot]
        if not len(given):
            return ()
        table = self._history.bucket.deliveries
        first = int(given[0])
        seconds = self._history.context.seconds(int(table["t_ns"][first]))
        return (
            f"given to session {int(table['session'][first])} at {seconds:.3f} s, before it vanished",
        )

    # -- the sequence around

    def _around(self, i: int) -> tuple[SequenceStep, ...]:
        slot, row, delivery = (
            int(a[i]) for a in (self._hits.slot, self._hits.row, self._hits.delivery)
        )
        if delivery >= 0 and self._history.delivery_slot[delivery] >= 0 and self._is_queue(i):
            return self._in_session(delivery)
        if slot < 0:
            return ()
        if delivery >= 0 and self._matching.row[delivery] >= 0:
            return self._in_journal(slot, delivery)
        return self._in_log(slot, row) if row >= 0 else self._in_sequence(slot)

    def _is_queue(self, i: int) -> bool:
        stream, queues = int(self._hits.stream[i]), self._history.context.is_queue
        return 0 <= stream < len(queues) and bool(queues[stream])

    def _in_session(self, delivery: int) -> tuple[SequenceStep, ...]:
        """Return the other messages that a session received from a queue around this delivery, by
        their numbers in the journal.
        """
        history, table = self._history, self._history.bucket.deliveries
        own = history.queue_deliveries
        at = int(np.searchsorted(own, delivery))
        near = own[max(at - _REACH, 0) : at + _REACH + 1]
        near = near[table["session"][near] == table["session"][delivery]]
        at = int(np.searchsorted(near, delivery))
        seen: set[int] = set()
        steps = []
        for number in near[max(at - STEPS_AROUND, 0) : at + STEPS_AROUND + 1].tolist():
            slot = int(history.delivery_slot[number])
            _, _, seq, attempt = history.identity_of(slot)
            mark = "!" if number == delivery else "+" if slot in seen else ""
            seen.add(slot)
            ordinal = f"#{int(table['ordinal'][number])}"
            steps.append(SequenceStep(seq=seq, attempt=attempt, position=ordinal, mark=mark))
        return tuple(steps)

    def _in_log(self, slot: int, row: int) -> tuple[SequenceStep, ...]:
        """Copies near ``row`` in its stream of the lane, in log order."""
        history = self._history
        stream = history.bucket.log["stream"]
        group = int(history.group(np.array([slot]))[0])

        def lane(near: Array) -> Array:
            near = near[(history.log_slot[near] >= 0) & (stream[near] == stream[row])]
            return np.asarray(near[history.group(history.log_slot[near]) == group])

        rows = _around(row, len(history.log_slot), lane)
        _, beside = history.copies(self._neighbours(slot))
        beside = beside[stream[beside] == stream[row]]
        # Beyond the reach only neighbours in sequence are known, and only used where the near ones
        # end.
        rows = np.unique(np.concatenate([rows, beside]))
        at = int(np.searchsorted(rows, row))
        shown = rows[max(at - STEPS_AROUND, 0) : at + STEPS_AROUND + 1]
        return tuple(self._step(int(r), row, shown) for r in shown)

    def _step(self, row: int, witness: int, shown: Array) -> SequenceStep:
        history = self._history
        slot = int(history.log_slot[row])
        _, _, seq, attempt = history.identity_of(slot)
        repeat = row != history.first[slot] or bool(
            (history.log_slot[shown[shown < row]] == slot).any()
        )
        mark = "!" if row == witness else "+" if repeat else ""
        return SequenceStep(seq=seq, attempt=attempt, position=place_of(history, row), mark=mark)

    def _neighbours(self, slot: int) -> Array:
        """Slots of the neighbouring sequences of the same group (dense), or next in sort order
        (sparse)."""
        history = self._history
        slots = np.arange(
            max(slot - STEPS_AROUND, 0), min(slot + STEPS_AROUND + 1, history.n_slots)
        )
        return np.asarray(slots[history.group(slots) == history.group(np.array([slot]))[0]])

    def _in_sequence(self, slot: int) -> tuple[SequenceStep, ...]:
        """The sequences before and after a missing message, with those that are missing too."""
        history = self._history
        steps = []
        for near in self._neighbours(slot).tolist():
            _, _, seq, attempt = history.identity_of(near)
            row = int(history.first[near])
            position = place_of(history, row) if row >= 0 else ""
            mark = "!" if near == slot else "" if row >= 0 else "-"
            steps.append(SequenceStep(seq=seq, attempt=attempt, position=position, mark=mark))
        return tuple(steps)

    def _in_journal(self, slot: int, delivery: int) -> tuple[SequenceStep, ...]:
        """Deliveries near this one: same session, stream, instance and lane."""
        history, matching = self._history, self._matching
        table = history.bucket.deliveries
        group = history.group(np.array([slot]))[0]

        def lane(near: Array) -> Array:
            near = near[matching.row[near] >= 0]
            for name in ("session", "stream"):
                near = near[table[name][near] == table[name][delivery]]
            return np.asarray(near[history.group(history.log_slot[matching.row[near]]) == group])

        near = _around(delivery, len(matching.row), lane)
        at = int(np.searchsorted(near, delivery))
        shown = near[max(at - STEPS_AROUND, 0) : at + STEPS_AROUND + 1]
        seen: set[int] = set()
        steps = []
        for number in shown.tolist():
            row = int(matching.row[number])
            _, _, seq, attempt = history.identity_of(int(history.log_slot[row]))
            mark = "!" if number == delivery else "+" if row in seen else ""
            seen.add(row)
            steps.append(
                SequenceStep(seq=seq, attempt=attempt, position=place_of(history, row), mark=mark)
            )
        return tuple(steps)


def _around(row: int, rows: int, chosen: Callable[[Array], Array]) -> Array:
    """Return the rows around ``row`` that ``chosen`` keeps: a sufficient number on each side, or
    all within reach.
    """
    for reach in (_NEAR, _REACH):
        near = chosen(np.arange(max(row - reach, 0), min(row + reach + 1, rows)))
        before = int(np.searchsorted(near, row))
        if before >= STEPS_AROUND and len(near) - before > STEPS_AROUND:
            break
    return near
