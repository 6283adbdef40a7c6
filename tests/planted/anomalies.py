"""Plants anomalies at random places that do not touch each other, and says what judging must
find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.planted.planters import PLANTERS, Block, Truth
from tests.planted.scripts import SPAN, Stream

#: Kinds of one message of a producer and stream: its first, or its last.
EDGES = ("acked-lost-prefix", "acked-lost-tail")
#: Name ids are asked for these texts.
ERRORS = ("MSG_TIMED_OUT", "MSG_SIZE_TOO_LARGE", "QUEUE_FULL")


def plant_all(
    streams: Sequence[Stream],
    siblings: Mapping[int, Stream],
    anomalies: Mapping[str, int],
    error: Mapping[str, int],
    rng: np.random.Generator,
) -> Truth:
    """Plant ``anomalies[kind]`` of each kind at random places that do not touch each other.

    ``siblings``: by stream number, a stream of the same topic that wrong-partition rows end up in.
    """
    unknown = set(anomalies) - set(PLANTERS)
    if unknown:
        raise ValueError(f"cannot plant {sorted(unknown)}; known: {', '.join(PLANTERS)}")
    truth = Truth()
    inner = {kind: count for kind, count in anomalies.items() if kind not in EDGES}
    blocks = _blocks(streams, siblings, error, sum(inner.values()), rng)
    for kind, count in inner.items():
        for _ in range(count):
            PLANTERS[kind](blocks.pop(), truth)
    for kind in EDGES:
        for block in _edge_blocks(streams, siblings, error, kind, anomalies.get(kind, 0), rng):
            PLANTERS[kind](block, truth)
    return truth


def _blocks(
    streams: Sequence[Stream],
    siblings: Mapping[int, Stream],
    error: Mapping[str, int],
    count: int,
    rng: np.random.Generator,
) -> list[Block]:
    """Random blocks, the first and last of each stream left out."""
    sizes = [max(s.messages // SPAN - 2, 0) for s in streams]
    if count > sum(sizes):
        raise ValueError(f"{count} anomalies need {count} blocks; these streams have {sum(sizes)}")
    edges = np.cumsum(sizes)
    found = []
    for place in rng.choice(int(edges[-1]), count, replace=False).tolist():
        number = int(np.searchsorted(edges, place, side="right"))
        number_of_block = place - (int(edges[number - 1]) if number else 0) + 1
        stream = streams[number]
        i = int(rng.integers(len(stream.instances)))
        found.append(Block(stream, number_of_block * SPAN, i, siblings[stream.number], error))
    return found


def _edge_blocks(
    streams: Sequence[Stream],
    siblings: Mapping[int, Stream],
    error: Mapping[str, int],
    kind: str,
    count: int,
    rng: np.random.Generator,
) -> list[Block]:
    """The first or last block of random (stream, instance) pairs."""
    pairs = [(s, i) for s in streams for i in range(len(s.instances))]
    if count > len(pairs):
        raise ValueError(f"{count} x {kind}, but there are only {len(pairs)} producers and streams")
    chosen = [pairs[k] for k in rng.choice(len(pairs), count, replace=False).tolist()]
    return [
        Block(s, 0 if kind == EDGES[0] else s.messages - SPAN, i, siblings[s.number], error)
        for s, i in chosen
    ]
