"""Declares what a run and its faults ask of each other; neither knows the other's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

#: Name -> process id of the workers that live now (producer-1, consumer-2 ...).
Clients = Callable[[], Mapping[str, int]]


class ClientLives(Protocol):
    """Can end the client processes of a run, and begin their next lives. Names are the plan's."""

    def kill(self, name: str) -> bool:
        """SIGKILL the process; whether that is what ended it. Returns when it is gone."""

    def stop(self, name: str, within_s: float) -> bool:
        """End the process in good order, as an application that shuts down; SIGKILL when it did not
        end in time. Whether it ended by itself."""

    def begin(self, name: str) -> None:
        """Start the next life of a client that is gone, a worker of its own. Idempotent while it
        lives.

        Raises:
            BrokerstormError: it cannot be started.
        """

    def life(self, name: str) -> str:
        """Return the name of the current life, such as ``producer-1.2``."""

    def is_ready(self, name: str) -> bool:
        """The process lives and is ready."""

    def set_clock(self, name: str, ahead_s: float, speed: float = 1.0) -> None:
        """Set the clock of the current life; see `harness.protocols.clocks.HasClocks`."""

    def clock_told(self, name: str, *, within_s: float) -> float | None:
        """Return the clock of the current life; see `harness.protocols.clocks.HasClocks`."""


@runtime_checkable
class InstanceLives(ClientLives, Protocol):
    """Can begin more instances of an application than the plan has. `ClientLives.begin` takes their
    names, too."""

    def instances(self, one: str, count: int) -> list[str]:
        """Return the names of the first ``count`` instances of an application.

        Args:
            one: name of any of its instances.
        """


class OutputEndpoint(Protocol):
    """Takes the requests with outputs of one application, and can be disturbed."""

    #: Requests that met the last disturbance.
    disturbed: int

    def disturb(self, how: str, *, share: float, delay_s: float) -> None:
        """Disturb requests from now on.

        Args:
            how: ``delay`` (accepted, answered late), ``refuse`` (status 503, not accepted) or
                ``drop`` (accepted, the connection is closed without an answer).
            share: how much of the requests, spread evenly.
            delay_s: with ``delay``.
        """

    def restore(self) -> None:
        """Answer all requests at once again, those that wait too. Idempotent."""


@runtime_checkable
class HasOutputEndpoints(Protocol):
    """Knows the endpoints that take outputs of applications."""

    def output_endpoint(self, application: str) -> OutputEndpoint | None:
        """The endpoint of an application; None = its outputs are elsewhere."""


class FaultInjector(Protocol):
    """The faults of one run, as the run sees them: it knows neither kinds nor targets."""

    def start(
        self,
        epoch_ns: int,
        clients: Clients = dict,
        lives: ClientLives | None = None,
        *,
        since_s: float = 0.0,
    ) -> None:
        """Begin; the timeline's t = 0 is ``epoch_ns`` (CLOCK_MONOTONIC). What was due before
        ``since_s`` is left out.

        ``clients``: asks which worker processes of the run live now; they may be targets too.
        ``lives``: ends them and begins their next lives.
        """

    def stop(self) -> None:
        """Inject nothing more. Idempotent."""

    def heal_all(self, timeout_s: float) -> Sequence[str]:
        """Heal and verify whatever is applied; what could not be healed, as text. Idempotent,
        bounded."""

    def join(self, timeout_s: float) -> None:
        """Wait for the threads of the faults to end."""
