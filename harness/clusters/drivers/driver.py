"""The interface of a driver. Its word on a node is never proof: `driven.DrivenNodes` looks for
itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from harness.connections.drivers import Action

State = Literal["running", "paused", "down"]


class Driver(ABC):
    """One way to reach nodes. Thread-safe; every call ends within the limit that the connection
    file sets.

    Attributes:
        name: its key in the connection file.
        actions: what it can do.
    """

    name: ClassVar[str]
    actions: frozenset[Action]

    @abstractmethod
    def act(self, action: Action, node: str, *, grace_s: float = 0.0) -> None:
        """Do it; return when the driver reports that it is done.

        Args:
            grace_s: how long a node that is stopped may take to end by itself.

        Raises:
            EnvironmentNotReady: it failed or took too long, in one line.
        """

    @abstractmethod
    def state(self, node: str) -> State:
        """How a node is, by the driver's word.

        Raises:
            EnvironmentNotReady: it cannot tell now.
        """

    def close(self) -> None:
        """Give back connections. Idempotent."""
        return
