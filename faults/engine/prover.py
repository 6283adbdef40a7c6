"""Asks an injection for its proof of effect, from before it is applied until it is healed."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Final

from faults.engine.journal import FaultJournal
from faults.kit.cluster_view import POLL_S
from faults.kit.injection import Injection
from harness.errors import BrokerstormError, unexpected_text
from harness.protocols.cluster import Proof
from harness.waiting import wait_until

#: After the first sign, more may follow (one leader after another): wait until so many looks agree
#: ...
_SETTLED_LOOKS: Final = 3
#: ... but not longer than this.
_SETTLE_S: Final = 2.0
#: How soon the heal begins after the look that it waits for.
_NOTICE_S: Final = 0.02
#: How often to look for more once it is proved: every look costs the brokers three requests.
_FOLLOW_S: Final = 1.0
_LOG = logging.getLogger(__name__)


class Prover(threading.Thread):
    """Writes the ``effect`` row of a fault: as soon as it took effect, or when ``done`` is set
    without one. What was effective once counts, also when later looks no longer see it.

    A second row replaces it when more was seen until ``done``: of a killed controller its successor
    shows first, the leaders that moved seconds later.
    """

    def __init__(
        self, fault_id: int, injection: Injection, journal: FaultJournal, part: str = ""
    ) -> None:
        """``part``: what its target was to the cluster when it was chosen."""
        super().__init__(name=f"fault-{fault_id}-proof", daemon=True)
        self._fault_id = fault_id
        self._injection = injection
        self._journal = journal
        self._chosen = f" ({injection.targets[0]} was {part})" if part else ""
        self.done = threading.Event()
        self.proved = threading.Event()
        self._heals = threading.Event()
        self._looked = threading.Event()
        self.trouble = ""

    def look_before_heal(self, within_s: float, stop: threading.Event) -> None:
        """Return when it is proved, or when a look that began after this call saw no effect: the
        heal may take back what the proof sees. At most ``within_s``, and no longer when ``stop`` is
        set."""
        self._heals.set()
        wait_until(self._looked.is_set, within_s, every_s=_NOTICE_S, stop=stop)

    def run(self) -> None:
        proof = self._watch()
        if self.trouble:
            proof = Proof(False, self.trouble, proof.details)
        self._journal.effect(self._fault_id, proof)
        self.proved.set()
        self._looked.set()
        more = self._follow(proof) if proof.effective else proof
        if more.evidence != proof.evidence:
            self._journal.effect(self._fault_id, more)

    def _watch(self) -> Proof:
        since, agreeing, seen = 0.0, 0, None
        while not self.done.is_set():
            heals = self._heals.is_set()
            (self.done if heals else self._heals).wait(POLL_S)
            proof = self._look()
            if proof.effective:
                since = since or time.monotonic()
                agreeing = agreeing + 1 if seen and proof.evidence == seen.evidence else 1
                seen = proof
            if seen and (
                heals or agreeing >= _SETTLED_LOOKS or time.monotonic() - since > _SETTLE_S
            ):
                return seen
            if heals:
                self._looked.set()
        proof = self._look()
        return seen if seen and not proof.effective else proof

    def _follow(self, proof: Proof) -> Proof:
        while not self.done.wait(_FOLLOW_S):
            now = self._look()
            proof = now if now.effective else proof
        last = self._look() if self._injection.looks_last else proof
        return last if last.effective else proof

    def _look(self) -> Proof:
        try:
            found = self._injection.proof()
            return replace(found, evidence=found.evidence + self._chosen)
        except BrokerstormError as error:
            return Proof(False, f"the cluster does not answer: {error}")
        except Exception as error:  # noqa: BLE001 - a fault whose proof broke is not proved
            _LOG.exception("fault %d cannot be proved", self._fault_id)
            return Proof(False, f"its proof failed, {unexpected_text(error)}")
