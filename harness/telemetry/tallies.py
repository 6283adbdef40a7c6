"""Counts what the clients of a run did, from the rows that their workers capture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.contracts.plan import ConsumerPlan, Plan, ProducerPlan
from harness.contracts.rows import NameRow
from harness.records import Check, Event, Kind, Outcome, TableId
from harness.rundir import RunDir
from harness.segments import Rows, SegmentRows
from harness.telemetry.instruments import (
    CONSUMED,
    DELIVERY_DURATION,
    OPEN_CALLS,
    SEND_DURATION,
    SENT,
    Distribution,
    Labels,
    Values,
    labels,
)
from harness.telemetry.json_tail import JsonTail

#: ``error.type`` is to have few values: what comes after so many is the fallback of the
#: conventions.
MOST_ERRORS: Final = 30
OTHER_ERROR: Final = "_OTHER"
#: ``error.type`` of a send that the client never answered.
NO_ANSWER: Final = "no_answer"
#: Where a run has more topics, points name the one that the scenario declares instead of each.
MOST_TOPICS: Final = 50
_OUTCOMES: Final = {outcome: outcome.name.lower() for outcome in Outcome if outcome}
_OUTCOME_BITS: Final = 3
_ERROR_BITS: Final = 32
#: By `ConsumerPromise.subscription`: the attribute that names who shares the messages, and what the
#: client calls its receiving.
_GROUPS: Final = {"group": ("messaging_consumer_group_name", "poll"), "queue": ("", "receive")}
_SUBSCRIPTION: Final = ("messaging_destination_subscription_name", "receive")


class Counts:
    """Counters and distributions by their labels, for everybody who counts into them."""

    def __init__(self) -> None:
        self.numbers: dict[Labels, int] = defaultdict(int)
        self.durations: dict[Labels, Distribution] = defaultdict(Distribution)


def destinations(plan: Plan) -> dict[str, dict[str, str]]:
    """Topic -> the attribute that names it, or what it was made from where there are many."""
    if len(plan.topics) <= MOST_TOPICS:
        return {topic.name: {"messaging_destination_name": topic.name} for topic in plan.topics}
    return {
        topic.name: {"messaging_destination_template": topic.declared or topic.name}
        for topic in plan.topics
    }


class SendTally:
    """The sends of one producer."""

    def __init__(self, plan: Plan, producer: ProducerPlan, run: RunDir, counts: Counts) -> None:
        folder = run.worker(producer.name)
        self._rows = SegmentRows(folder, TableId.SENDS)
        self._errors = _Errors(folder)
        self._counts = counts
        self._worker = producer.name
        self._is_closed = False
        self._system = plan.system
        groups = sorted(plan.lane_groups, key=lambda group: group.first)
        self._first_lanes = np.array([group.first for group in groups])
        named = destinations(plan)
        self._topics = [named.get(group.topic, {}) for group in groups]

    def read(self) -> None:
        for rows in self._rows.new_rows():
            self._count(rows, rows["outcome"].astype(np.int64))

    def close(self) -> None:
        """Sends without an outcome get none any more: they are *info*."""
        self._is_closed = True
        rows = self._rows.unanswered()
        self._count(rows, np.full(len(rows), int(Outcome.INFO)), is_answered=False)

    def open_calls(self) -> tuple[Labels, int]:
        count = 0 if self._is_closed else len(self._rows.unanswered())
        return labels(brokerstorm_worker=self._worker), count

    def _count(
        self, rows: Rows, outcomes: npt.NDArray[np.int64], *, is_answered: bool = True
    ) -> None:
        groups = np.searchsorted(self._first_lanes, rows["lane"], side="right") - 1
        keys = (groups << _OUTCOME_BITS | outcomes) << _ERROR_BITS | rows["error"]
        durations_ns = rows["t_done_ns"] - rows["t_start_ns"]
        for key, mine in _grouped(keys):
            known = self._labels(key, is_answered)
            self._counts.numbers[labels(**known)] += len(mine)
            if is_answered:
                timed = labels(**known, messaging_operation_type="send")
                self._counts.durations[timed].add(durations_ns[mine])

    def _labels(self, key: int, is_answered: bool) -> dict[str, str]:
        rest, error = key >> _ERROR_BITS, key & (1 << _ERROR_BITS) - 1
        topic, outcome = rest >> _OUTCOME_BITS, rest & (1 << _OUTCOME_BITS) - 1
        known = {
            **self._topics[topic],
            "messaging_system": self._system,
            "messaging_operation_name": "send",
            "brokerstorm_outcome": _OUTCOMES[Outcome(outcome)],
        }
        if outcome not in (Outcome.OK, Outcome.ABORTED):
            known["error_type"] = self._errors.type_of(error) if is_answered else NO_ANSWER
        return known


class _Errors:
    """The names of a worker's error ids, cut to the class of the error."""

    def __init__(self, folder: Path) -> None:
        self._tail = JsonTail(folder / "names.jsonl", NameRow)
        self._types: dict[int, str] = {}

    def type_of(self, number: int) -> str:
        if number not in self._types:
            for row in self._tail.rows():
                if row.kind == "error":
                    name = row.text.partition(":")[0].strip()
                    is_known = (
                        name in self._types.values() or len(set(self._types.values())) < MOST_ERRORS
                    )
                    self._types[row.id] = name if name and is_known else OTHER_ERROR
        return self._types.get(number, OTHER_ERROR)


class DeliveryTally:
    """The deliveries of one consumer."""

    def __init__(self, plan: Plan, consumer: ConsumerPlan, run: RunDir, counts: Counts) -> None:
        self._rows = SegmentRows(run.worker(consumer.name), TableId.DELIVERIES)
        self._counts = counts
        shared_as, operation = _GROUPS.get(consumer.promise.subscription, _SUBSCRIPTION)
        self._known = {
            "messaging_system": plan.system,
            "messaging_operation_name": operation,
            **({shared_as: consumer.group} if shared_as else {}),
        }
        named = destinations(plan)
        #: By name id of the stream; what is not of the plan (0, a retry topic) has no name here.
        self._topics = [{}, *(named[t.name] for t in plan.topics for _ in range(t.most_partitions))]

    def read(self) -> None:
        for rows in self._rows.new_rows():
            self._count(rows[rows["kind"] == Event.DELIVER])

    def _count(self, rows: Rows) -> None:
        streams = np.where(rows["stream"] < len(self._topics), rows["stream"], 0)
        late_ns = rows["t_ns"] - rows["header"]["t_intended_ns"]
        is_ours = (rows["check"] == Check.OK) & (rows["header"]["kind"] != Kind.PROBE)
        for stream, mine in _grouped(streams):
            known = labels(**self._known, **self._topics[stream])
            self._counts.numbers[known] += len(mine)
            ours = mine[is_ours[mine]]
            if len(ours):
                self._counts.durations[known].add(late_ns[ours])


def _grouped(keys: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each key once, with the places where it is."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    for mine in np.split(order, begins[1:]) if len(keys) else ():
        yield int(keys[mine[0]]), mine


class Tallies:
    """All clients of a run."""

    def __init__(self, plan: Plan, run: RunDir) -> None:
        self._sent, self._delivered = Counts(), Counts()
        self._sends = [SendTally(plan, each, run, self._sent) for each in plan.producers]
        self._deliveries = [
            DeliveryTally(plan, each, run, self._delivered) for each in plan.consumers
        ]

    def read(self) -> None:
        for producer in self._sends:
            producer.read()
        for consumer in self._deliveries:
            consumer.read()

    def close(self) -> None:
        """No worker writes any more."""
        self.read()
        for each in self._sends:
            each.close()

    def values(self) -> Values:
        return {
            SENT: dict(self._sent.numbers),
            SEND_DURATION: {known: replace(each) for known, each in self._sent.durations.items()},
            CONSUMED: dict(self._delivered.numbers),
            DELIVERY_DURATION: {
                known: replace(each) for known, each in self._delivered.durations.items()
            },
            OPEN_CALLS: dict(each.open_calls() for each in self._sends),
        }
