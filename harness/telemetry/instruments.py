"""The metrics that a run gives: name, kind, unit and meaning of each, and the attributes of their
points.

``messaging.*`` follow OpenTelemetry's semantic conventions for messaging clients (status:
development), with their units, attributes and histogram bounds; what the conventions do not know is
``brokerstorm.*``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

#: Attributes of a point, in the order of their names.
Labels = tuple[tuple[str, str], ...]


class InstrumentKind(Enum):
    """The kinds of instruments, as OpenTelemetry and Prometheus have them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric. ``unit``: UCUM, as the conventions write it."""

    name: str
    kind: InstrumentKind
    unit: str
    about: str


#: Upper bounds of the buckets of every histogram, in seconds, as the conventions advise.
BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_BOUNDS_NS: Final = np.array([round(bound_s * 1e9) for bound_s in BOUNDS_S])

SENT: Final = Instrument(
    "messaging.client.sent.messages",
    InstrumentKind.COUNTER,
    "{message}",
    "Sends with an outcome; at the end of the load also those that never got one.",
)
SEND_DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "From the call of a client to its answer.",
)
CONSUMED: Final = Instrument(
    "messaging.client.consumed.messages",
    InstrumentKind.COUNTER,
    "{message}",
    "Messages that consumers were handed, each time it was.",
)
DELIVERY_DURATION: Final = Instrument(
    "brokerstorm.delivery.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "From when a message was due to when a consumer was handed it.",
)
OPEN_CALLS: Final = Instrument(
    "brokerstorm.calls.open",
    InstrumentKind.GAUGE,
    "{call}",
    "Sends that the client has not answered.",
)
ASKED_RATE: Final = Instrument(
    "brokerstorm.rate.asked",
    InstrumentKind.GAUGE,
    "{message}/s",
    "The rate that the scenario asks for now.",
)
SEND_DELAY: Final = Instrument(
    "brokerstorm.send.delay",
    InstrumentKind.GAUGE,
    "s",
    "The most that a message was offered after it was due, in the last second.",
)
BLOCKED: Final = Instrument(
    "brokerstorm.send.blocked",
    InstrumentKind.COUNTER,
    "s",
    "Time in which the client kept a producer waiting.",
)
CPU: Final = Instrument(
    "brokerstorm.process.cpu.time",
    InstrumentKind.COUNTER,
    "s",
    "CPU time of a broker node or a worker.",
)
MEMORY: Final = Instrument(
    "brokerstorm.process.memory.usage",
    InstrumentKind.GAUGE,
    "By",
    "Memory of a broker node or a worker that runs.",
)
PHASE: Final = Instrument(
    "brokerstorm.run.phase", InstrumentKind.GAUGE, "{phase}", "1 for the phase that the run is in."
)
FAULT_ACTIVE: Final = Instrument(
    "brokerstorm.fault.active",
    InstrumentKind.GAUGE,
    "{fault}",
    "1 while a fault is applied, 0 after it.",
)
FAULT_START: Final = Instrument(
    "brokerstorm.fault.start_time",
    InstrumentKind.GAUGE,
    "s",
    "When a fault was injected, as Unix time.",
)
EVENTS: Final = Instrument(
    "brokerstorm.worker.events",
    InstrumentKind.COUNTER,
    "{event}",
    "Events of workers: disconnect, assign, error, frozen, hang, stall.",
)
INSTRUMENTS: Final = (
    *(
        SENT,
        SEND_DURATION,
        CONSUMED,
        DELIVERY_DURATION,
        OPEN_CALLS,
        ASKED_RATE,
        SEND_DELAY,
        BLOCKED,
    ),
    *(CPU, MEMORY, PHASE, FAULT_ACTIVE, FAULT_START, EVENTS),
)


@dataclass(slots=True)
class Distribution:
    """Durations by bucket of `BOUNDS_S`, the last one for what is longer."""

    counts: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(BOUNDS_S) + 1, np.int64)
    )
    sum_s: float = 0.0
    min_s: float = math.inf
    max_s: float = -math.inf

    def add(self, durations_ns: npt.NDArray[np.int64]) -> None:
        """Count some more; at least one."""
        # a bound belongs to its bucket
        bins = np.searchsorted(_BOUNDS_NS, durations_ns, side="left")
        self.counts = self.counts + np.bincount(bins, minlength=len(BOUNDS_S) + 1)
        self.sum_s += float(durations_ns.sum()) / 1e9
        self.min_s = min(self.min_s, float(durations_ns.min()) / 1e9)
        self.max_s = max(self.max_s, float(durations_ns.max()) / 1e9)


Value = float | Distribution
#: What a run has given so far. Counters count from its start.
Values = dict[Instrument, dict[Labels, Value]]
#: The values of now; when their counting began and when they were read, both Unix time in ns.
Now = Callable[[], tuple[Values, int, int]]


def labels(**known: str) -> Labels:
    """Attributes by name, ``_`` standing for ``.``; empty ones are left out."""
    return tuple(sorted((key.replace("_", "."), value) for key, value in known.items() if value))
