"""Plans machines for a load: a model of few constants, each measured, held against four sizes.

python -m bench.capacity            # the tables of docs/howto/several-machines.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from harness.plan.buckets import MAX_BUCKETS, ROWS_PER_BUCKET

_M: Final = 1e6


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a million messages of 150 B. Measured: docs/performance.md, by the name of the
    row."""

    client_cpu_s: float = 5.0  # confluent-kafka, linger 40 ms, 6 partitions
    brokers_cpu_s: float = 7.6  # the same row: three brokers, three copies
    record_cpu_s: float = 0.9  # recording and sealing
    # 8.9 s for the 3.25M of kafka-storm, whose readers are bound by a core
    audit_cpu_s: float = 2.7
    judge_cpu_s: float = 0.237  # bench.scale: from 10^8 to 10^9
    judge_fixed_cpu_s: float = 2.0  # bench.scale: merging, writing, a first task of each process
    sealed_mb: float = 7.1  # bench.scale; a live run 3 to 5
    broker_mb: float = 420.0  # howto/runs-of-hours.md: three copies and their indexes
    raw_kb_a_rate: float = 6.2  # the same page: of each message a second, what waits to be sealed
    bucket_gib: float = 1.25  # memory of a task of ROWS_PER_BUCKET sends, log rows and deliveries
    payload_b: float = 150.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that plans assume."""

    cores: int = 16
    used: float = 0.7  # of its cores at most, so that it keeps its times
    network_mb_s: float = 1200.0  # 10 Gb/s


COSTS: Final = Costs()
MACHINE: Final = Machine()
#: Sends, CPU-s and bytes of `python -m bench.scale --messages 10000000 100000000 1000000000`, and
#: of `analyze` of two hours at 50,000/s.
MEASURED: Final = (
    (10**7, 4.4, 71_284_847),
    (10**8, 32.9, 712_011_293),
    (360_250_000, 84.0, 2_165_000_000),
    (10**9, 243.5, 7_086_862_165),
)


@dataclass(frozen=True, slots=True)
class Load:
    """A load of ``rate`` messages per second for ``seconds``, and what it requires."""

    rate: float
    seconds: float
    costs: Costs = COSTS
    machine: Machine = MACHINE

    @property
    def messages(self) -> float:
        """Return the number of messages of the whole load."""
        return self.rate * self.seconds

    def cores(self, cpu_s: float) -> float:
        """Busy cores for what costs so much a million."""
        return self.rate * cpu_s / _M

    def machines(self, cpu_s: float) -> int:
        """Return the number of machines for this CPU time per million messages."""
        return math.ceil(self.cores(cpu_s) / (self.machine.cores * self.machine.used))

    @property
    def partitions(self) -> int:
        """At least, for buckets of the size that a task is made for."""
        return math.ceil(self.messages / ROWS_PER_BUCKET)

    @property
    def judge_cpu_s(self) -> float:
        """Return the CPU time of judging, in seconds."""
        return self.costs.judge_fixed_cpu_s + self.messages / _M * self.costs.judge_cpu_s

    @property
    def judge_minutes(self) -> float:
        """On the machines of the clients, which are free then."""
        return self.judge_cpu_s / (self.machines(self.costs.client_cpu_s) * self.machine.cores) / 60

    @property
    def task_gib(self) -> float:
        """Memory of a task, with as many buckets as there may be."""
        rows = max(self.messages / min(self.partitions, MAX_BUCKETS), 1)
        return self.costs.bucket_gib * rows / ROWS_PER_BUCKET

    @property
    def audit_network(self) -> float:
        """Return the share of the driver's network that the audit reads; more than 1 is not
        available."""
        return self.rate * self.costs.payload_b / _M / self.machine.network_mb_s


def planned(needs: dict[str, Load]) -> list[str]:
    """A table: a row a need, a column a load."""
    costs = COSTS
    rows = {
        "messages": lambda n: f"{n.messages:.3g}",
        "clients: busy cores, machines": lambda n: _pair(n, costs.client_cpu_s),
        "brokers, three copies: busy cores, machines": lambda n: _pair(n, costs.brokers_cpu_s),
        "recording and sealing: busy cores": lambda n: f"{n.cores(costs.record_cpu_s):,.1f}",
        "audit that reads along: busy cores, of the driver": lambda n: (
            f"{n.cores(costs.audit_cpu_s):,.1f}"
        ),
        "audit: share of the driver's 10 Gb/s": lambda n: f"{n.audit_network:.0%}",
        "raw rows that wait, all machines": lambda n: _bytes(n.rate * costs.raw_kb_a_rate * 1e3),
        "sealed, kept": lambda n: _bytes(n.messages * costs.sealed_mb),
        "brokers' disks, an hour kept": lambda n: _bytes(
            n.rate * min(n.seconds, 3600) * costs.broker_mb
        ),
        "judging: CPU-s; minutes on the clients' machines": lambda n: (
            f"{n.judge_cpu_s:,.0f}; {n.judge_minutes:,.1f}"
        ),
        f"partitions for buckets of {ROWS_PER_BUCKET / _M:.0f}M": lambda n: f"{n.partitions:,}",
        f"memory of a judging task, {MAX_BUCKETS} buckets": lambda n: f"{n.task_gib:,.1f} GiB",
    }
    lines = ["| | " + " | ".join(needs) + " |", "| --- |" + " ---: |" * len(needs)]
    return lines + [
        f"| {name} | " + " | ".join(map(said, needs.values())) + " |" for name, said in rows.items()
    ]


def _pair(need: Load, cpu_s: float) -> str:
    return f"{need.cores(cpu_s):,.1f}, {need.machines(cpu_s):,}"


def _bytes(number: float) -> str:
    for unit in ("MB", "GB", "TB"):
        number /= 1e6 if unit == "MB" else 1e3
        if number < 1000:
            break
    return f"{number:,.1f} {unit}"


def checked() -> list[str]:
    """A table: what the model says of judging the four sizes, and what was measured."""
    lines = [
        "| sends | CPU-s: model | measured | sealed: model | measured |",
        "| ---: |" + " ---: |" * 4,
    ]
    for messages, cpu_s, size in MEASURED:
        need = Load(float(messages), 1.0)
        model = (
            f"{need.judge_cpu_s:.1f} | {cpu_s:.1f} | {_bytes(messages * COSTS.sealed_mb)} | "
            f"{_bytes(size)}"
        )
        lines.append(f"| {messages:,} | {model} |")
    return lines


LOADS: Final = {
    "50,000/s, two hours": Load(50e3, 7200),
    "1 M/s, an hour": Load(1e6, 3600),
    "10 M/s, a day": Load(10e6, 86400),
}


def main() -> None:
    print("\n".join([*checked(), "", *planned(LOADS)]))


if __name__ == "__main__":
    main()
