"""The name of a message, for people and in result.json: ``1/0/5``, of a later attempt
``1/0/5.2``."""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = re.compile(r"(\d+)/(\d+)/(\d+)(?:\.(\d+))?")


class MessageId(NamedTuple):
    """Sequence number ``seq`` of a producer instance in a lane. ``attempt`` None: all of them."""

    instance: int
    lane: int
    seq: int
    attempt: int | None = None

    def __str__(self) -> str:
        return f"{self.instance}/{self.lane}/{self.in_lane}"

    @property
    def in_lane(self) -> str:
        """``5``, of a later attempt ``5.2``."""
        return str(self.seq) if self.attempt is None else f"{self.seq}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> MessageId | None:
        """Parse the name of a message; None if the text is something else (a place, a window)."""
        found = _TEXT.fullmatch(text)
        if not found:
            return None
        numbers = (part if part is None else int(part) for part in found.groups())
        return cls(*numbers)  # type: ignore[arg-type]

    @classmethod
    def witness(cls, instance: int, lane: int, seq: int, attempt: int) -> str:
        """The text of one attempt; of the first it says nothing."""
        return str(cls(instance, lane, seq, attempt or None))

    @property
    def whole(self) -> MessageId:
        """Return the id that all attempts of the message share."""
        return self._replace(attempt=None)
