"""Decides whether a broker may have dropped a message because its settings limit a backlog or a
log.

Every system states its limits in one form (`ConsumerPromise.drops`). A limit that the message could
have reached before the group went past it permits the loss. A limit that it could not have reached
excuses nothing. A limit that is not known leaves it open.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.acks import NEVER
from analysis.kernels.matching import Given
from harness.contracts.rows import DropLimit

#: Bytes that a broker stores with a message at most: key, headers and metadata of the client.
OVERHEAD_BYTES: Final = 1024


def dropped(given: Given, rows: Array, *, were_refused: bool = False) -> tuple[Array, Array]:
    """For log rows that the group is not given: whether a limit permits it, and whether that is not
    known.

    ``were_refused``: they were given once and came back; they are due again until the end.
    """
    permitted, open_ = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    reading = given.history.context.reading(given.group)
    if not reading.may_drop:
        return permitted, open_
    in_order = reading.order == "stream" and not were_refused
    stored_ns, until_ns = _stored(given, rows), _until(given, rows, in_order=in_order)
    for limit in reading.drops or (DropLimit(),):
        reached, unknown = _reached(given, limit, rows, stored_ns, until_ns)
        concerned = _concerned(given, limit, rows)
        permitted |= reached & concerned
        open_ |= unknown & concerned
    return permitted, open_ & ~permitted


def _concerned(given: Given, limit: DropLimit, rows: Array) -> Array:
    """Whether each row is of a topic that the limit concerns."""
    context = given.history.context
    if not limit.topic:
        return np.ones(len(rows), np.bool_)
    topic = np.append(context.stream_topic, -1)[given.history.bucket.log["stream"][rows]]
    return np.asarray(
        topic == (context.topics.index(limit.topic) if limit.topic in context.topics else -2)
    )


def _reached(
    given: Given, limit: DropLimit, rows: Array, stored_ns: Array, until_ns: Array
) -> tuple[Array, Array]:
    """Whether each row could have reached the limit, and whether that cannot be said."""
    unknown = (stored_ns <= 0) | (until_ns == NEVER)
    message_bytes = given.history.context.message_bytes
    if limit.after_s is not None:
        reached = until_ns - stored_ns >= round(limit.after_s * 1e9)
    elif limit.beyond_bytes is not None and message_bytes:
        most_bytes = _stored_by(given, rows, until_ns) * (message_bytes + OVERHEAD_BYTES)
        reached = most_bytes > limit.beyond_bytes
    else:
        return np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    return reached & ~unknown, unknown


def _stored(given: Given, rows: Array) -> Array:
    """The earliest that each row can have been stored: when its send was called. 0 = not known."""
    history = given.history
    slots = history.log_slot[rows]
    found = np.zeros(len(rows), np.int64)
    known = np.flatnonzero(slots >= 0)
    known = known[history.sent[slots[known]] >= 0]
    found[known] = history.of_send("t_start_ns", slots[known])
    return found


def _until(given: Given, rows: Array, *, in_order: bool) -> Array:
    """When the group went past each row. `NEVER` = not known.

    ``in_order``: with the first delivery of a later row of the stream; else with the end of its
    last session.
    """
    context = given.history.context
    sessions = context.group_sessions().get(given.group, [])
    ends = [session.end_ns for session in sessions]
    found = np.full(len(rows), max(ends) if ends and all(ends) else NEVER, np.int64)
    if not in_order:
        return found
    table, log_stream = given.history.bucket.deliveries, given.history.bucket.log["stream"]
    for number in np.unique(log_stream[rows]).tolist():
        own = np.flatnonzero(log_stream == number)
        first = given.first[own]
        times = np.where(first >= 0, table["t_ns"][first] if len(table["t_ns"]) else NEVER, NEVER)
        passed = np.append(np.minimum.accumulate(times[::-1])[::-1], NEVER)
        asked = np.flatnonzero(log_stream[rows] == number)
        after = np.searchsorted(own, rows[asked], side="right")
        found[asked] = np.minimum(found[asked], passed[after])
    return found


def _stored_by(given: Given, rows: Array, until_ns: Array) -> Array:
    """Messages that the stream of each row can hold at a time; one that the audit read twice is
    one."""
    log = given.history.bucket.log
    log_stream = log["stream"]
    found = np.zeros(len(rows), np.int64)
    for number in np.unique(log_stream[rows]).tolist():
        here = np.flatnonzero(log_stream == number)
        places = np.stack([log.take(name, here) for name in ("ledger", "position", "batch")])
        _, first = np.unique(places, axis=1, return_index=True)
        called = np.sort(_stored(given, here[first]))
        asked = np.flatnonzero(log_stream[rows] == number)
        found[asked] = np.searchsorted(called, until_ns[asked], side="right")
    return found
