"""The transactions that producers journalled, as columns: small enough to go to every task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.contracts.rows import TransactionRow
from harness.records import Asked, Outcome

Array = npt.NDArray[Any]
_NUMBER_BITS = 32


def _none() -> Array:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TransactionColumns:
    """One element each, by (instance, number). Times as in `TransactionRow`."""

    instance: Array = field(default_factory=_none)
    number: Array = field(default_factory=_none)
    asked: Array = field(default_factory=_none)
    outcome: Array = field(default_factory=_none)
    t_begin_ns: Array = field(default_factory=_none)
    t_asked_ns: Array = field(default_factory=_none)
    t_done_ns: Array = field(default_factory=_none)
    id: Array = field(default_factory=_none)

    @classmethod
    def from_rows(cls, rows: Iterable[TransactionRow]) -> TransactionColumns:
        ordered = sorted(rows, key=lambda row: (row.instance, row.number))
        return cls(
            *(
                np.array([getattr(row, name) for row in ordered], np.int64)
                for name in (
                    "instance",
                    "number",
                    "asked",
                    "outcome",
                    "t_begin_ns",
                    "t_asked_ns",
                    "t_done_ns",
                    "id",
                )
            )
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionColumns) and all(
            np.array_equal(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.number)

    def index(self, instance: Array, number: Array) -> npt.NDArray[np.int32]:
        """Which of them each is; -1 = none."""
        if not len(self):
            return np.full(len(number), -1, np.int32)
        keys = self.instance << _NUMBER_BITS | self.number
        asked = instance.astype(np.int64) << _NUMBER_BITS | number
        at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return np.where((keys[at] == asked) & (number > 0), at, -1).astype(np.int32)

    @property
    def is_committed(self) -> npt.NDArray[np.bool_]:
        """The client said that it was committed."""
        return np.asarray(self.outcome == Outcome.OK)

    @property
    def may_be_committed(self) -> npt.NDArray[np.bool_]:
        """A commit was asked for, and no abort was acknowledged."""
        return np.asarray(((self.asked & Asked.COMMIT) > 0) & (self.outcome != Outcome.ABORTED))

    def figures(self) -> dict[str, float]:
        """How many came out how, and how long commits took that were acknowledged; empty without
        any."""
        if not len(self):
            return {}
        aborted = int(np.count_nonzero(self.outcome == Outcome.ABORTED))
        took_ms = (self.t_done_ns - self.t_asked_ns)[self.is_committed] / 1e6
        figures: dict[str, float] = {
            "committed": len(took_ms),
            "aborted": aborted,
            "unknown": len(self) - len(took_ms) - aborted,
        }
        if not len(took_ms):
            return figures
        quantiles = np.quantile(took_ms, (0.5, 0.99, 1.0)).round(3).tolist()
        return figures | dict(
            zip(("commit_ms_p50", "commit_ms_p99", "commit_ms_max"), quantiles, strict=True)
        )

    def name(self, at: int) -> str:
        """For people: producer instance and number, and what became of it."""
        said = {int(Outcome.OK): "committed", int(Outcome.ABORTED): "aborted"}
        wanted = "commit" if self.asked[at] & Asked.COMMIT else "abort"
        asked = f"its {wanted} was not confirmed" if self.asked[at] else "its end was not requested"
        return f"transaction {self.instance[at]}/{self.number[at]}, {said.get(int(self.outcome[at]), asked)}"
