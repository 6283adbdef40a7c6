"""Executes one firing, from due to healed, in a thread of its own: a slow admin must not delay the
others."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Final

from faults.engine.claims import NodeClaims
from faults.engine.journal import FaultJournal
from faults.engine.ledger import Ledger
from faults.engine.prover import Prover
from faults.kinds import KINDS
from faults.kit.cluster_view import POLL_S, ClusterView, is_outside
from faults.kit.errors import FiringSkipped
from faults.kit.injection import Injection
from faults.schedule.timeline import Firing
from harness.errors import BrokerstormError, unexpected_text
from harness.waiting import wait_until

#: An asked leader moves within half a second on a calm machine; later the move counts as vacuous.
PROOF_S: Final = 15.0
#: A node that was just resumed may be the one that is asked, and answer with what it knew before.
_WHOLE_LOOKS: Final = 2
#: A heal that failed (a node that died while starting) is tried again this often.
_RETRY_S: Final = 5.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """Shared by the executions of one timeline."""

    view: ClusterView
    journal: FaultJournal
    ledger: Ledger
    claims: NodeClaims
    verify_s: float


class FaultExecution(threading.Thread):
    """One firing: prepare, claim nodes, write the ledger entry, apply, prove, heal, verify, remove
    it."""

    def __init__(self, firing: Firing, context: ExecutionContext, *, leave: bool = False) -> None:
        """``leave``: do not heal; the ledger keeps the fault for a later process."""
        super().__init__(name=f"fault-{firing.id}", daemon=True)
        self.firing = firing
        self._failure = ""
        self._slow = False
        self._context = context
        self._leave = leave
        self._stop_waiting = threading.Event()
        self._applied = threading.Event()
        self._injection: Injection | None = None

    def run(self) -> None:
        try:
            injection = self._prepare_in_time()
        except FiringSkipped as reason:
            self._context.journal.skipped(self.firing, str(reason))
            return
        except Exception as error:  # noqa: BLE001 - a thread's end: what is not recorded here is lost
            _LOG.exception(
                "fault %d (%s) failed before it was applied", self.firing.id, self.firing.kind
            )
            self._context.journal.skipped(self.firing, unexpected_text(error))
            return
        part = KINDS[self.firing.kind].part(self.firing.params, self._context.view.inventory)
        prover = Prover(self.firing.id, injection, self._context.journal, part)
        prover.start()
        self._apply(injection, prover)
        self._applied.set()
        try:
            self._hold(injection, prover)
            if not self._leave:
                self._heal(injection, prover)
        except Exception as error:  # noqa: BLE001 - a thread that ends here would pass for one that healed
            _LOG.exception(
                "fault %d (%s) failed while it was undone", self.firing.id, self.firing.kind
            )
            trouble = self._undo(injection)
            if trouble or not self._is_undone(injection):
                self._failure = self._describe(trouble or unexpected_text(error))
        prover.done.set()
        prover.join(PROOF_S)

    def _prepare_in_time(self) -> Injection:
        deadline = time.monotonic() + self.firing.wait_s
        while True:
            try:
                return self._prepare()
            except FiringSkipped:
                if time.monotonic() >= deadline or self._context.view.stopping.wait(POLL_S):
                    raise

    def _prepare(self) -> Injection:
        """Resolve the targets, claim them and write the ledger entry.

        Raises:
            FiringSkipped: nothing was changed and nothing will be.
        """
        kind, view = KINDS[self.firing.kind], self._context.view
        try:
            injection = kind.prepare(self.firing.params, view, self.firing.draw)
        except BrokerstormError as error:
            raise FiringSkipped(f"the targets could not be resolved: {error}") from error
        self._context.claims.claim(self.firing.id, injection, view)
        try:
            if view.stopping.is_set():
                raise FiringSkipped("the run was already healing")
            if objection := injection.objection():
                raise FiringSkipped(objection)
            self._record(injection)
        except OSError as error:
            self._context.claims.release(self.firing.id)
            self._context.ledger.remove(self.firing.id)
            raise FiringSkipped(f"it could not be written down: {error.strerror}") from error
        except BaseException:
            self._context.claims.release(self.firing.id)
            raise
        self._injection = injection
        return injection

    def _record(self, injection: Injection) -> None:
        """Ledger first, then journal: from here on the fault may be applied."""
        firing = self.firing
        if injection.lasts:
            entry = replace(
                injection.ledger_entry(),
                id=firing.id,
                kind=firing.kind,
                targets=tuple(injection.targets),
                t_ns=time.monotonic_ns(),
                outside=is_outside(self._context.view.cluster),
            )
            self._context.ledger.write(entry)
        self._context.journal.inject(firing, injection)

    def _apply(self, injection: Injection, prover: Prover) -> None:
        try:
            injection.apply()
        except BrokerstormError as error:
            prover.trouble = f"could not be applied: {error}"
        except Exception as error:  # noqa: BLE001 - whatever it was, what was half applied must be healed
            _LOG.exception("fault %d (%s) failed", self.firing.id, self.firing.kind)
            prover.trouble = f"could not be applied, {unexpected_text(error)}"

    def _hold(self, injection: Injection, prover: Prover) -> None:
        stopping = self._context.view.stopping
        if prover.trouble:
            return
        if self._leave or not injection.lasts:
            wait_until(prover.proved.is_set, PROOF_S, every_s=POLL_S, stop=stopping)
            return
        if self.firing.for_s is not None:
            stopping.wait(self.firing.for_s)
        if injection.looks_first:
            prover.look_before_heal(PROOF_S, stopping)

    def _heal(self, injection: Injection, prover: Prover) -> None:
        fault_id, context = self.firing.id, self._context
        context.journal.heal(fault_id)
        text = self._verified(injection)
        # What applies itself to the end, such as a rolling restart, is proved and whole in the same
        # moment.
        prover.look_before_heal(PROOF_S, self._stop_waiting)
        undone = not text or self._is_undone(injection)
        evidence = (
            f"undone, but the cluster did not recover in time: {text}" if text and undone else text
        )
        context.journal.healed(fault_id, injection, ok=not text, undone=undone, text=evidence)
        # a cluster that is slow to recover is the run's finding; nothing is left to undo
        if undone:
            context.ledger.remove(fault_id)
            self._slow = bool(text)
        else:
            self._failure = self._describe(text)
        if not text:
            context.claims.release(fault_id)

    def _verified(self, injection: Injection) -> str:
        """Undo until the cluster is whole again; returns what is missing when time is up."""
        deadline = time.monotonic() + self._context.verify_s
        next_try, error_text, whole_looks = 0.0, "", 0
        while True:
            if time.monotonic() >= next_try and not self._is_undone(injection):
                next_try = time.monotonic() + _RETRY_S
                error_text = self._undo(injection)
            missing = self._missing(injection)
            whole_looks = 0 if missing else whole_looks + 1
            if whole_looks >= _WHOLE_LOOKS:
                return ""
            if time.monotonic() > deadline or self._stop_waiting.is_set():
                return f"{missing} ({error_text})" if error_text else missing
            self._stop_waiting.wait(POLL_S)

    def _undo(self, injection: Injection) -> str:
        """Heal; why that failed, as text."""
        try:
            injection.heal()
        except BrokerstormError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - what stays applied must be told, whatever went wrong
            _LOG.exception("fault %d (%s) cannot be undone", self.firing.id, self.firing.kind)
            return unexpected_text(error)
        return ""

    def _is_undone(self, injection: Injection) -> bool:
        """False also when it cannot be told."""
        try:
            return injection.is_undone()
        except BrokerstormError:
            return False
        except Exception:  # noqa: BLE001 - if the thread ended, nothing would undo the fault
            _LOG.exception("fault %d cannot be asked whether it is undone", self.firing.id)
            return False

    def _missing(self, injection: Injection) -> str:
        try:
            return injection.missing()
        except BrokerstormError as error:
            return f"the cluster does not answer: {error}"
        except Exception as error:  # noqa: BLE001 - not to know is not to be healed, and to look again
            _LOG.exception("fault %d (%s) cannot be verified", self.firing.id, self.firing.kind)
            return f"cannot be verified, {unexpected_text(error)}"

    @property
    def failure(self) -> str:
        """Return what is still applied after the fault was undone, as text; empty if nothing is.

        Asked anew of a cluster that was slow to recover: a node may have run for just that moment,
        and died of its start.
        """
        if self._slow and self._injection and not self._is_undone(self._injection):
            return self._describe(self._missing(self._injection) or "still applied")
        return self._failure

    @property
    def is_over(self) -> bool:
        """Return whether the fault has ended and nothing of it can be left."""
        return self.ident is not None and not (self.is_alive() or self._slow or self._failure)

    def stop_waiting(self) -> None:
        """Stop waiting until the cluster is whole again; undoing continues."""
        self._stop_waiting.set()

    def undo_now(self) -> str:
        """Undo without waiting. `heal_all` calls it when its time is over, after `stop_waiting`.

        Returns:
            What is still applied, as text; empty when nothing is.
        """
        self.join(1.0)
        if not self.is_alive():
            return self.failure
        injection = self._injection
        if injection is None:
            return ""  # it will find that everything is healing, and skip
        if not self._applied.is_set():
            return self._describe(
                "still being applied; it is undone afterwards, or by `brokerstorm clean`"
            )
        if trouble := self._undo(injection):
            return self._describe(trouble)
        return "" if self._is_undone(injection) else self._describe("still applied")

    def _describe(self, text: str) -> str:
        targets = self._injection.targets if self._injection else (self.firing.target,)
        return f"fault {self.firing.id} ({self.firing.kind} {', '.join(targets)}): {text}"
