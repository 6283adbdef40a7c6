"""Compares the outputs of applications with their inputs: made twice, not made, reordered, of no
input.

An output names its input by producer, lane, sequence number and attempt, so it lies in the bucket
of its input. Every output counts that readers of committed data see. An input is a message that the
log holds: a message for which that is not proved accuses no one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.capture.context import ApplicationFacts, Context
from analysis.histogram import Dense, Histogram
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import count_of, name_of
from analysis.kernels.lookup import Ints
from analysis.kernels.transactions import Membership
from analysis.series import Grid
from harness.records import Asked, Outcome, Txn

Flags = npt.NDArray[np.bool_]
_NS = 1_000_000_000
#: Brokers and databases say in whole milliseconds when they stored an output.
EARLY_NS: Final = _NS // 10
#: The part of the drain that the time axis of an application shows.
DRAIN_NS = 30 * _NS


@dataclass(frozen=True)
class ApplicationOutputs:
    """The outputs of one application in a bucket, by stream and position.

    ``slot``: message that is the input of each, of which there may be nothing else.
    """

    history: BucketHistory
    application: ApplicationFacts
    stream: Ints
    position: Ints
    t_ns: Ints
    slot: Ints

    def place(self, i: int) -> str:
        """``invoices-3@17``: where an output is."""
        return f"{self.history.context.stream_name(int(self.stream[i]))}@{int(self.position[i])}"

    def after(self, i: int) -> str:
        """Which instance had ended before an output, and how long before; empty = none had."""
        ends = [(t, name) for t, name in self.application.ends if 0 < t <= self.t_ns[i]]
        if not ends:
            return ""
        t_ns, name = ends[-1]
        return f", {(int(self.t_ns[i]) - t_ns) / _NS:.1f} s after {name} had ended"

    @cached_property
    def of_stored(self) -> Ints:
        """Outputs whose input the topic holds that the application reads, by (input, time, place).
        A program may read other topics, too: of their messages nothing is promised."""
        own = np.flatnonzero(self.history.first[self.slot] >= 0)
        own = own[self._is_of_source(self.slot[own])]
        order = np.lexsort((self.position[own], self.stream[own], self.t_ns[own], self.slot[own]))
        return np.asarray(own[order], np.int64)

    @cached_property
    def counts(self) -> Ints:
        """Number of outputs of each message, by slot."""
        return np.bincount(self.slot, minlength=self.history.n_slots).astype(np.int64)

    def messages(self) -> tuple[int, int]:
        """Number of outputs, and how many of them are not the first of their input."""
        return len(self.slot), int((self.counts[self.counts > 0] - 1).sum())

    @cached_property
    def first_outputs(self) -> Ints:
        """The first output of each input."""
        own = self.of_stored
        new = np.append(True, self.slot[own][1:] != self.slot[own][:-1])[: len(own)]
        return np.asarray(own[new], np.int64)

    def _is_of_source(self, slots: Ints) -> Flags:
        """Whether the topic that the application reads holds messages of which the log has a
        copy."""
        history = self.history
        sources = list(history.context.topic_streams(self.application.source))
        return np.isin(history.bucket.log.take("stream", history.first[slots]), sources)

    def delays(self) -> Histogram:
        """How long after they were due inputs of the load had their first output stored, where both
        times are known, by the step (of `flow_grid`) of that output."""
        grid = flow_grid(self.history.context)
        found, own = Dense(grid.steps), self.first_outputs
        due_ns = self.history.bucket.log.take("t_intended_ns", self.history.first[self.slot[own]])
        known = (self.t_ns[own] > 0) & (due_ns >= max(1, self.history.context.epoch_ns))
        stored_ns = self.t_ns[own][known]
        found.add(grid.step(stored_ns), stored_ns - due_ns[known])
        return found.sparse()

    def flow(self) -> Ints:
        """By step (of `flow_grid`), the inputs that came less those that had their first output.

        Empty if the time of an output is not known.
        """
        history, own = self.history, self.first_outputs
        if not (self.t_ns[own] > 0).all():
            return np.zeros(0, np.int64)
        slots = np.flatnonzero(history.first >= 0)
        slots = slots[self._is_of_source(slots)]
        grid = flow_grid(history.context)
        came = grid.step(history.times(slots))
        # an acknowledgement may reach its producer after the output was stored
        put_out = np.maximum(
            grid.step(self.t_ns[own]), grid.step(history.times(self.slot[own])), dtype=np.int64
        )
        more = np.bincount(came, minlength=grid.steps)
        return np.asarray(more - np.bincount(put_out, minlength=grid.steps), np.int64)


def flow_grid(context: Context) -> Grid:
    """The time axis of an application: the load, and the drain within `DRAIN_NS` after it. What is
    earlier or later is in the first or last step."""
    return Grid.over(context.epoch_ns, context.load_end_ns + DRAIN_NS, context.epoch_ns)


def made_by(history: BucketHistory) -> Iterator[ApplicationOutputs]:
    """The outputs of each application."""
    table = history.bucket.outputs
    for application in history.context.applications:
        rows = np.flatnonzero(
            (table["session"] == application.session) & (history.output_slot >= 0)
        )
        order = np.lexsort((table["position"][rows], table["stream"][rows]))
        rows = rows[order]
        yield ApplicationOutputs(
            history,
            application,
            stream=table["stream"][rows].astype(np.int64),
            position=table["position"][rows].astype(np.int64),
            t_ns=table["t_ns"][rows].astype(np.int64),
            slot=history.output_slot[rows].astype(np.int64),
        )


def judge(history: BucketHistory, made: ApplicationOutputs, member: Membership) -> list[Hits]:
    """input-twice, input-skipped, input-reordered and phantom-output of one application."""
    found = [*_phantoms(made), *_early(made, member)]
    if made.application.makes != "any":
        found += [*_twice(made), *_reordered(made)]
    if made.application.makes == "one":
        found += _skipped(made)
    return found


def _copies(history: BucketHistory, slots: Ints) -> Ints:
    """How often the log holds each message: an application is given every copy."""
    extra = np.bincount(history.extra_slots, minlength=history.n_slots)
    return np.asarray((history.first[slots] >= 0) + extra[slots], np.int64)


def _twice(made: ApplicationOutputs) -> list[Hits]:
    """The first output too many of each input."""
    own = made.of_stored
    slot = made.slot[own]
    new = np.append(True, slot[1:] != slot[:-1])[: len(slot)]
    begin = np.maximum.accumulate(np.where(new, np.arange(len(slot)), 0))
    nth = np.arange(len(slot)) - begin
    at = np.flatnonzero(nth == _copies(made.history, slot))
    if not len(at):
        return []

    def note(i: int) -> Note:
        first, here = int(own[begin[at[i]]]), int(own[at[i]])
        many = int(made.counts[made.slot[here]])
        apart = ""
        if made.t_ns[first] and made.t_ns[here]:
            apart = f", {(int(made.t_ns[here]) - int(made.t_ns[first])) / _NS:.1f} s later"
        text = (
            f"{count_of(many, 'output')}: {made.place(first)} and "
            f"{made.place(here)}{apart}{made.after(here)}"
        )
        return Note(detail=f"application {made.application.name}, {text}")

    split = "repeated" if made.application.promise == "at-least-once" else "promised once"
    return [_of_outputs(made, "input-twice", own[at], split, note)]


def _reordered(made: ApplicationOutputs) -> list[Hits]:
    """First outputs that come after the output of a later input of the same partition or key."""
    history, order = made.history, made.application.order
    if order == "none":
        return []
    own = made.first_outputs
    own = own[_copies(history, made.slot[own]) == 1]  # of several copies, any may be the input
    rows = history.first[made.slot[own]]
    source = history.bucket.log.take("stream", rows).astype(np.int64)
    at = history.bucket.log.take("position", rows).astype(np.int64)
    key = np.zeros_like(source) if order == "partition" else history.identity(made.slot[own])[:, 1]
    # Clients may send one key to different partitions, which have no order among each other.
    by_place = np.lexsort((made.position[own], key, source, made.stream[own]))
    own, key, source, at = own[by_place], key[by_place], source[by_place], at[by_place]
    unit = np.stack([made.stream[own], source, key])
    new = np.append(True, (unit[:, 1:] != unit[:, :-1]).any(axis=0))[: len(own)]
    late, ahead = _late(at, np.cumsum(new))
    if not len(late):
        return []

    def note(i: int) -> Note:
        here, before = int(own[late[i]]), int(own[ahead[i]])
        text = f"its output {made.place(here)} is after {made.place(before)}"
        input_before = name_of(history, int(made.slot[before]))
        return Note(
            detail=f"application {made.application.name}: {text}, the output of {input_before}"
        )

    return [_of_outputs(made, "input-reordered", own[late], "promised order", note)]


def _late(position: Ints, unit: Ints) -> tuple[Ints, Ints]:
    """Elements below the highest one before them in their unit, and which element that is. Units
    ascend."""
    late, ahead = [], []
    highest = where = last = -1
    for i, (at, one) in enumerate(zip(position.tolist(), unit.tolist(), strict=True)):
        if one != last:
            highest, where, last = at, i, one
        elif at > highest:
            highest, where = at, i
        elif at < highest:
            late.append(i)
            ahead.append(where)
    return np.array(late, np.int64), np.array(ahead, np.int64)


def _of_outputs(
    made: ApplicationOutputs, cls: str, at: Ints, split: str, note: Callable[[int], Note]
) -> Hits:
    """Hits at some outputs, at the time of the output where that is known."""
    slot = made.slot[at]
    t_ns = np.where(made.t_ns[at] > 0, made.t_ns[at], made.history.times(slot))
    return hits(cls, slot=slot, t_ns=t_ns, split=split, stream=made.stream[at], note=note)


def _skipped(made: ApplicationOutputs) -> list[Hits]:
    """Inputs that the group committed past and that have no output."""
    history, application = made.history, made.application
    log, found = history.bucket.log, []
    slots = np.flatnonzero((history.first >= 0) & (made.counts == 0))
    stream = log.take("stream", history.first[slots])
    for source in history.context.topic_streams(application.source):
        own = slots[stream == source]
        position = log.take("position", history.first[own]).astype(np.int64)
        known = application.committed.get(source)
        end = _last_processed(made, source) if known is None else known
        own, position = own[position < end], position[position < end]
        if len(own):
            unmet = _absent(history.context, application) | (
                BITS["offsets-read"] if known is None else 0
            )
            found.append(_skipped_hits(made, own, position, source, known, unmet))
    return found


def _skipped_hits(
    made: ApplicationOutputs,
    slots: Ints,
    position: Ints,
    source: int,
    known: int | None,
    unmet: int,
) -> Hits:
    history, application = made.history, made.application
    place = history.context.stream_name(source)
    times = history.times(slots)
    committed = "" if known is None else f"; group {application.group} committed {known}"

    def note(i: int) -> Note:
        ends = [name for t_ns, name in application.ends if t_ns >= times[i]]
        after = f"; {ends[0]} ended next" if ends else ""
        text = f"input {place}@{int(position[i])}{committed}{after}"
        return Note(detail=f"application {application.name}, {text}")

    split = "permitted" if application.promise == "at-most-once" else "promised"
    return hits(
        "input-skipped",
        slot=slots,
        t_ns=times,
        split=split,
        unmet=unmet,
        stream=np.full(len(slots), source),
        row=history.first[slots].astype(np.int64),
        note=note,
    )


def _last_processed(made: ApplicationOutputs, source: int) -> int:
    """Position of the last input of a stream that has an output; -1 = none."""
    log, own = made.history.bucket.log, made.slot[made.of_stored]
    rows = made.history.first[own]
    here = rows[log.take("stream", rows) == source]
    return int(log.take("position", here).max(initial=-1))


def _absent(context: Context, application: ApplicationFacts) -> int:
    """Return what is not proved about outputs that are absent, as bits."""
    streams = context.topic_streams(application.to)
    bounds = [context.stream_bounds(stream) for stream in streams]
    topic = context.topics.index(application.to) if streams else -1
    is_read = all(bound.is_complete for bound in bounds) if bounds else application.outputs_read
    source = context.topics.index(application.source)
    # A position that is committed may be one of the former topic of the input's name.
    is_remade = context.remade[topic] or context.remade[source]
    whole = not is_remade and all(bound.begin <= 0 for bound in bounds)
    unkept = {
        stream for fault in context.faults if fault.effective for stream in fault.details.unkept
    }
    holds = {
        "audit-complete": is_read,
        "log-kept": whole,
        "acks-kept": not unkept.intersection(context.stream_name(stream) for stream in streams),
        "readiness-restored": context.readiness_restored,
        "outputs-named": application.nameless == 0,
    }
    return sum(BITS[name] for name, held in holds.items() if not held)


def _unread_input(context: Context, application: ApplicationFacts) -> int:
    """Return what is not proved about inputs that the log does not hold, as bits."""
    streams = context.topic_streams(application.source)
    bounds = [context.stream_bounds(stream) for stream in streams]
    topic = context.topics.index(application.source) if streams else -1
    whole = not context.remade[topic] and all(bound.begin <= 0 for bound in bounds)
    unmet = 0 if all(bound.is_complete for bound in bounds) else BITS["audit-complete"]
    return unmet | (0 if whole else BITS["log-kept"])


def _phantoms(made: ApplicationOutputs) -> list[Hits]:
    """Outputs of what was never sent, of what brokers refused, and of what was aborted."""
    history = made.history
    # Copies that a transaction keeps from readers: aborted ones, and others, which may yet be
    # committed.
    has_aborted, has_open = (np.zeros(history.n_slots, bool) for _ in range(2))
    for rows, slots in (history.invisible, history.unsettled):
        own = slots >= 0
        is_aborted = history.bucket.log.take("txn", rows[own]) == Txn.ABORTED
        has_aborted[slots[own][is_aborted]] = True
        has_open[slots[own][~is_aborted]] = True
    at = np.flatnonzero(history.first[made.slot] < 0)
    slot = made.slot[at]
    unseen = ~(has_aborted[slot] | has_open[slot])
    never = unseen & (history.sent[slot] < 0)
    refused = unseen & (history.outcome[slot] == Outcome.FAIL)
    aborted = has_aborted[slot] & ~has_open[slot]
    kept = np.flatnonzero(never | refused | aborted)
    if not len(kept):
        return []
    at, slot = at[kept], slot[kept]
    names = ("never sent", "refused", "aborted")
    indexes = [split_index("phantom-output", name) for name in names]
    split = np.select([never[kept], refused[kept], aborted[kept]], indexes)
    instances = history.identity(slot)[:, 0].tolist()
    unrecorded = np.array([not _is_recorded(history.context, instance) for instance in instances])

    def note(i: int) -> Note:
        return Note(detail=f"application {made.application.name}, output {made.place(int(at[i]))}")

    return [
        hits(
            "phantom-output",
            slot=slot,
            t_ns=np.where(made.t_ns[at] > 0, made.t_ns[at], history.context.load_end_ns),
            split=split,
            unmet=np.where(unrecorded & never[kept], BITS["send-capture"], 0)
            | np.where(refused[kept], _unread_input(history.context, made.application), 0),
            stream=made.stream[at],
            note=note,
        )
    ]


def _early(made: ApplicationOutputs, member: Membership) -> list[Hits]:
    """Outputs that were stored before the commit of their input was requested."""
    own = made.of_stored
    own = own[_copies(made.history, made.slot[own]) == 1]  # another copy may have been committed
    if not member or not len(own):
        return []
    table, of = member.table, member.of_slot[made.slot[own]]
    own, of = own[of >= 0], of[of >= 0]
    asked = (table.asked[of] & Asked.COMMIT) > 0
    latest_ns = made.t_ns[own] + EARLY_NS + made.history.context.clock_bound_ns
    early = asked & (made.t_ns[own] > 0) & (latest_ns < table.t_asked_ns[of])
    own, of = own[early], of[early]
    if not len(own):
        return []

    def note(i: int) -> Note:
        before_s = (int(table.t_asked_ns[of[i]]) - int(made.t_ns[own[i]])) / _NS
        text = f"output {made.place(int(own[i]))} {before_s:.1f} s before the commit of"
        return Note(detail=f"application {made.application.name}, {text} {table.name(int(of[i]))}")

    moved = any(fault.details.moved_clocks for fault in made.history.context.faults)
    unmet = BITS["clocks-kept"] if moved else 0
    found = _of_outputs(made, "phantom-output", own, "not committed yet", note)
    return [replace(found, unmet=found.unmet | unmet)]


def _is_recorded(context: Context, instance: int) -> bool:
    """Whether it is known what a producer sent; one that the run does not have sent nothing."""
    return instance not in context.instances or context.instances[instance].complete
