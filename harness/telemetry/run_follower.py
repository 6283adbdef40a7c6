"""Follows a run in progress by what it writes into its folder; changes nothing in it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Final

from harness.contracts.plan import Plan
from harness.contracts.rows import EventRow, FaultEvent, MetricRow
from harness.faultlog import FaultLog, FaultRecord
from harness.plan.profile import share_at
from harness.rundir import RunDir
from harness.telemetry.instruments import (
    ASKED_RATE,
    BLOCKED,
    CPU,
    EVENTS,
    FAULT_ACTIVE,
    FAULT_START,
    MEMORY,
    PHASE,
    SEND_DELAY,
    Labels,
    Values,
    labels,
)
from harness.telemetry.json_tail import JsonTail
from harness.telemetry.tallies import Tallies

#: A process without a newer sample does not run: it uses no memory and nothing waits for it.
FRESH_NS: Final = 3_000_000_000
LOAD_PHASES: Final = ("warm-up", "load")


class RunFollower:
    """One run: `read` once a second, `close` when its workers have ended, `values` whenever
    somebody asks.

    Any thread may call.

    Args:
        name: what every point names the run by.
    """

    def __init__(self, plan: Plan, run: RunDir, name: str) -> None:
        self.began_ns = time.time_ns()  # Unix time
        self._lock = threading.Lock()
        self._plan = plan
        self._about = labels(
            brokerstorm_run=name,
            brokerstorm_scenario=plan.scenario,
            brokerstorm_variant=plan.variant,
        )
        self._wall_ns = time.time_ns() - time.monotonic_ns()
        self._tallies = Tallies(plan, run)
        self._faults = FaultLog()
        self._fault_rows = JsonTail(run.faults, FaultEvent)
        self._metric_rows = JsonTail(run.metrics, MetricRow)
        self._event_rows = JsonTail(run.events, EventRow)
        self._samples: dict[tuple[str, str], MetricRow] = {}
        self._events: dict[Labels, int] = defaultdict(int)
        self._phase = ""
        self._load_at = 0.0  # time.monotonic()
        self._is_closed = False

    def phase(self, name: str) -> None:
        with self._lock:
            self._phase = name
            if name == "load":
                self._load_at = time.monotonic()

    def read(self) -> None:
        """Take in what was written since the last look."""
        with self._lock:
            if self._is_closed:
                return
            self._read_lines()
            self._tallies.read()

    def close(self) -> None:
        """A last look; nothing is written any more. Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._read_lines()
                self._tallies.close()

    def _read_lines(self) -> None:
        for fault in self._fault_rows.rows():
            self._faults.add(fault)
        for sample in self._metric_rows.rows():
            for role, name in (("node", sample.node), ("worker", sample.worker)):
                if name:
                    self._samples[role, name] = sample
        for event in self._event_rows.rows():
            self._events[labels(brokerstorm_worker=event.worker, brokerstorm_event=event.kind)] += 1

    def values(self) -> Values:
        """Everything known now; each point bears the names of run, scenario and variant."""
        with self._lock:
            found = self._tallies.values()
            found |= self._process_values()
            found |= self._fault_values()
            found[EVENTS] = dict(self._events)
            found[ASKED_RATE] = {(): self._asked_per_s()}
            found[PHASE] = {labels(brokerstorm_phase=self._phase): 1} if self._phase else {}
        return {
            instrument: {
                tuple(sorted((*known, *self._about))): value for known, value in points.items()
            }
            for instrument, points in found.items()
        }

    def _asked_per_s(self) -> float:
        if self._phase not in LOAD_PHASES:
            return 0.0
        elapsed_s = time.monotonic() - self._load_at if self._phase == "load" else -1.0
        return self._plan.rate_per_s * share_at(self._plan.profile, elapsed_s)

    def _process_values(self) -> Values:
        found: Values = {CPU: {}, MEMORY: {}, SEND_DELAY: {}, BLOCKED: {}}
        oldest_ns = time.monotonic_ns() - FRESH_NS
        for (role, name), row in self._samples.items():
            known = labels(brokerstorm_process=name, brokerstorm_role=role)
            worker = labels(brokerstorm_worker=name)
            if row.cpu_s is not None:
                found[CPU][known] = row.cpu_s
            if row.blocked_ns is not None:
                found[BLOCKED][worker] = row.blocked_ns / 1e9
            if row.t_ns >= oldest_ns and row.rss_bytes is not None:
                found[MEMORY][known] = float(row.rss_bytes)
            if row.t_ns >= oldest_ns and row.late_max_ns is not None:
                found[SEND_DELAY][worker] = row.late_max_ns / 1e9
        return found

    def _fault_values(self) -> Values:
        found: Values = {FAULT_ACTIVE: {}, FAULT_START: {}}
        for record in self._faults.records:
            if record.inject_ns is not None:
                known = _fault_labels(record)
                found[FAULT_ACTIVE][known] = int(record.is_applied)
                found[FAULT_START][known] = (record.inject_ns + self._wall_ns) / 1e9
        return found


def _fault_labels(record: FaultRecord) -> Labels:
    return labels(
        brokerstorm_fault_id=str(record.id),
        brokerstorm_fault_kind=record.kind,
        brokerstorm_fault_target=record.hit,
    )
