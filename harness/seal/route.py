"""Assigns rows to buckets: by their header's lane, or by their stream where no lane can be read.

A bucket holds everything one judging task needs. Lanes are the unit of every question about sends
and the log, so a lane's rows of all three tables meet in one bucket, wherever they were found; the
events of a stream (assign, commit ...) go where the lanes of that stream are. That works because a
partition's lanes share a bucket and a topic with keyed or routed lanes, whose messages can be in
any of its streams, stays whole; `Router` refuses a plan that breaks this.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from harness.contracts.plan import Plan
from harness.contracts.rows import LaneGroup
from harness.errors import BrokerstormError

IntArray = npt.NDArray[np.int64]
_NO_LANE = -1


class Router:
    """Lookup arrays of a plan; ``extra_streams`` maps ids beyond the plan's own to their names."""

    def __init__(self, plan: Plan, extra_streams: Mapping[int, str] | None = None) -> None:
        self.buckets = plan.buckets
        lanes = max((g.first + g.count for g in plan.lane_groups), default=0)
        self._lane = np.full(lanes + 1, _NO_LANE, np.int64)  # the last entry means "no such lane"
        for group in plan.lane_groups:
            cycle = np.resize(np.asarray(group.buckets, np.int64), group.count)
            self._lane[group.first : group.first + group.count] = cycle
        names = dict(enumerate(plan.streams(), start=1)) | dict(extra_streams or {})
        self._stream = np.zeros(max(names, default=0) + 1, np.int64)
        for number, name in names.items():
            self._stream[number] = plan.stream_bucket(name)
        _require_whole_topics(plan)

    def of_streams(self, streams: npt.NDArray[np.int32]) -> IntArray:
        """Bucket of each stream id; unknown ids go to bucket 0."""
        known = np.where((streams < 0) | (streams >= len(self._stream)), 0, streams)
        return self._stream[known]

    def of_rows(self, lanes: npt.NDArray[np.uint32], streams: npt.NDArray[np.int32]) -> IntArray:
        """Bucket of each row: its lane's, or its stream's when the plan has no such lane."""
        chosen = self._lane.take(lanes, mode="clip")
        if len(chosen) and chosen.min() == _NO_LANE:
            homeless = np.flatnonzero(chosen == _NO_LANE)
            chosen[homeless] = self.of_streams(streams[homeless])
        return chosen


def _require_whole_topics(plan: Plan) -> None:
    """Every lane whose messages may lie in a stream must be in that stream's bucket."""
    for topic in plan.topics:
        groups = [g for g in plan.lane_groups if g.topic == topic.name]
        for partition in range(topic.most_partitions):
            found = set().union(*(_reach(g, partition) for g in groups)) if groups else set()
            if len(found) > 1:
                raise BrokerstormError(
                    f"the plan puts lanes that share stream {topic.name}-{partition} into buckets "
                    f"{sorted(found)}: rows of one stream must meet in one bucket"
                )


def _reach(group: LaneGroup, partition: int) -> set[int]:
    """Buckets of the lanes of ``group`` whose messages may be stored in ``partition``."""
    if group.mode == "partition":
        return {group.bucket(group.first + partition)} if partition < group.count else set()
    return set(group.buckets)
