"""Writes faults.jsonl, one row per event; `harness.faultlog` folds the rows of a fault.

inject   about to be applied: kind, target as written, resolved targets, planned time, params, and
         what becomes of acknowledgements that brokers had confirmed
effect   whether it took effect, and how we know; a later row of the same id says more
heal     the undoing began; of a fault that ends by itself: it was seen to be over
healed   whether the cluster is whole again, and whether nothing of the fault is applied any more;
         again what became of acknowledgements, by then it may be known
skipped  not applied, and why
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from faults.kit.injection import Injection
from faults.schedule.timeline import Firing
from harness.contracts import typed
from harness.contracts.rows import FaultEvent
from harness.protocols.cluster import Proof
from harness.rundir import Document, RunDir, append_jsonl

OnEvent = Callable[[FaultEvent], None]
_LOG = logging.getLogger(__name__)


class FaultJournal:
    """Appends rows; tells ``on_event`` of each. Used by every thread that executes a fault.

    A full disk must not keep a fault from being healed: a row without room waits for the next one,
    or for `flush`. Only `inject` raises, because nothing is applied that is not written down.
    """

    def __init__(self, run: RunDir, on_event: OnEvent) -> None:
        self._path = run.faults
        self._on_event = on_event
        self._unwritten: list[Document] = []
        self._lock = threading.RLock()

    def inject(self, firing: Firing, injection: Injection) -> None:
        """Write that a fault is about to be applied.

        Raises:
            OSError: it cannot be written.
        """
        self.flush()
        planned = {
            "planned_s": firing.t_s,
            "for_s": firing.for_s,
            "params": injection.params.document(),
        }
        named = {"kind": firing.kind, "target": firing.target, "targets": list(injection.targets)}
        row = self._row(
            firing.id, "inject", {**named, **planned, "confirmed_acks": injection.confirmed_acks()}
        )
        with self._lock:
            append_jsonl(self._path, row)
        self._tell(row)

    def effect(self, fault_id: int, proof: Proof) -> None:
        """Write that a fault took effect, or not yet."""
        row = {
            "effective": proof.effective,
            "evidence": proof.evidence,
            "details": dict(proof.details),
        }
        self._write(fault_id, "effect", row)

    def heal(self, fault_id: int) -> None:
        self._write(fault_id, "heal", {})

    def healed(
        self, fault_id: int, injection: Injection, *, ok: bool, undone: bool, text: str
    ) -> None:
        """Write that a fault was undone, or that this failed."""
        said = {"ok": ok, "undone": undone, "evidence": text}
        self._write(fault_id, "healed", {**said, "confirmed_acks": injection.confirmed_acks()})

    def skipped(self, firing: Firing, reason: str) -> None:
        """Write that a fault was skipped, and why."""
        planned = {"kind": firing.kind, "target": firing.target, "planned_s": firing.t_s}
        self._write(firing.id, "skipped", {**planned, "reason": reason})

    def _write(self, fault_id: int, event: str, fields: Document) -> None:
        row = self._row(fault_id, event, fields)
        with self._lock:
            self._unwritten.append(row)
            try:
                self.flush()
            except OSError as error:
                _LOG.warning("fault event %s of fault %d waits: %s", event, fault_id, error)
        self._tell(row)

    def flush(self) -> None:
        """Write the rows that found no room, in their order.

        Raises:
            OSError: there is still none.
        """
        with self._lock:
            while self._unwritten:
                append_jsonl(self._path, self._unwritten[0])
                del self._unwritten[0]

    def _row(self, fault_id: int, event: str, fields: Document) -> Document:
        return {"id": fault_id, "event": event, **fields, "t_ns": time.monotonic_ns()}

    def _tell(self, row: Document) -> None:
        try:
            self._on_event(typed(row, FaultEvent, "an event of a fault"))
        except Exception:  # noqa: BLE001 - a listener's bug must not keep a fault from being healed
            _LOG.exception("a listener failed on fault event %s", row)
