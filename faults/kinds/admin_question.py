"""admin-question: brokers are asked what they own, again and again, as monitoring and operators ask
them.

Pulsar's brokers answer that (`ownedNamespaces`) on the thread that takes and gives up bundles:
asked amid unloads one stops slowly, or hangs (docs/bugs/other-defects.md).
"""

from __future__ import annotations

import threading
import time
from typing import Final

from pydantic import Field

from faults.kit.cluster_view import ClusterView, is_outside
from faults.kit.injection import FaultKind, Injection
from faults.kit.params import Inventory, Params
from harness.durations import Seconds
from harness.errors import BrokerstormError, HealError
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import AnswersOwned, Cluster, Proof

_JOIN_S: Final = 10.0


class AdminQuestionParams(Params):
    gap: Seconds = Field(1.0, ge=0.1, description="time from one request to the next")
    for_: Seconds = Field(5.0, alias="for", gt=0, description="for how long the brokers are asked")


class BrokersAsked(Injection):
    """A thread that asks all brokers, and counts who answers."""

    params: AdminQuestionParams

    def __init__(self, view: ClusterView, params: AdminQuestionParams) -> None:
        super().__init__(view, view.brokers, params)
        self._brokers = view.ability(AnswersOwned)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="admin-question", daemon=True)
        self._answered = self._silent = 0
        self._slowest_s = 0.0

    def apply(self) -> None:
        self._thread.start()

    def _ask(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + self.params.gap, time.monotonic())
            try:
                told = self._brokers.ask_owned().values()
            except BrokerstormError:  # no broker in reach, or it refuses: the next one may answer
                continue
            self._silent += sum(took_s is None for took_s in told)
            self._answered += sum(took_s is not None for took_s in told)
            self._slowest_s = max(
                [self._slowest_s, *(took_s for took_s in told if took_s is not None)]
            )

    def proof(self) -> Proof:
        """Effective when a broker answered."""
        text = f"asked what they own: {self._answered} answers, the slowest after {self._slowest_s:.2f} s"
        silent = f"; {self._silent} times none" if self._silent else ""
        details = {
            "answers": self._answered,
            "silent": self._silent,
            "slowest_s": round(self._slowest_s, 3),
        }
        return Proof(self._answered > 0, f"{text}{silent}", details)

    def heal(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            raise HealError("the thread that asks brokers did not end")

    def is_undone(self) -> bool:
        return self._over.is_set() and not self._thread.is_alive()

    def missing(self) -> str:
        return "" if self.is_undone() else "brokers are still asked"

    def confirmed_acks(self) -> ConfirmedAcks:
        """A broker that hangs keeps what it acknowledged."""
        return "kept"


class AdminQuestion(FaultKind[AdminQuestionParams]):
    """Ask every broker every `gap` what it owns, for `for`; Pulsar's brokers may hang on this
    request."""

    kind = "admin-question"
    abilities = (AnswersOwned,)
    params = AdminQuestionParams

    def choices(self, params: AdminQuestionParams) -> list[str]:
        return [f"every {params.gap:g} s"]

    def refusal(self, params: AdminQuestionParams, cluster: Cluster) -> str:
        return (
            "brokers of others are not asked what they may hang on" if is_outside(cluster) else ""
        )

    def commands(self, params: AdminQuestionParams, inventory: Inventory) -> list[str]:
        question = "GET /admin/v2/brokers/{cluster}/{each broker}/ownedNamespaces"
        return [f"{question} every {params.gap:g} s for {params.for_:g} s"]

    def prepare(self, params: AdminQuestionParams, view: ClusterView, draw: int) -> BrokersAsked:
        return BrokersAsked(view, params)
