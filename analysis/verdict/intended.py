"""The messages that a plan asks for over time: at one rate, or following its profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.capture.lives import absences_ns
from harness.contracts.plan import Plan
from harness.contracts.rows import WorkerRow

Times = npt.NDArray[np.int64]


class Intended:
    """Messages due until a time, of all producers together.

    Args:
        rate_per_s: 0 = unlimited: nothing is asked for.
        profile: (seconds, share of the rate) from the start of load on; none = all of it.
        zero_ns: start of load.
        end_ns: the load ended, or was cut short.
        absences: what a producer was asked for, and from when to when no life of it was there to be
            asked.
    """

    def __init__(
        self,
        rate_per_s: float,
        profile: Sequence[Sequence[float]],
        *,
        zero_ns: int,
        end_ns: int,
        warm_up_s: float = 0.0,
        absences: Sequence[tuple[Intended, int, int]] = (),
    ) -> None:
        rows = [(float(seconds), float(share)) for seconds, share in profile]
        rows = rows or [(max(end_ns - zero_ns, 0) / 1e9, 1.0)]
        load_s = sum(seconds for seconds, _ in rows)
        mean = sum(seconds * share for seconds, share in rows) / load_s if load_s else 1.0
        self.peak_per_s = rate_per_s * max((share for _, share in rows), default=1.0)
        self.mean_share = mean
        self._absences = tuple(absences)
        warm_up_ns = round(warm_up_s * 1e9)
        self._begin_ns, self._end_ns = zero_ns - warm_up_ns, max(end_ns, zero_ns)
        seconds = np.array([warm_up_s, *(each for each, _ in rows)])
        shares = np.array([mean, *(share for _, share in rows)])
        self._ends_ns = np.concatenate(([0.0], np.cumsum(seconds))) * 1e9
        self._counts = np.concatenate(([0.0], np.cumsum(seconds * shares * rate_per_s)))

    def due_by(self, t_ns: Times) -> npt.NDArray[np.float64]:
        """Messages due by each time, from the start of the warm-up on; not whole numbers."""
        due = self._asked_by(t_ns)
        for client, begin_ns, end_ns in self._absences:
            within = np.clip(t_ns, begin_ns, max(begin_ns, end_ns))
            due = due - (client._asked_by(within) - client._asked_by(np.array([begin_ns])))
        return due

    def _asked_by(self, t_ns: Times) -> npt.NDArray[np.float64]:
        """The same, of clients that were never away."""
        since = np.clip(t_ns, self._begin_ns, self._end_ns) - self._begin_ns
        return np.asarray(np.interp(since, self._ends_ns, self._counts))

    def due_within(self, borders_ns: Times) -> npt.NDArray[np.float64]:
        """Messages due between each border and the next."""
        return np.diff(self.due_by(borders_ns))


def absences_of(
    plan: Plan, workers: Sequence[WorkerRow], zero_ns: int, end_ns: int
) -> list[Absence]:
    """Return the times between the lives of producers in which no load was asked for. ``workers``
    are those of the manifest.
    """
    return [
        (
            Intended(
                client.rate_per_s,
                client.profile or plan.profile,
                zero_ns=zero_ns,
                end_ns=end_ns,
            ),
            begin_ns,
            until_ns,
        )
        for client, begin_ns, until_ns in absences_ns(plan, workers)
    ]


def intended_of(
    plan: Plan, zero_ns: int, end_ns: int, absences: Sequence[Absence] = ()
) -> Intended:
    """Return what the plan of a run asks for. The plan of an import may have no profile."""
    return Intended(
        plan.rate_per_s,
        plan.profile,
        zero_ns=zero_ns,
        end_ns=end_ns,
        warm_up_s=plan.warm_up_s,
        absences=absences,
    )


#: What a producer is asked for, and from when to when no life of it was there.
Absence = tuple[Intended, int, int]
