"""Says who used CPU and memory: over time for a chart, and who took it from a run that missed its
rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.findings import Usage
from harness.contracts.rows import MetricRow

#: With more than this share of the cores taken by others, they are what to end.
_OTHERS_SHARE = 0.15
#: With more than this share of the cores busy, there was nothing left.
_BUSY_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class CpuShares:
    """Cores in use, on average over the load. ``brokers``: None where their processes are not seen,
    as in containers; they are among ``others`` then. ``stolen``: given to other machines of the
    host."""

    cores: int
    clients: float
    brokers: float | None
    own: float
    others: float
    stolen: float

    def text(self) -> str:
        """Return who took how many cores, the largest share first."""
        took = [("the clients", self.clients), ("brokerstorm itself", self.own)]
        took += [] if self.brokers is None else [("the brokers", self.brokers)]
        took.sort(key=lambda each: -each[1])
        took.append(
            (
                "all else, brokers included," if self.brokers is None else "other programs",
                self.others,
            )
        )
        told = ", ".join(f"{who} {cores:.1f}" for who, cores in took)
        stolen = (
            f", and {self.stolen:.1f} went to other machines of the host"
            if self.stolen >= 0.05
            else ""
        )
        return f"of {self.cores} cores {told}{stolen}: {self._advice()}"

    def _advice(self) -> str:
        less = "`--set load.rate='{at_most: N}'` claims no rate"
        if self.brokers is not None and self.others + self.stolen > _OTHERS_SHARE * self.cores:
            return f"end other programs, or give the run cores of its own; {less}"
        used = self.clients + (self.brokers or 0.0) + self.own + self.others + self.stolen
        if used > _BUSY_SHARE * self.cores:
            return f"more cores, larger batches (linger) or fewer partitions give it back; {less}"
        return "some were idle, so it was not for lack of CPU"


def cpu_use(metrics: Sequence[MetricRow], start_ns: int, end_ns: int) -> CpuShares | None:
    """Return CPU use between two times; None if the machine's was not recorded, as in older
    captures."""
    rows = [row for row in metrics if start_ns <= row.t_ns <= end_ns]
    machine = [row for row in rows if row.busy_s is not None]
    if len(machine) < 2:
        return None
    first, last = machine[0], machine[-1]
    length_s = max((last.t_ns - first.t_ns) / 1e9, 1e-9)
    busy = ((last.busy_s or 0.0) - (first.busy_s or 0.0)) / length_s
    stolen, own = (last.stolen_s - first.stolen_s) / length_s, (last.own_s - first.own_s) / length_s
    used = {role: _used_s(rows, role) for role in ("worker", "node")}
    clients = (used["worker"] or 0.0) / length_s
    brokers = None if used["node"] is None else used["node"] / length_s
    others = max(busy - clients - (brokers or 0.0) - own, 0.0)
    return CpuShares(last.cores, clients, brokers, own, others, stolen)


def _used_s(rows: Sequence[MetricRow], role: str) -> float | None:
    """CPU seconds of all processes of a role; one that starts again counts from nothing again."""
    samples: dict[str, list[float]] = {}
    for row in rows:
        if (name := getattr(row, role)) and row.cpu_s is not None:
            samples.setdefault(name, []).append(row.cpu_s)
    if not samples:
        return None
    steps = [(before, after) for own in samples.values() for before, after in pairwise(own)]
    return sum(after - before if after >= before else after for before, after in steps)


#: Samples kept of a process, and processes kept (those that used most CPU): what a chart can show.
MAX_SAMPLES = 600
MAX_PROCESSES = 24


def usage_of(metrics: Sequence[MetricRow], zero_ns: int) -> list[Usage]:
    """One row a process: nodes first, then clients, each in order of their names.

    Of a long run every n-th sample is kept; CPU is the mean since the one before.

    Args:
        zero_ns: start of load.
    """
    own: dict[tuple[str, str], list[tuple[int, float, int]]] = {}
    for row in metrics:
        if row.cpu_s is not None and row.rss_bytes is not None:
            role = "node" if row.node else "client"
            sample = (row.t_ns, row.cpu_s, row.rss_bytes)
            own.setdefault((role, row.node or row.worker), []).append(sample)
    rows = [_row(name, role, samples, zero_ns) for (role, name), samples in own.items()]
    rows.sort(key=lambda row: sum(value or 0 for value in row.cpu), reverse=True)
    return sorted(rows[:MAX_PROCESSES], key=lambda row: (row.role != "node", row.name))


def _row(name: str, role: str, samples: list[tuple[int, float, int]], zero_ns: int) -> Usage:
    kept = samples[:: -(-len(samples) // MAX_SAMPLES)]
    cpu: list[float | None] = [None]
    for (t_ns, cpu_s, _), (later_ns, later_s, _) in pairwise(kept):
        # A restarted process counts from 0: its use in between is unknown.
        known = later_ns > t_ns and later_s >= cpu_s
        cpu.append(round((later_s - cpu_s) * 1e9 / (later_ns - t_ns), 3) if known else None)
    return Usage(
        name=name,
        role=role,
        t_s=[round((t_ns - zero_ns) / 1e9, 3) for t_ns, _, _ in kept],
        cpu=cpu,
        rss_bytes=[rss for _, _, rss in kept],
    )
