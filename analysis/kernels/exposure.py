"""Counts how much of what a known bug needs a run has met, from its capture and for every client alike.

`of_bucket` runs with the kernels, `exposure_of` adds the buckets up and joins what the workers reported
themselves. docs/reference/exposure.md says what each counter means; `harness.exposure` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from analysis.capture.bucket import Array, Bucket, chunks
from harness.contracts.rows import WorkerRow
from harness.faultlog import FaultRecord
from harness.records import Event, Kind, Outcome

#: What comes from the fault log.
OF_FAULTS = ("faults_effective", "requests_held")
#: What is counted in the buckets.
COUNTED = (
    "sends_open_at_fault",
    "sends_before_first_ok",
    "sends_not_ok",
    "deliveries",
    "redeliveries",
    "assignments",
    "acks_confirmed",
    "nacks",
    "rollbacks",
)
#: What is counted once a run (`analysis.kernels.deaths`).
COUNTED_ONCE = ("clients_at_fault",)
_FEW_TIMES = 16  # looked at one by one, which is quicker than a search for each send
_EVENTS = {
    "assignments": (Event.ASSIGN,),
    "acks_confirmed": (Event.ACK_CONFIRMED, Event.COMMIT),
    "nacks": (Event.NACK,),
    "rollbacks": (Event.ROLLBACK_END, Event.RECOVER),
}


def of_bucket(bucket: Bucket) -> dict[str, int]:
    """The counters of one bucket, by name; probes are not counted."""
    found = dict.fromkeys(COUNTED, 0)
    starts = sorted(fault.start_ns for fault in bucket.context.faults if fault.effective)
    times = np.array(starts, np.int64)
    sends, deliveries = bucket.sends, bucket.deliveries
    first_ok = _first_ok(bucket)
    for part in chunks(sends.rows):
        judged = sends["kind"][part] != Kind.PROBE
        start, done, outcome = (sends[name][part] for name in ("t_start_ns", "t_done_ns", "outcome"))
        if not judged.all():
            start, done, outcome = start[judged], done[judged], outcome[judged]
        found["sends_open_at_fault"] += open_at(times, start, done)
        found["sends_before_first_ok"] += int(np.count_nonzero(start < first_ok))
        found["sends_not_ok"] += int(np.count_nonzero((outcome != Outcome.OK) & (outcome != Outcome.ABORTED)))
    for part in chunks(deliveries.rows):
        event = deliveries["event"][part]
        given = (event == Event.DELIVER) & (deliveries["kind"][part] != Kind.PROBE)
        found["deliveries"] += int(np.count_nonzero(given))
        found["redeliveries"] += int(np.count_nonzero(given & (deliveries["redelivery"][part] > 0)))
        seen = np.bincount(event, minlength=max(Event) + 1)
        for name, kinds in _EVENTS.items():
            found[name] += int(sum(seen[kind] for kind in kinds))
    return found


def _first_ok(bucket: Bucket) -> int:
    """When the first message was acknowledged; without one, the end of time."""
    sends = bucket.sends
    first = np.iinfo(np.int64).max
    for part in chunks(sends.rows):
        ok = (sends["outcome"][part] == Outcome.OK) & (sends["kind"][part] != Kind.PROBE)
        done = sends["t_done_ns"][part]
        first = int((done if ok.all() else done[ok]).min(initial=first))
    return first


def open_at(times: Array, start: Array, done: Array) -> int:
    """Sends that were open at each of the ascending ``times``, summed; ``done`` 0 = never."""
    if not len(times) or not len(start):
        return 0
    until = np.where(done == 0, np.iinfo(np.int64).max, done)
    # Of a chunk of a long run nearly all the others have a send either behind or before them.
    begin = np.searchsorted(times, min(start.min(), until.min()))
    times = times[begin : np.searchsorted(times, max(start.max(), until.max()), side="right")]
    if len(times) <= _FEW_TIMES:
        return sum(int(np.count_nonzero(until > t)) - int(np.count_nonzero(start >= t)) for t in times)
    # The times in (start, until) of each send, as a difference of two ranks.
    return int(np.sum(np.searchsorted(times, until) - np.searchsorted(times, start, side="right")))


def exposure_of(
    counts: Iterable[Mapping[str, int]], faults: Sequence[FaultRecord], workers: Iterable[WorkerRow]
) -> dict[str, int]:
    """All counters of a run: the buckets' sums, effective faults, and what the workers reported."""
    found = dict.fromkeys((*COUNTED, *COUNTED_ONCE), 0)
    for each in counts:
        for name in found:
            found[name] += each.get(name, 0)
    found["faults_effective"] = sum(fault.effective and not fault.skipped for fault in faults)
    found["requests_held"] = sum(fault.details.held for fault in faults)
    for worker in workers:
        for name, value in worker.exposure.items():
            found[name] = found.get(name, 0) + value
    return found
