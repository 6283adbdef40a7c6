"""Ctrl-C, SIGTERM and SIGHUP: one orderly stop, bounded in time, and a second signal to hurry.

Outside of `Interrupts.deferred` the first signal raises `Interrupted` in the main thread, which is
right while brokers start. Inside it (load, healing, clean-up) a signal is only noted, because an
exception in the middle of a heal would leave the fault applied; the code there looks at `stop` and
`hurry`.

Between `begin_finishing` and `end_finishing` the first signal only shortens the load: heal, drain,
audit and judging get their usual time, and the second signal does what the first one does
elsewhere.

The handlers are installed explicitly: a shell that starts us in the background has SIGINT ignored,
and without a handler SIGTERM and SIGHUP end Python before any ``finally``. SIGHUP comes when the
terminal is closed or its connection is lost. `nohup` ignores it, and then it stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from harness.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: File descriptors of what we print: stdout and stderr.
_PRINTED_TO = (1, 2)
#: After the first signal all waiting of a run together (healing, outcomes, readers) gets this long.
STOPPING_S = 10.0


class Interrupts:
    """Installs the handlers for the life of a ``with`` block (main thread only)."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.hurry = threading.Event()
        #: No signal: the load of this round has shown what it was played for, and ends.
        self.enough = threading.Event()
        self._signal = 0
        self._stopped_s = 0.0
        self._deferred = 0
        self._is_finishing = False
        self._previous: dict[int, Any] = {}
        self._on_terminal: list[int] = []

    def __enter__(self) -> Self:
        self._on_terminal = [number for number in _PRINTED_TO if os.isatty(number)]
        for number in _SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number
        if number == signal.SIGHUP:
            self._print_nowhere()
        if self.stop.is_set():
            self.hurry.set()
        else:
            self._stopped_s = time.monotonic()
        self.stop.set()
        if self._deferred == 0:
            self.raise_if_stopped()

    def _print_nowhere(self) -> None:
        """The terminal is gone: a write to it would fail, and end what heals."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in self._on_terminal:
            os.dup2(nowhere, number)
        os.close(nowhere)

    def begin_finishing(self) -> None:
        """From here on there is something to judge: the first signal shortens the load, and no
        more."""
        self._is_finishing = True

    def end_finishing(self) -> None:
        """Nothing more is to be judged: the next signal ends what is done then."""
        self._is_finishing = False

    @property
    def gives_up(self) -> threading.Event:
        """Set once what is done now is not to be finished."""
        return self.hurry if self._is_finishing else self.stop

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Note signals instead of raising while the block runs."""
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Inside `deferred`: a signal raises after all, where nothing is left half done by it.

        Raises:
            Interrupted: a signal came, also before.
        """
        deferred, self._deferred = self._deferred, 0
        try:
            self.raise_if_stopped()
            yield
        finally:
            self._deferred = deferred

    def cut(self, end: float) -> float:
        """A time to wait until (`time.monotonic`), as signals leave it now; it may be past."""
        if self.hurry.is_set():
            return 0.0
        return min(end, self._stopped_s + STOPPING_S) if self.gives_up.is_set() else end

    def error(self) -> Interrupted:
        """Return the error to raise after every fault is undone."""
        name = signal.Signals(self._signal or signal.SIGINT).name
        return Interrupted(f"stopped by {name}", signal_number=self._signal or signal.SIGINT)

    def raise_if_stopped(self) -> None:
        """Raise `Interrupted` if a signal came that ends what is done now."""
        if self.gives_up.is_set():
            raise self.error()
