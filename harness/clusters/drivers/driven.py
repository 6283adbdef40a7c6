"""Nodes that drivers do something to, and that we look at ourselves.

A driver's word is not a proof. A node is away when it no longer answers a request of ours, and back
when it does; only what cannot be seen from outside (paused, or cut off) is asked of the driver.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from harness.clusters.drivers.driver import Driver, State
from harness.connections.drivers import Action
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols.cluster import Endpoint
from harness.waiting import wait_until

PortState = Literal["open", "closed", "silent"]
_CONNECT_S: Final = 1.0
_POLL_S: Final = 0.05
#: A node that lives may miss one request on a busy machine.
_SILENT_LOOKS: Final = 3


def abilities_of(drivers: Sequence[Driver], *where: Any, **limits: Any) -> list[DrivenNodes]:
    """One part a thing that some driver can do, and make good again; arguments as of
    `DrivenNodes`."""
    can = frozenset[Action]().union(*(one.actions for one in drivers))
    parts = (KillableNodes, StoppableNodes, PausableNodes)
    return [part(drivers, *where, **limits) for part in parts if can.issuperset(part.needs)]


def is_open(endpoint: Endpoint) -> bool:
    """Whether somebody accepts a connection there."""
    return _look(endpoint) == "open"


def _look(endpoint: Endpoint) -> PortState:
    try:
        socket.create_connection((endpoint.host, endpoint.port), timeout=_CONNECT_S).close()
    except TimeoutError:
        return "silent"
    except OSError:
        return "closed"
    return "open"


class DrivenNodes:
    """The state of nodes that a driver controls; all parts share it. Thread-safe.

    Attributes:
        answers: whether a node answers a request of ours.
        needs: what a driver must be able to do.
    """

    needs: ClassVar[frozenset[Action]] = frozenset()

    def __init__(
        self,
        drivers: Sequence[Driver],
        endpoints: Mapping[str, Endpoint],
        answers: Callable[[str], bool],
        *,
        seen_s: float = 10.0,
        back_s: float = 120.0,
    ) -> None:
        """
        Args:
            endpoints: where nodes are reached, by name.
            seen_s: how long what a driver did may take to be seen. A killed process is gone in
                milliseconds; a remote engine or API server may take longer to do it.
            back_s: how long a node that was started may take to listen: it checks its logs first.
        """
        self._drivers = drivers
        self._endpoints = endpoints
        self.answers = answers
        self._seen_s, self._back_s = seen_s, back_s

    def _act(self, action: Action, node: str, grace_s: float = 0.0) -> Driver:
        driver = next(one for one in self._drivers if action in one.actions)
        driver.act(action, node, grace_s=grace_s)
        return driver

    def is_running(self, node: str) -> bool:
        """Whether somebody listens there. A driver is asked only about a node that does not answer,
        and not believed when its port is closed."""
        if self.answers(node):
            return True
        port = self._port(node)
        if port == "closed":
            return False
        said = self._said(node)
        return said != "down" and (said is not None or port == "open")

    def _said(self, node: str) -> State | None:
        """How the driver of this part says that a node is; None when it cannot tell."""
        driver = next(one for one in self._drivers if self.needs & one.actions)
        try:
            return driver.state(node)
        except EnvironmentNotReady:
            return None

    def _port(self, node: str) -> PortState:
        """Whether a connection is accepted, refused, or neither: then it is cut off, or paused with
        a full queue of connections."""
        return _look(self._endpoints[node])

    def _falls_silent(self, node: str, within_s: float) -> bool:
        """Whether it stops answering: its port closes, or several requests in a row stay without
        answer."""
        looks = 0

        def is_silent() -> bool:
            nonlocal looks
            looks = 0 if self.answers(node) else looks + 1
            return looks >= _SILENT_LOOKS or (looks > 0 and self._port(node) == "closed")

        return wait_until(is_silent, within_s, every_s=_POLL_S)

    def _lied(self, driver: Driver, done: str, node: str) -> EnvironmentNotReady:
        return EnvironmentNotReady(
            f"the {driver.name} driver says that it {done} {node}, which still answers at"
            f" {self._endpoints[node]}",
            hint=f"look at drivers.{driver.name} of the connection file",
        )

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()


class StartableNodes(DrivenNodes):
    """Nodes that can be restarted (`Startable`)."""

    def start(self, node: str) -> None:
        """Start it if it is down; return when it answers.

        Raises:
            HealError: it does not, whatever its driver says.
            EnvironmentNotReady: the driver failed or took too long.
        """
        if self.is_running(node):
            return
        driver = self._act("restart", node)
        if not wait_until(lambda: self.is_running(node), self._back_s, every_s=_POLL_S):
            raise HealError(
                f"the {driver.name} driver says that it started {node}, but nothing listens at"
                f" {self._endpoints[node]} {self._back_s:.0f} s later",
                hint="look at the log of that node",
            )

    def _kill(self, node: str) -> None:
        driver = self._act("kill", node)
        if not self._falls_silent(node, self._seen_s):
            raise self._lied(driver, "killed", node)


class KillableNodes(StartableNodes):
    """`Killable`."""

    needs: ClassVar[frozenset[Action]] = frozenset({"kill", "restart"})

    def kill(self, node: str) -> None:
        """Kill it; return when it no longer answers.

        Raises:
            EnvironmentNotReady: the driver failed, took too long, or lied.
        """
        self._kill(node)


class StoppableNodes(StartableNodes):
    """`Stoppable`."""

    needs: ClassVar[frozenset[Action]] = frozenset({"stop", "restart"})

    def stop(self, node: str, *, timeout_s: float = 30.0) -> bool:
        """Stop it in good order, kill it after the timeout; whether it ended by itself.

        Raises:
            EnvironmentNotReady: the driver failed, took too long, or lied.
        """
        start = time.monotonic()
        driver = self._act("stop", node, timeout_s)
        left_s = max(_POLL_S, timeout_s - (time.monotonic() - start))
        if self._falls_silent(node, left_s):
            return time.monotonic() - start < timeout_s
        if not any("kill" in one.actions for one in self._drivers):
            raise self._lied(driver, "stopped", node)
        self._kill(node)
        return False


class PausableNodes(DrivenNodes):
    """`Pausable`."""

    needs: ClassVar[frozenset[Action]] = frozenset({"pause", "resume"})

    def __init__(self, *where: Any, **limits: Any) -> None:
        super().__init__(*where, **limits)
        self._paused: set[str] = set()
        self._lock = threading.Lock()

    def pause(self, node: str) -> None:
        """Freeze it; return when it no longer answers.

        Raises:
            EnvironmentNotReady: the driver failed, took too long, or lied.
        """
        with self._lock:
            self._paused.add(node)
        driver = self._act("pause", node)
        if not self._falls_silent(node, self._seen_s):
            raise self._lied(driver, "paused", node)

    def resume(self, node: str) -> None:
        """Resume it; no-op for a node that answers or is down.

        Raises:
            HealError: it stays silent, whatever its driver says.
            EnvironmentNotReady: the driver failed or took too long.
        """
        if not self.answers(node) and self._port(node) != "closed":
            driver = self._act("resume", node)
            if not wait_until(lambda: self.answers(node), self._seen_s, every_s=_POLL_S):
                raise HealError(
                    f"the {driver.name} driver says that it resumed {node}, which does not answer at"
                    f" {self._endpoints[node]}",
                    hint=f"look at drivers.{driver.name} of the connection file",
                )
        with self._lock:
            self._paused.discard(node)

    def is_paused(self, node: str) -> bool:
        """Return whether a node is paused: it does not answer, and its driver says that it is
        paused, or was told to pause it and not yet to resume it.
        """
        if self.answers(node) or self._port(node) == "closed":
            return False
        return node in self._paused or self._said(node) == "paused"
