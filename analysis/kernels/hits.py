"""Hits: the messages of one class that a kernel found, in columns, not yet ranked or worded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.classes import CLASSES, PRECONDITIONS

Array = npt.NDArray[Any]

#: Bit of each precondition in `Hits.unmet`.
BITS = {name: 1 << i for i, name in enumerate(PRECONDITIONS)}


@dataclass(frozen=True, slots=True)
class Note:
    """The details of one hit: words for its sentence, and the other effects of its cause."""

    detail: str = ""
    symptoms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hits:
    """Hits of one class, one element each. All arrays have one length.

    Attributes:
        slot: message, -1 = a row or window without one.
        t_ns: when.
        split: index into the class's splits (0 when it has none).
        unmet: bits of the preconditions that do not hold.
        stream: where it was seen, 0 unknown.
        row: log row that shows it, -1 = none (the sequence around it is then told by slots).
        delivery: delivery row that shows it, -1 = none.
        session: consumer session, 0 = none.
        note: words for a hit, by its index here; asked for witnesses only.
        names: of the splits, where the capture and not the table of classes names them.
    """

    cls: str
    slot: Array
    t_ns: Array
    split: Array
    unmet: Array
    stream: Array
    row: Array
    delivery: Array
    session: Array
    note: Callable[[int], Note] | None = None
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names by which the hits are counted apart; one empty name if there are none."""
        return self.names or tuple(CLASSES[self.cls].splits) or ("",)


def hits(
    cls: str,
    *,
    slot: Array,
    t_ns: Array,
    split: str | Array = "",
    unmet: Array | int = 0,
    stream: Array | int = 0,
    row: Array | int = -1,
    delivery: Array | int = -1,
    session: Array | int = 0,
    note: Callable[[int], Note] | None = None,
    names: tuple[str, ...] = (),
) -> Hits:
    """Hits with defaults filled in; ``split`` by name for all, or an index for each (into
    ``names``)."""
    count = len(slot)
    if isinstance(split, str):
        known = names or tuple(CLASSES[cls].splits) or ("",)
        split = np.full(count, known.index(split), np.int8)

    def column(value: Array | int) -> Array:
        return (
            value
            if isinstance(value, np.ndarray)
            else np.broadcast_to(np.array(value, np.int64), count)
        )

    return Hits(
        cls=cls,
        slot=slot.astype(np.int64, copy=False),
        t_ns=t_ns.astype(np.int64, copy=False),
        split=split.astype(np.int8, copy=False),
        unmet=column(unmet).astype(np.uint32, copy=False),
        stream=column(stream),
        row=column(row),
        delivery=column(delivery),
        session=column(session),
        note=note,
        names=names,
    )


def unmet_names(mask: int) -> tuple[str, ...]:
    """Names of the preconditions in a bit mask."""
    return tuple(name for name, bit in BITS.items() if mask & bit)


def split_index(cls: str, name: str) -> int:
    """Index of a split in the class's table."""
    return tuple(CLASSES[cls].splits).index(name)
