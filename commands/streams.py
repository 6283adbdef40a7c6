"""The standard streams of the process: closed ones are opened, and a failing stderr stops
nothing."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


class _Messages(io.TextIOWrapper):
    """Standard error that drops what cannot be written: a message must not end a run."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class _Output(io.TextIOWrapper):
    """Standard output that remembers why it could not be written: a second try may succeed with the
    rest.

    Attributes:
        problem: the first error, but for a reader that left.
    """

    problem: OSError | None = None

    def write(self, text: str) -> int:
        with self._remembering():
            return super().write(text)

    def flush(self) -> None:
        with self._remembering():
            super().flush()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self.problem = self.problem or error
            raise


def prepare_streams() -> None:
    """Make the standard streams usable, once, when the process begins.

    Without this a file or a socket would get the number of a stream that the caller closed, and
    what a child process prints would go into it.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # takes the lowest free number; stdout read-only: writing must fail
            os.open(os.devnull, flags)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stdout = _wrapped(_Output, sys.stdout)
    sys.stderr = _wrapped(_Messages, sys.stderr)


def _wrapped(kind: type[io.TextIOWrapper], stream: TextIO) -> TextIO:
    """The stream with other manners; a stream of another kind, which somebody put there, stays."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, errors, by_line = stream.encoding, stream.errors, stream.line_buffering
    return kind(stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line)


def output_problem() -> OSError | None:
    """Why the output cannot be written; None where it can. A reader that left (``| head``) is
    fine."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        drop_output()
        return error
    problem: OSError | None = getattr(sys.stdout, "problem", None)
    if problem is not None:
        drop_output()
    return problem


def drop_output() -> None:
    """Send the rest of the output nowhere: what is still buffered would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
