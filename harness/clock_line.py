"""Puts the clock of another machine on the time line of this one.

Each round trip bounds how far the other clock is ahead: what it said lies between when it was asked
and when the answer came. The shortest trip of a measurement is its *anchor*. Between anchors the
difference of two clocks that are not set changes steadily, so it is interpolated there and kept
beyond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measurement: at ``t_ns`` of the other clock this one showed ``ahead_ns`` more, +-
    ``bound_ns``."""

    t_ns: int
    ahead_ns: int
    bound_ns: int

    @classmethod
    def of_trip(cls, asked_ns: int, told_ns: int, came_ns: int) -> Anchor:
        """One round trip: asked and answered by this clock, told by the other."""
        half_ns = (came_ns - asked_ns + 1) // 2
        return cls(told_ns, asked_ns + half_ns - told_ns, half_ns)


def shortest(trips: Iterable[Anchor]) -> Anchor:
    """The round trip that says most.

    Raises:
        ValueError: there was none.
    """
    return min(trips, key=lambda trip: trip.bound_ns)


@dataclass(frozen=True, slots=True)
class ClockLine:
    """A correction to the times of another machine, by anchors in the order of time."""

    anchors: tuple[Anchor, ...]

    @property
    def bound_ns(self) -> int:
        """How wrong a time on this line may be: half the round trip of the worst measurement, and
        as much more as the difference of the clocks changed from one to the next."""
        worst = max(anchor.bound_ns for anchor in self.anchors)
        return worst + max(
            (abs(b.ahead_ns - a.ahead_ns) for a, b in pairwise(self.anchors)), default=0
        )

    @property
    def ahead_ns(self) -> int:
        """The latest difference."""
        return self.anchors[-1].ahead_ns

    def here(self, there_ns: int) -> int:
        """A time of the other machine on this one's clock."""
        return there_ns + int(self._ahead(np.array([there_ns], np.int64))[0])

    def there(self, here_ns: int) -> int:
        """A time of this machine on the other one's clock."""
        return here_ns - int(self._ahead(np.array([here_ns - self.ahead_ns], np.int64))[0])

    def put_here(self, times: npt.NDArray[np.int64]) -> None:
        """Put times of the other machine on this one's line, in place; 0 means no time."""
        times += np.where(times == 0, 0, self._ahead(times))

    def _ahead(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Relative to the first anchor, so that no float holds a large number."""
        first = self.anchors[0]
        at = [float(anchor.t_ns - first.t_ns) for anchor in self.anchors]
        more = [float(anchor.ahead_ns - first.ahead_ns) for anchor in self.anchors]
        found = np.interp((times - first.t_ns).astype(np.float64), at, more)
        return np.rint(found).astype(np.int64) + first.ahead_ns

    def document(self) -> list[dict[str, int]]:
        """For the other machine, and the manifest."""
        return [asdict(anchor) for anchor in self.anchors]

    @classmethod
    def of_document(cls, rows: Sequence[dict[str, int]]) -> ClockLine:
        """Return the line whose anchors a manifest or plan holds, one mapping for each."""
        return cls(tuple(Anchor(**row) for row in rows))
