"""Progress output of a run (stderr only: stdout is for results).

`harness.progress.choose` takes a live view on a terminal, plain lines elsewhere (each phase and
fault event, and the figures every ten seconds), or nothing but problems when quiet. All three keep
the same `RunView` and may be fed from any thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.contracts.rows import FaultEvent
from harness.faultlog import FaultLog, FaultRecord
from harness.invocation import for_terminal
from harness.plan.profile import Rows, share_at

#: Rates are taken over this long: short enough to show a stall, long enough not to flicker.
RATE_WINDOW_S = 2.0
#: How far back the sparkline of the live view goes.
HISTORY_S = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Second(NamedTuple):
    """A second or so of the past."""

    ok_per_s: float
    in_fault: bool


@dataclass(slots=True)
class RunView:
    """The state that every form of the view shows. Not locked: `BaseProgress` does that."""

    title: str = ""
    rate_per_s: float = 0.0
    warm_up_s: float = 0.0
    load_s: float = 0.0
    # of a load that goes at what the machine keeps; 0 = it claims its rate
    at_most_per_s: float = 0.0
    profile: Rows = ()
    judges_cut: bool = True  # a load that is cut short is judged, too
    phase: str = ""
    note: str = ""
    phase_start: float = field(default_factory=time.monotonic)
    elapsed_s: float = 0.0  # into the load; negative while warming up
    epoch_ns: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    samples: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)
    history: deque[Second] = field(default_factory=lambda: deque(maxlen=HISTORY_S))
    # when the newest second of the history ended, and ok by then
    counted: tuple[float, int] | None = None
    faults: FaultLog = field(default_factory=FaultLog)
    # seconds into the load, and the fault that comes then
    planned: tuple[tuple[float, str], ...] = ()
    first_problem_s: float | None = None
    waiting: dict[str, str] = field(default_factory=dict)
    download: tuple[str, float | None] | None = None

    def begin(
        self,
        title: str,
        rate_per_s: float,
        warm_up_s: float,
        load_s: float,
        at_most_per_s: float = 0.0,
        profile: Rows = (),
    ) -> None:
        self.title, self.rate_per_s, self.warm_up_s, self.load_s = (
            title,
            rate_per_s,
            warm_up_s,
            load_s,
        )
        self.at_most_per_s, self.profile = at_most_per_s, profile
        self.numbers, self.samples, self.faults, self.waiting = {}, deque(), FaultLog(), {}
        self.elapsed_s, self.epoch_ns, self.first_problem_s = 0.0, 0, None
        self.history.clear()
        self.counted, self.planned = None, ()

    def update(self, numbers: Mapping[str, float]) -> None:
        now = time.monotonic()
        if "elapsed_s" in numbers:
            self.elapsed_s = float(numbers["elapsed_s"])
            self.epoch_ns = time.monotonic_ns() - int(self.elapsed_s * 1e9)
        self.numbers.update(
            {key: int(value) for key, value in numbers.items() if key != "elapsed_s"}
        )
        if self.first_problem_s is None and (self.numbers.get("fail") or self.numbers.get("info")):
            self.first_problem_s = self.elapsed_s
        self.samples.append((now, dict(self.numbers)))
        self._keep_history(now)
        while len(self.samples) > 2 and self.samples[1][0] <= now - RATE_WINDOW_S:
            self.samples.popleft()

    def _keep_history(self, now: float) -> None:
        ok = self.numbers.get("ok", 0)
        since, before = self.counted or (now, ok)
        if now - since >= 1.0:
            self.history.append(Second((ok - before) / (now - since), bool(self.active())))
        if now - since >= 1.0 or self.counted is None:
            self.counted = (now, ok)

    def coming(self) -> list[tuple[float, str]]:
        """Faults that are still to come: seconds until each, and what it is."""
        return [(t_s - self.elapsed_s, text) for t_s, text in self.planned if t_s > self.elapsed_s]

    def per_second(self, key: str) -> float:
        """Growth of a counter over the last `RATE_WINDOW_S`."""
        if len(self.samples) < 2:
            return 0.0
        (t0, old), (t1, new) = self.samples[0], self.samples[-1]
        return max(0.0, (new.get(key, 0) - old.get(key, 0)) / (t1 - t0)) if t1 > t0 else 0.0

    def record_fault(self, event: FaultEvent) -> str:
        """Keep a fault event (a row of faults.jsonl) and say it in a line; empty: not worth one."""
        was_effective = any(each.id == event.id and each.effective for each in self.faults.records)
        record, what = self.faults.add(event), event.event
        text = f"fault #{record.id}: {fault_text(record)}"
        if what == "inject":
            return text
        if what == "skipped":
            return f"{text} skipped, {record.skipped}"
        if what == "effect" and was_effective and record.effective:
            return f"{text}: by its end, {record.evidence}"
        if what == "effect":
            return f"{text} {'took effect' if record.effective else 'had NO EFFECT'}: {record.evidence}"
        if what == "healed":
            is_over = "undone, but NOT HEALED in time" if record.end_ns else "NOT HEALED"
            return f"{text} {'healed' if record.recovered else is_over}"
        return ""

    def active(self) -> list[FaultRecord]:
        """The faults that are in effect now."""
        return [record for record in self.faults.records if record.is_applied]


def fault_text(record: FaultRecord) -> str:
    """``kill kafka-1``."""
    return f"{record.kind} {record.hit}"


class BaseProgress:
    """The `harness.protocols.cluster.Progress` that the three forms share. ``close`` is idempotent.

    The lock guards the state only and is never held while a line is written: rich's redrawing
    thread takes its own lock first and then this one.
    """

    def __init__(self) -> None:
        self.view = RunView()
        self._lock = threading.Lock()

    def begin(
        self,
        title: str,
        *,
        rate_per_s: float,
        warm_up_s: float,
        load_s: float,
        at_most_per_s: float = 0.0,
        profile: Rows = (),
        judges_cut: bool = True,
    ) -> None:
        """Another run starts; ``title`` is for people ("kafka-quick · unsafe · seed 7")."""
        with self._lock:
            self.view.begin(title, rate_per_s, warm_up_s, load_s, at_most_per_s, profile)
            self.view.judges_cut = judges_cut

    def plan_faults(self, planned: Sequence[tuple[float, str]]) -> None:
        """The faults of the run that begins: seconds into the load and text of each, in order of
        time."""
        with self._lock:
            self.view.planned = tuple(planned)

    def phase(self, name: str, note: str = "") -> None:
        with self._lock:
            self.view.phase, self.view.note = name, note
            self.view.phase_start = time.monotonic()
            self.view.download = None
        self._print_phase()

    def update(self, **numbers: Any) -> None:
        """``elapsed_s`` into the load and running totals: attempted, ok, fail, info, open,
        delivered ..."""
        with self._lock:
            self.view.update(numbers)
        self._print_numbers()

    def fault(self, event: FaultEvent) -> None:
        """A row of faults.jsonl."""
        with self._lock:
            line = self.view.record_fault(event)
        if line:
            self._print_fault(line)

    def download(self, text: str, fraction: float | None) -> None:
        """How far a download or a build is; ``fraction`` None while unknown, 1.0 ends it."""
        done = fraction is not None and fraction >= 1
        with self._lock:
            self.view.download = None if done else (text, fraction)
        self._print_download(text, fraction)

    def note(self, text: str) -> None:
        """Something the user should know now."""
        self._print(for_terminal(text))

    def waiting(self, worker: str, text: str) -> None:
        """Show what a worker waits for in vain until the next run; an empty text ends this."""
        with self._lock:
            self.view.waiting.pop(worker, None)
            if text:
                self.view.waiting[worker] = text

    def close(self) -> None:
        """Leave the terminal as it was."""

    def _print(self, text: str) -> None: ...
    def _print_fault(self, text: str) -> None:
        self._print(text)

    def _print_phase(self) -> None: ...
    def _print_numbers(self) -> None: ...
    def _print_download(self, text: str, fraction: float | None) -> None: ...


def one_line(text: str) -> str:
    """Text from outside, without line breaks or control characters."""
    return _CONTROL.sub(" ", text).strip()


def clock(seconds: float) -> str:
    """``01:42``; before the start of load ``-00:03``."""
    whole = int(abs(seconds))
    return f"{'-' if seconds < 0 else ''}{whole // 60:02d}:{whole % 60:02d}"


def figures(view: RunView) -> list[str]:
    """The state of load and consumers in a line's worth of parts."""
    if view.phase == "audit":
        return [
            f"audit {view.numbers.get('audited', 0):,} rows, {view.per_second('audited'):,.0f}/s"
        ]
    parts = [f"{view.phase} {clock(view.elapsed_s)}", *load_figures(view)]
    parts += [
        f"{key} {view.numbers[key]:,} ({view.per_second(key):,.0f}/s)"
        for key in ("piped", "delivered")
        if view.numbers.get(key)
    ]
    active = ", ".join(fault_text(record) for record in view.active())
    return [*parts, f"now: {active}"] if active else parts


def load_figures(view: RunView) -> list[str]:
    """Rate against target, and the running totals of outcomes."""
    numbers = view.numbers
    asked_per_s = view.rate_per_s * share_at(view.profile, view.elapsed_s)
    target = f" of {asked_per_s:,.0f}" if view.rate_per_s else ""
    if view.at_most_per_s > view.rate_per_s:
        target += f" (at most {view.at_most_per_s:,.0f})"
    parts = [f"{view.per_second('ok'):,.0f}/s{target}"]
    parts += [f"{key} {numbers.get(key, 0):,}" for key in ("ok", "info", "fail", "open")]
    late_ms = numbers.get("late_max_ns", 0) / 1e6
    return [*parts, f"delay {late_ms:,.0f} ms"]
