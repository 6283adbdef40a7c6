"""Calls a function at a fixed period in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class PeriodicThread:
    """Calls ``task`` every ``period_s`` from `start` to `stop`; a call that fails is logged, not
    the last."""

    def __init__(self, name: str, task: Callable[[], None], *, period_s: float) -> None:
        self._name = name
        self._task = task
        self._period_s = period_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """Call no more; a call under way ends first. Idempotent."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _loop(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            due += self._period_s
            self.call()

    def call(self) -> None:
        """Call the task now, in the calling thread."""
        try:
            self._task()
        except OSError as error:
            # a full disk, a process that ended meanwhile: the next call may do
            _LOG.warning("%s: %s", self._name, error)
        except Exception:  # noqa: BLE001 - the thread must live on
            _LOG.exception("%s failed", self._name)
