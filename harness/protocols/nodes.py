"""Abilities to kill, stop, start and freeze nodes. A cluster has some of them, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class SeenAway:
    """How a runtime sees that a node is away, in words for a proof."""

    gone: str = "process gone"
    paused: str = "process stopped (state T)"


@runtime_checkable
class TellsRunning(Protocol):
    """Can tell whether a node runs."""

    def is_running(self, node: str) -> bool:
        """Return whether the node's process runs."""


@runtime_checkable
class Startable(TellsRunning, Protocol):
    """Can start a node again."""

    def start(self, node: str) -> None:
        """Start a node that is down; returns when its process runs. No-op when it runs."""


@runtime_checkable
class Killable(Startable, Protocol):
    """Can kill a node and start it again."""

    def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""


@runtime_checkable
class Stoppable(Startable, Protocol):
    """Can stop a node in good order (SIGTERM)."""

    def stop(self, node: str, *, timeout_s: float = 30.0) -> bool:
        """SIGTERM, wait, SIGKILL after the timeout; returns when the process is gone: whether by
        itself."""


@runtime_checkable
class Pausable(Protocol):
    """Can freeze a node (SIGSTOP) and resume it."""

    def pause(self, node: str) -> None:
        """Stop the node's process without ending it (SIGSTOP, a paused container)."""

    def resume(self, node: str) -> None:
        """Let a paused node's process run again."""

    def is_paused(self, node: str) -> bool:
        """Return whether the node's process is stopped."""
