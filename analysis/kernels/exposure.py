"""Counts how much of what a known bug needs a run has met, from its capture and for every client
alike.

`of_bucket` runs with the kernels, `exposure_of` adds the buckets up and joins what the workers
reported themselves. docs/explanation/anomalies.md says what each counter means; `harness.exposure`
names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from analysis.capture.bucket import Array, Bucket, chunks
from analysis.capture.context import Context
from harness.contracts.rows import WorkerRow
from harness.faultlog import FaultRecord
from harness.records import Event, Kind, Outcome

#: What comes from the fault log.
OF_FAULTS = ("faults_effective", "requests_held", "answers_changed")
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
#: No time is later: of a call without an answer.
NEVER = int(np.iinfo(np.int64).max)
_FEW_TIMES = 16  # looked at one by one, which is quicker than a search for each send
_EVENTS = {
    "assignments": (Event.ASSIGN,),
    "acks_confirmed": (Event.ACK_CONFIRMED, Event.COMMIT),
    "nacks": (Event.NACK,),
    "rollbacks": (Event.ROLLBACK_END, Event.RECOVER),
}


class Calls:
    """The result of one pass over the sends of a bucket: chunks of `NEEDED` columns, in any order.

    Attributes:
        longest_ns: the longest call, `NEVER` when one had no answer; probes included.
    """

    NEEDED = ("kind", "outcome", "t_start_ns", "t_done_ns")

    def __init__(self, context: Context) -> None:
        self.longest_ns = 0
        self._times = np.array(sorted(f.start_ns for f in context.faults if f.effective), np.int64)
        self._open_at_fault = self._not_ok = 0
        self._first_ok = NEVER  # when the first message was acknowledged
        self._before_it: list[Array] = []  # when calls began, before what was the first until then

    @classmethod
    def from_bucket(cls, bucket: Bucket) -> Calls:
        """Count the calls of all sends of a bucket."""
        calls = cls(bucket.context)
        for _ in calls.watching(bucket.sends.in_turn(*cls.NEEDED)):
            pass
        return calls

    def watching(self, sends: Iterable[dict[str, Array]]) -> Iterator[dict[str, Array]]:
        """The chunks, each of them counted."""
        for chunk in sends:
            self._add(*(chunk[name] for name in self.NEEDED))
            yield chunk

    def _add(self, kind: Array, outcome: Array, start: Array, done: Array) -> None:
        if len(start):
            longest = int((done - start).max()) if done.all() else NEVER
            self.longest_ns = max(self.longest_ns, longest)
        judged = kind != Kind.PROBE
        if not judged.all():
            start, done, outcome = start[judged], done[judged], outcome[judged]
        ok = outcome == Outcome.OK
        self._first_ok = int((done if ok.all() else done[ok]).min(initial=self._first_ok))
        if int(start.min(initial=NEVER)) < self._first_ok:
            self._before_it.append(start[start < self._first_ok])
        self._open_at_fault += open_at(self._times, start, done)
        self._not_ok += len(ok) - int(np.count_nonzero(ok | (outcome == Outcome.ABORTED)))

    def counts(self) -> dict[str, int]:
        """Counters of the sends by name; probes are not counted."""
        return {
            "sends_open_at_fault": self._open_at_fault,
            "sends_before_first_ok": sum(
                int((t_ns < self._first_ok).sum()) for t_ns in self._before_it
            ),
            "sends_not_ok": self._not_ok,
        }


def of_bucket(bucket: Bucket, calls: Calls | None = None) -> dict[str, int]:
    """The counters of one bucket, by name; probes are not counted. ``calls``: which have seen all
    sends."""
    found = dict.fromkeys(COUNTED, 0) | (calls or Calls.from_bucket(bucket)).counts()
    deliveries = bucket.deliveries
    for part in chunks(deliveries.rows):
        event = deliveries["event"][part]
        given = (event == Event.DELIVER) & (deliveries["kind"][part] != Kind.PROBE)
        found["deliveries"] += int(np.count_nonzero(given))
        found["redeliveries"] += int(np.count_nonzero(given & (deliveries["redelivery"][part] > 0)))
        seen = np.bincount(event, minlength=max(Event) + 1)
        for name, kinds in _EVENTS.items():
            found[name] += int(sum(seen[kind] for kind in kinds))
    return found


def open_at(times: Array, start: Array, done: Array) -> int:
    """Sends that were open at each of the ascending ``times``, summed; ``done`` 0 = never."""
    if not len(times) or not len(start):
        return 0
    until = np.where(done == 0, NEVER, done)
    # In a chunk of a long run, nearly all other times come before or after all of its sends.
    begin = np.searchsorted(times, min(start.min(), until.min()))
    times = times[begin : np.searchsorted(times, max(start.max(), until.max()), side="right")]
    if len(times) <= _FEW_TIMES:
        return sum(
            int(np.count_nonzero(until > t)) - int(np.count_nonzero(start >= t)) for t in times
        )
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
    found["answers_changed"] = sum(fault.details.answers for fault in faults)
    for worker in workers:
        for name, value in worker.exposure.items():
            found[name] = found.get(name, 0) + value
    return found
