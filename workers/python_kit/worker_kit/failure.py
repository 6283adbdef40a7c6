"""The error that ends a worker with a clear line."""

from __future__ import annotations


class WorkerFailure(Exception):
    """The worker cannot continue: shown as an ``error`` line, then a non-zero exit."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint
