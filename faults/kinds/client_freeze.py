"""client-freeze: the client process itself is stopped for moments, as in a long garbage collection.

Short freezes around reconnects widen races inside a client library.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from typing import Final, Self

import psutil
from pydantic import Field, model_validator

from faults.kit.clients import ClientFault, ClientParams, matching_workers, worker_names
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.identity import process_of
from faults.kit.injection import Injection
from faults.kit.params import Inventory
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.errors import HealError
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Proof

_JOIN_S: Final = 10.0


class ClientFreezeParams(ClientParams):
    freeze: Seconds = Field(0.06, gt=0, description="length of each freeze")
    period: tuple[Seconds, Seconds] = Field(
        (0.16, 0.25), description="shortest and longest time from one freeze to the next"
    )
    for_: Seconds = Field(5.0, alias="for", gt=0, description="for how long freezes are repeated")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.period[0] > self.period[1] or self.period[0] <= self.freeze:
            raise ValueError("period: the shortest comes first and is longer than `freeze`")
        return self


class Frozen(Injection):
    """SIGSTOP and SIGCONT in turn, of every chosen process at once."""

    params: ClientFreezeParams

    def __init__(
        self, view: ClusterView, processes: dict[str, int], draw: int, params: ClientFreezeParams
    ) -> None:
        super().__init__(view, sorted(processes), params)
        self._processes = tuple(
            process_of(name, each)
            for name, pid in processes.items()
            for each in (pid, *_children(pid))
        )
        self._random = random.Random(draw)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._pulse, name="client-freeze", daemon=True)
        self._pulses, self._seen, self._frozen_s = 0, 0, 0.0

    def apply(self) -> None:
        self._thread.start()

    def _pulse(self) -> None:
        on_s, (shortest, longest) = self.params.freeze, self.params.period
        try:
            while not self._over.is_set():
                start = time.monotonic()
                self._send(signal.SIGSTOP)
                self._over.wait(on_s)
                self._seen += self._is_stopped()
                self._send(signal.SIGCONT)
                self._pulses += 1
                self._frozen_s += time.monotonic() - start
                rest_s = self._random.uniform(float(shortest), float(longest)) - on_s
                self._over.wait(rest_s)
        finally:
            self._send(signal.SIGCONT)

    def _living(self) -> list[psutil.Process]:
        """The processes that are still the ones that were chosen, with the children that they have
        now: a program may do its work in those."""
        found: list[psutil.Process] = []
        for chosen in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(chosen.pid or 0)
                if process_of(chosen.node, process.pid) == chosen:
                    found += [process, *process.children(recursive=True)]
        return list(dict.fromkeys(found))

    def _send(self, number: signal.Signals) -> None:
        for process in self._living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _is_stopped(self) -> bool:
        """Whether a chosen process is seen stopped. The kernel stops it within its next time
        slice."""
        for process in self._living():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() == psutil.STATUS_STOPPED:
                    return True
        return False

    def proof(self) -> Proof:
        """Effective when a process was seen in state T."""
        text = (
            f"{', '.join(self.targets)}: frozen {self._pulses} times, {self._frozen_s:.2f} s in all"
        )
        details = {
            "pulses": self._pulses,
            "seen_stopped": self._seen,
            "frozen_s": round(self._frozen_s, 3),
        }
        return Proof(self._seen > 0, text if self._seen else f"{text}; never seen stopped", details)

    def heal(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            raise HealError("the thread that freezes clients did not end")
        self._send(signal.SIGCONT)

    def is_undone(self) -> bool:
        return self._over.is_set() and not self._thread.is_alive() and not self._is_stopped()

    def missing(self) -> str:
        return "" if self.is_undone() else f"{', '.join(self.targets)} still stopped"

    def confirmed_acks(self) -> ConfirmedAcks:
        """Nothing happens to a broker."""
        return "kept"

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(paused=self._processes)


def _children(pid: int) -> list[int]:
    """Process ids of the children of a process, and of theirs."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class ClientFreeze(ClientFault[ClientFreezeParams]):
    """Freeze client processes briefly and repeatedly (SIGSTOP, SIGCONT) for `for`."""

    kind = "client-freeze"
    params = ClientFreezeParams

    def commands(self, params: ClientFreezeParams, inventory: Inventory) -> list[str]:
        shortest, longest = params.period
        return [
            f"SIGSTOP {params.target}, SIGCONT {params.freeze:g} s later; again every "
            f"{shortest:g} to {longest:g} s for {params.for_:g} s"
        ]

    def prepare(self, params: ClientFreezeParams, view: ClusterView, draw: int) -> Frozen:
        chosen = matching_workers(params.target, view)
        if not chosen:
            raise FiringSkipped(f"no {params.target} runs; there are: {worker_names(view)}")
        return Frozen(view, chosen, draw, params)
