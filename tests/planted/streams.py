"""The eleven planted streams: ten messages each, and the one right label.

No checker we know of labels all eleven right. Each stream is what one producer sent to one
partition and what an independent reader found there; expected is the class with its exact messages
(empty for a run that must come out clean). Message numbers are 0-based, so "1,4,2,3,4" reads 0, 3,
1, 2, 3 here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.planted.tiny import History

MESSAGES: Final = 10
#: A sequence that nobody sent, far beyond the last one.
PHANTOM_SEQ: Final = 97


@dataclass(frozen=True, slots=True)
class PlantedStream:
    """``log``: sequences in log order. ``failed``: sends that ended in a definite fail.

    ``cls``: the right class, "" for clean; ``seqs``: its messages, each once, by root cause;
    ``shape``: prefix, middle or tail for a loss.
    """

    name: str
    log: tuple[int, ...]
    cls: str = ""
    seqs: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    shape: str = ""

    def history(self) -> History:
        h = History()
        for seq in range(MESSAGES):
            if seq in self.failed:
                h.send(seq, "fail", error="MSG_SIZE_TOO_LARGE")
            else:
                h.send(seq)
        return h.log(*self.log).deliver(*self.log).commit(len(self.log))


def _without(*missing: int) -> tuple[int, ...]:
    return tuple(seq for seq in range(MESSAGES) if seq not in missing)


_ALL: Final = _without()

STREAMS: Final[Sequence[PlantedStream]] = (
    PlantedStream("clean", _ALL),
    # 3 stored before 1 and 2, then again in its place: one root cause, message 3
    PlantedStream(
        "premature-then-repeat", (0, 3, 1, 2, *range(3, 10)), "premature-then-repeat", (3,)
    ),
    # 1 comes after 2: 1 is the late one
    PlantedStream("swap", (0, 2, 1, *range(3, 10)), "producer-reorder", (1,)),
    PlantedStream("duplicate-in-place", (0, 1, 1, *range(2, 10)), "write-duplicate", (1,)),
    # a rewind on retry: first appearances stay in order, so these are duplicates and nothing else
    PlantedStream("block-resent", (*range(6), *range(2, 10)), "write-duplicate", (2, 3, 4, 5)),
    PlantedStream("acked-loss-middle", _without(4), "acked-lost", (4,), shape="middle"),
    PlantedStream("acked-loss-first-two", _without(0, 1), "acked-lost", (0, 1), shape="prefix"),
    PlantedStream("acked-loss-last-two", _without(8, 9), "acked-lost", (8, 9), shape="tail"),
    PlantedStream("failed-and-absent", _without(4), failed=(4,)),
    PlantedStream("failed-yet-present", _ALL, "false-nack", (4,), failed=(4,)),
    PlantedStream("phantom", (*range(5), PHANTOM_SEQ, *range(5, 10)), "phantom", (PHANTOM_SEQ,)),
)
