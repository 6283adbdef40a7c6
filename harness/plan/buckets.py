"""Buckets: which lanes one task judges. What must stay together is in one of them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.contracts.rows import LaneGroup

MIN_BUCKETS: Final = 8  # below it a two-core machine already waits for the largest
MAX_BUCKETS: Final = 256
#: Sends a bucket; a Spark task then takes a second or two and some hundred MB.
ROWS_PER_BUCKET: Final = 5_000_000
#: Topic and partition, -1 = all of its partitions.
Unit = tuple[str, int]


def with_buckets(
    groups: Sequence[LaneGroup], rows: int, ways: Sequence[tuple[str, str]] = ()
) -> tuple[int, list[LaneGroup]]:
    """Give every lane its bucket; how many buckets, and the groups with them.

    What must stay together is a unit: a partition, or a whole topic as soon as one of its groups is
    keyed or routed. Topics count alike, so a unit weighs its share of its topic. With ``ways`` of
    pipelines (topic read, topic written) a partition that is written lies with those that are read
    for it.
    """
    whole = {group.topic for group in groups if group.mode != "partition"}
    parts: dict[Unit, float] = {}
    for group in groups:
        if group.topic in whole:
            parts[group.topic, -1] = 1.0
        else:
            parts |= {(group.topic, index): 1.0 / group.count for index in range(group.count)}
    home = _joined(parts, ways)
    weights: dict[Unit, float] = {}
    for unit, weight in parts.items():
        weights[home[unit]] = weights.get(home[unit], 0.0) + weight
    wanted = min(max(MIN_BUCKETS, -(-rows // ROWS_PER_BUCKET)), MAX_BUCKETS)
    count, placed = _balance(weights, min(wanted, len(weights)))
    return count, [
        replace(
            group,
            buckets=[placed[home[group.topic, -1]]]
            if group.topic in whole
            else [placed[home[group.topic, index]] for index in range(group.count)],
        )
        for group in groups
    ]


def _joined(units: Iterable[Unit], ways: Sequence[tuple[str, str]]) -> dict[Unit, Unit]:
    """Map each unit (a topic and a partition, or -1 for the whole topic) to the unit that
    represents all that share a bucket with it: a message that is read from partition i is written
    to partition i modulo the number of partitions written.
    """
    home = {unit: unit for unit in units}

    def root(unit: Unit) -> Unit:
        while home[unit] != unit:
            unit = home[unit]
        return unit

    for source, to in ways:
        read = [unit for unit in home if unit[0] == source]
        written = [unit for unit in home if unit[0] == to]
        # A whole topic lies with everything that is read for it, or written from it.
        together = list(zip(read, itertools.cycle(written), strict=False))
        if read[0][1] < 0:
            together = [(read[0], unit) for unit in written]
        for one, other in together:
            home[root(one)] = root(other)
    return {unit: root(unit) for unit in home}


def _balance(weights: Mapping[Unit, float], wanted: int) -> tuple[int, dict[Unit, int]]:
    """Place units in ``wanted`` buckets, or in up to twice as many if that is more even (12: 12,
    not 8)."""
    most = min(2 * wanted - 1, len(weights), MAX_BUCKETS) if wanted == MIN_BUCKETS else wanted
    best: tuple[float, int, dict[Unit, int]] | None = None
    for count in range(wanted, most + 1):
        largest, placed = _place(weights, count)
        unevenness = round(largest * count / sum(weights.values()), 6)
        if best is None or unevenness < best[0]:
            best = (unevenness, count, placed)
    assert best is not None
    return best[1], best[2]


def _place(weights: Mapping[Unit, float], count: int) -> tuple[float, dict[Unit, int]]:
    """Largest first into the least loaded bucket; the largest load and where everything went."""
    loads = [(0.0, bucket) for bucket in range(count)]
    placed: dict[Unit, int] = {}
    for unit in sorted(weights, key=lambda unit: -weights[unit]):
        load, bucket = heapq.heappop(loads)
        placed[unit] = bucket
        heapq.heappush(loads, (load + weights[unit], bucket))
    return max(load for load, _ in loads), placed
