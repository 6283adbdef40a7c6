"""Delta debugging: of many parts those that are needed, found in few tests. Pure.

A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Trans. Softw. Eng.
28(2), 2002, section 3.2 (*ddmin*). Two things differ. Parts come in an order, the longest gains
first, and the first try is to leave out all of them. And a chunk that was needed is not tried again
when a later one went: that a part is needed by a smaller whole, too, is what usually holds;
`single` is for those who must be sure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
#: Asks, whatever a question and an answer are, whether these of the parts are enough.
Suffices = Callable[[list[T]], Generator[Any, Any, bool]]


def ddmin(parts: Sequence[T], suffices: Suffices[T]) -> Generator[Any, Any, list[T]]:
    """The parts that are needed; each was left out, alone or with others, and did not suffice.

    Args:
        parts: in the order in which to leave them out; all of them suffice.
        suffices: whether these of the parts are enough.
    """
    kept = list(parts)
    length = len(kept)
    while kept:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + length :]
            if (yield from suffices(rest)):
                kept = rest
            else:
                start += length
        if length == 1:
            break
        length = (min(length, len(kept)) + 1) // 2
    return kept


def single(parts: Sequence[T], suffices: Suffices[T]) -> Generator[Any, Any, list[T]]:
    """Leave out one part at a time until none can go: what is left is *1-minimal*, as they call
    it."""
    kept, needed_in_a_row = list(parts), 0
    while needed_in_a_row < len(kept):
        candidate, rest = kept[0], kept[1:]
        if (yield from suffices(rest)):
            kept, needed_in_a_row = rest, 0
        else:
            kept, needed_in_a_row = [*rest, candidate], needed_in_a_row + 1
    return kept
