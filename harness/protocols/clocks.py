"""The ability to give nodes a wall clock of their own (see `harness.protocols.cluster`); clients
have it of `harness.protocols.faulting.ClientLives`."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

#: What a cluster must be started with, and a run its clients.
OWN_CLOCKS: Final = "own-clocks"
CLIENT_CLOCKS: Final = "client-clocks"


@runtime_checkable
class HasClocks(Protocol):
    """Can set the wall clock of a node, and of that node alone.

    Needs ``own-clocks`` of the cluster's start. Monotonic clocks stay as they are.
    """

    def set_clock(self, node: str, ahead_s: float, speed: float = 1.0) -> None:
        """From now on its wall clock is ahead of the machine's, and goes ``speed`` times as fast.
        Idempotent; 0 and 1 give it the machine's again.

        Raises:
            EnvironmentNotReady: the cluster was not started for it.
        """

    def clock_told(self, node: str, *, within_s: float) -> float | None:
        """How far ahead of the machine's the time was that the node's process received last, in s:
        it asks often. None = it did not ask within that time.

        Raises:
            EnvironmentNotReady: as `set_clock`.
        """

    def were_clocks_set(self) -> bool:
        """Whether a node's clock was ever another than the machine's: times that brokers tell mean
        little."""
