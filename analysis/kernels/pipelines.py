"""Holds the outputs of pipelines against their inputs: made twice, not made, made in another order.

An output names its input (`source_partition`, `source_position` of the log), and a bucket has all
of both. An output counts when readers of committed data see it, at its first copy; an input is a
message that the pipeline could be given. Where outputs of a partition follow the order of their
inputs, once each, that is one comparison a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, is_constant, narrow
from analysis.capture.context import Context, PipelineGroup
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import count_of, name_of, place_of
from analysis.kernels.lookup import Ints
from analysis.kernels.presence import expected_stream
from analysis.kernels.removal import Removal, may_hold_others, removed_outputs
from harness.records import Event, Txn

Flags = npt.NDArray[np.bool_]
#: Evidence that an output is not in the log. That its producer had ended is not required: the
#: position after its input was committed already.
_ABSENT = ("audit-complete", "log-kept", "readiness-restored")
_NOT_HANDED = np.iinfo(np.int64).max


def judge(history: BucketHistory) -> list[Hits]:
    """input-twice, input-reordered, input-skipped."""
    found: list[Hits] = []
    for pipeline in history.context.pipelines if history.bucket.log.rows else ():
        for work in _works(history, pipeline):
            found += [*_twice(work), *_reordered(work), *_skipped(work)]
    history.bucket.log.drop("source_partition", "source_position")
    return found


@dataclass(frozen=True)
class _Work:
    """A stream that a pipeline reads, and what it made of it in this bucket.

    ``rows``: log rows of the outputs that are seen, in the order of the log; ``source``: position
    of the input of each. ``hidden``: rows of outputs that readers do not see.
    """

    history: BucketHistory
    pipeline: PipelineGroup
    stream: int
    rows: Ints
    source: Ints
    hidden: Ints

    def place(self, position: int) -> str:
        """Return an input's place, such as ``orders-0@17``."""
        return f"{self.history.context.stream_name(self.stream)}@{position}"

    def name(self, i: int) -> str:
        """Output ``i``."""
        row = int(self.rows[i])
        return f"{name_of(self.history, int(self.history.log_slot[row]))} at {place_of(self.history, row)}"


def _works(history: BucketHistory, pipeline: PipelineGroup) -> Iterator[_Work]:
    """One a stream of the source."""
    log, streams = history.bucket.log, history.context.topic_streams(pipeline.source)
    outputs = _rows_of(log["stream"], history.context.topic_streams(pipeline.to))
    rows = np.flatnonzero(log["source_position"][outputs] >= 0) + outputs.start
    of = log["source_partition"][rows].astype(np.int64) + streams.start
    if (of[1:] < of[:-1]).any():
        order = np.argsort(narrow(of), kind="stable")
        rows, of = rows[order], of[order]
    withheld = np.zeros(log.rows, np.bool_)
    for hidden, slots in (history.invisible, history.unsettled):
        withheld[hidden[slots >= 0]] = True
    for stream in streams:
        own = rows[np.searchsorted(of, stream) : np.searchsorted(of, stream, side="right")]
        slot = history.log_slot[own]
        first = slot >= 0
        first[first] = history.first[slot[first]] == own[first]
        if may_hold_others(history.context, stream):
            own, first = _of_present_inputs(history, pipeline, stream, own, first)
        seen = own[first]
        yield _Work(
            history, pipeline, stream, seen, log["source_position"][seen], own[withheld[own]]
        )


def _of_present_inputs(
    history: BucketHistory, pipeline: PipelineGroup, stream: int, rows: Ints, first: Flags
) -> tuple[Ints, Flags]:
    """Outputs that were sent after the pipeline was handed what lies at the place that they name.
    Those sent before are of another message that lay there, which a fault took away."""
    log, context = history.bucket.log, history.context
    span = _rows_of(log["stream"], range(stream, stream + 1))
    positions = log["position"][span]
    source = log["source_position"][rows]
    at = np.minimum(np.searchsorted(positions, source), max(len(positions) - 1, 0))
    is_there = positions[at] == source if len(positions) else np.zeros(len(rows), np.bool_)
    inputs = np.full(len(rows), -1, np.int64)
    inputs[is_there] = history.log_slot[span.start + at[is_there]]
    since_ns = np.full(len(rows), context.remade[context.stream_topic[stream]])
    known = inputs >= 0
    handed_ns = _handed(history, pipeline, inputs[known], last=False)
    since_ns[known] = np.maximum(since_ns[known], np.where(handed_ns == _NOT_HANDED, 0, handed_ns))
    own = log["instance"][rows], log["lane"][rows], log["seq"][rows], log["attempt"][rows]
    sent = history.find(np.column_stack([column.astype(np.int64) for column in own]))
    start_ns = np.where(sent >= 0, history.of_send("t_start_ns", np.maximum(sent, 0)), _NOT_HANDED)
    kept = start_ns >= since_ns - context.clock_bound_ns
    return rows[kept], first[kept]


def _handed(history: BucketHistory, pipeline: PipelineGroup, slots: Ints, *, last: bool) -> Ints:
    """When the pipeline was first, or last, given messages; `_NOT_HANDED` where its journal does
    not say."""
    table = history.bucket.deliveries
    sessions = [n for n, s in history.context.sessions.items() if s.group == pipeline.group]
    given = np.flatnonzero(
        (table["event"] == Event.DELIVER) & np.isin(history.delivery_slot, slots)
    )
    given = given[np.isin(table["session"][given], sessions)]
    order = np.lexsort((table["t_ns"][given], history.delivery_slot[given]))
    slot, t_ns = history.delivery_slot[given[order]], table["t_ns"][given[order]]
    at = np.searchsorted(slot, slots, side="right" if last else "left") - int(last)
    inside = (at >= 0) & (at < len(slot))
    inside[inside] = slot[at[inside]] == slots[inside]
    found = np.full(len(slots), _NOT_HANDED)
    found[inside] = t_ns[at[inside]]
    return found


def _rows_of(column: Array, streams: range) -> slice:
    """Rows of some streams, which follow each other in the log."""
    if not streams or is_constant(column):
        return slice(0, len(column) if streams and int(column[0]) in streams else 0)
    # else the whole column is converted
    ends = np.array([streams.start, streams.stop]).astype(column.dtype)
    low, high = np.searchsorted(column, ends).tolist()
    return slice(low, high)


# -- twice, or in another order


def _first_of_each(work: _Work) -> tuple[Ints, Ints]:
    """Outputs by (input, order in the log): their numbers, and for each the place in there of its
    input's first. In order already where nothing came twice or late."""
    order = np.argsort(work.source, kind="stable")
    ordered = work.source[order]
    new = np.append(True, ordered[1:] != ordered[:-1])[: len(order)]
    return order, np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))


def _is_plain(work: _Work) -> bool:
    return bool((work.source[1:] > work.source[:-1]).all())


def _twice(work: _Work) -> list[Hits]:
    """The second output of each input that has several."""
    if _is_plain(work):
        return []
    order, first = _first_of_each(work)
    at = np.flatnonzero(np.arange(len(order)) == first + 1)
    if not len(at):
        return []

    def note(i: int) -> Note:
        begin = first[at[i]]
        many = int(np.searchsorted(first, begin, side="right") - begin)
        place = work.place(int(work.source[order[begin]]))
        return Note(
            detail=f"input {place}, {count_of(many, 'output')}: {work.name(int(order[begin]))} before"
        )

    return [_of_outputs(work, "input-twice", np.asarray(order[at]), note)]


def _reordered(work: _Work) -> list[Hits]:
    """Outputs that are the first of their input and come after an output of a later input."""
    if _is_plain(work):
        return []
    order, first = _first_of_each(work)
    appears = np.sort(order[first == np.arange(len(order))])
    source = work.source[appears]
    highest = np.maximum.accumulate(source)
    late = np.flatnonzero(source < highest)
    if not len(late):
        return []

    def note(i: int) -> Note:
        ahead = int(np.searchsorted(highest, highest[late[i]]))
        before = f"{work.place(int(source[ahead]))} ({work.name(int(appears[ahead]))})"
        return Note(detail=f"input {work.place(int(source[late[i]]))}, after the one of {before}")

    return [_of_outputs(work, "input-reordered", appears[late], note)]


def _of_outputs(work: _Work, cls: str, at: Ints, note: Callable[[int], Note]) -> Hits:
    history, rows = work.history, work.rows[at]
    slots = history.log_slot[rows].astype(np.int64)
    stream = history.bucket.log["stream"][rows].astype(np.int64)
    times = history.times(slots)
    return hits(cls, slot=slots, t_ns=times, stream=stream, row=rows, note=note, names=("",))


# -- not at all


def _skipped(work: _Work) -> list[Hits]:
    """Inputs that the group committed past and that have no visible output."""
    history, log = work.history, work.history.bucket.log
    known = work.pipeline.committed.get(work.stream)
    # unknown: the last one with an output
    end = int(work.source.max(initial=-1)) if known is None else known
    rows, slots = _inputs(work, min(end, history.context.stream_bounds(work.stream).read_to))
    position = log["position"][rows]
    missing = ~_has(position, work.source)
    state = log["txn"][work.hidden]
    of_hidden = log["source_position"][work.hidden]
    missing &= ~_has(position, of_hidden[state != Txn.ABORTED])  # it may be seen yet
    # A stray message is in the bucket of its lane; its outputs are in this stream's bucket.
    missing[missing] = np.isin(expected_stream(history, slots[missing]), (0, work.stream))
    rows, slots, position = rows[missing], slots[missing], position[missing]
    if not len(rows):
        return []
    aborted = _has(position, of_hidden[state == Txn.ABORTED])
    unmet = _absent(history.context, work) | (BITS["offsets-read"] if known is None else 0)
    committed = "" if known is None else f"; group {work.pipeline.group} committed {known}"

    def note(i: int) -> Note:
        return Note(detail=f"input {work.place(int(position[i]))}{committed}")

    return [
        hits(
            "input-skipped",
            slot=slots,
            t_ns=history.times(slots),
            split=_skipped_splits(work, aborted, _removal(work, slots, position)),
            unmet=unmet,
            stream=np.full(len(rows), work.stream),
            row=rows,
            note=note,
        )
    ]


def _inputs(work: _Work, end: int) -> tuple[Ints, Ints]:
    """Rows of the source before ``end`` that the pipeline is given, and their slots."""
    history = work.history
    span = _rows_of(history.bucket.log["stream"], range(work.stream, work.stream + 1))
    last = span.start + int(np.searchsorted(history.bucket.log["position"][span], end))
    slots = history.log_slot[span.start : last].astype(np.int64)
    if not work.pipeline.committed_only:
        for hidden, of in (history.invisible, history.unsettled):
            own = (hidden >= span.start) & (hidden < last)
            slots[hidden[own] - span.start] = of[own]
    at = np.flatnonzero(slots >= 0)
    return at + span.start, slots[at]


def _has(wanted: Ints, given: Ints) -> Flags:
    """Return which of the wanted positions are among the given ones. Both ascend."""
    found = np.zeros(len(wanted), np.bool_)
    if len(wanted):
        at = np.minimum(np.searchsorted(wanted, given), len(wanted) - 1)
        found[at[wanted[at] == given]] = True
    return found


def _output_stream(work: _Work) -> int:
    """Stream that the outputs of the work belong in."""
    context = work.history.context
    to = context.topic_streams(work.pipeline.to)
    return to[(work.stream - context.topic_streams(work.pipeline.source).start) % len(to)]


def _removal(work: _Work, slots: Ints, position: Ints) -> Array:
    """How faults took the outputs of these inputs away. If the time when the pipeline was handed an
    input was not recorded, it counts as handed at once."""
    handed_ns = _handed(work.history, work.pipeline, slots, last=True)
    handed_ns = np.where(handed_ns == _NOT_HANDED, work.history.times(slots), handed_ns)
    stream = _output_stream(work)
    return removed_outputs(work.history, stream, work.rows, work.source, position, handed_ns)


def _absent(context: Context, work: _Work) -> int:
    """Return what is not proved about the log that would hold the outputs."""
    stream = _output_stream(work)
    bounds = context.stream_bounds(stream)
    holds = (bounds.is_complete, bounds.begin <= context.cut[stream], context.readiness_restored)
    return sum(BITS[name] for name, held in zip(_ABSENT, holds, strict=True) if not held)


def _skipped_splits(work: _Work, aborted: Flags, removal: Array) -> Array:
    promise = work.history.context.instance(work.pipeline.instance).promise
    if promise.holds("delivery") is False:
        return np.full(len(aborted), split_index("input-skipped", "not durable"))
    names = ("aborted", "removed", "power", "no output")
    splits = [split_index("input-skipped", name) for name in names]
    return np.select(
        [aborted, removal == Removal.REMOVED, removal == Removal.POWER], splits[:3], splits[3]
    )
