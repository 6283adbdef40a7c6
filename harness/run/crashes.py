"""Tells from the end of a worker's process whether the client took the process down, and with which
words.

A Go panic, an assertion of a library in C, a segmentation fault, a panic in a Rust crate or an
exception that a library of Node throws where no application can catch it: the application is gone,
and its code could not have prevented it. The runtime of each language says so in its own form, on
the standard error (a JVM: on the standard output).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Final

from harness.run.stacks import Stack, parse

#: Signals by which a program ends itself. SIGBUS is left out: it is also what a full disk does to
#: the mapped segments of a worker.
_SIGNALS: Final = {
    signal.SIGABRT: "aborted",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGTRAP: "trap",
}
#: Exit code of a Go program that panics.
_GO_PANIC: Final = 2
#: Exit code of a worker whose kit caught what no other code caught (docs/worker-protocol.md).
_KIT_CAUGHT: Final = 70

#: The first line of what a runtime prints of its end.
_FIRST_LINE = re.compile(
    r"""^(?P<name>panic|fatal\ error|SIG[A-Z]+):\ \S.*$           # Go
      | ^\#\ +SIG[A-Z]+\ \(0x[0-9a-f]+\)\ at\ .*$                 # a JVM, on its standard output
      | ^Fatal\ Python\ error:\ .*$
      | ^thread\ .*\ panicked\ at\ .*$                            # Rust
      | ^\#\ Fatal\ error\ in\ .*$                                # V8
      | ^terminate\ called\ after\ .*$                            # C++
      | ^.*\b[Aa]ssert(?:ion)?\b.*$                               # C: glibc's and librdkafka's own
    """,
    re.MULTILINE | re.VERBOSE,
)
#: A process that gets no memory any more is the machine's affair, or the affair of a limit.
_NO_MEMORY = re.compile(
    r"out of memory|cannot allocate memory|bad_alloc|memory allocation of \d+ bytes"
)
_GO_RETHROWN = re.compile(r"^panic\(")
_NODE_STACK = re.compile(r"^(?P<text>\S.*)\n(?P<frames>(?: +at .*\n?)+)", re.MULTILINE)
_NODE_FILE = re.compile(r"[( ](?:file://)?(/[^():\n]+):\d+:\d+")
_RUST_PLACE = re.compile(r"panicked at (?P<file>[^:]+):\d+:\d+")
#: Where Cargo keeps what it downloaded, and where a library of Rust itself was built.
_RUST_LIBRARY = re.compile(r"/registry/src/|/git/checkouts/")
#: Characters at the start of a dump and at the end of a log that are searched for a lack of memory.
_NEAR: Final = 4096
#: Bytes at the end of a log that are searched.
TAIL_BYTES: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The end of a process that ended itself.

    Attributes:
        name: what ended it, in a word: a signal, ``panic``, ``exception``.
        text: the first line of what its runtime printed of it.
        dump: that line and everything after it; empty where nothing was printed.
        stack: the stack that crashed; None where the dump has none.
    """

    name: str
    text: str
    dump: str = ""
    stack: Stack | None = None


def crash_of_client(exit_code: int | None, log: str, said: str = "") -> Crash | None:
    """How the client took its process down.

    Args:
        exit_code: of the process; negative: the signal that ended it; None: not known.
        log: the end of its standard error and output (`TAIL_BYTES`).
        said: the text of the last error line of the worker protocol, in which a kit reports what it
            caught.

    Returns:
        None where it did not, where it got no memory, and where the code of the worker itself
        failed.
    """
    if exit_code is None:
        return None
    dump = _dump(log)
    # What a runtime prints when it gets no memory is not always a first line that is known.
    if _NO_MEMORY.search(dump[:_NEAR]) or _NO_MEMORY.search(log[-_NEAR:]):
        return None
    if exit_code < 0:
        return _by_signal(-exit_code, dump)
    if exit_code == _GO_PANIC:
        return _by_go(dump)
    if exit_code == _KIT_CAUGHT:
        return _caught_by_kit(log, dump, said)
    return None


def _dump(log: str) -> str:
    """The log from the first line that a dying runtime prints. A line with "assert" in it may be an
    ordinary line of the log: it counts only where no runtime says anything, and then the last one
    does."""
    found = list(_FIRST_LINE.finditer(log))
    if not found:
        return ""
    of_runtime = [each for each in found if not re.search(r"\b[Aa]ssert", each[0])]
    return log[(of_runtime[0] if of_runtime else found[-1]).start() :]


def _by_signal(number: int, dump: str) -> Crash | None:
    try:
        name = signal.Signals(number)
    except ValueError:
        return None
    if name not in _SIGNALS:
        return None
    text = dump.partition("\n")[0].strip(" #") or f"ended by {name.name} ({_SIGNALS[name]})"
    stack = next(iter(parse(dump)), None)
    return Crash(name=name.name, text=text, dump=dump, stack=stack)


def _by_go(dump: str) -> Crash | None:
    """A goroutine of the client that panics, or the Go runtime that ends the program."""
    first = _FIRST_LINE.match(dump)
    stacks = parse(dump)
    if first is None or not first["name"] or not stacks:
        return None
    stack = _from_panic(stacks[0])
    return (
        None
        if stack.is_of_worker
        else Crash(name=first["name"], text=first[0], dump=dump, stack=stack)
    )


def _from_panic(stack: Stack) -> Stack:
    """Without the frames that Go and the kit add where a panic is caught or thrown again."""
    thrown = [number for number, line in enumerate(stack.lines) if _GO_RETHROWN.match(line)]
    return Stack(stack.title, stack.lines[thrown[-1] + 1 :]) if thrown else stack


def _caught_by_kit(log: str, dump: str, said: str) -> Crash | None:
    """Return the crash that the worker's kit caught as its last handler, if it came from a
    library."""
    if place := _RUST_PLACE.search(dump):
        text = " ".join(dump.splitlines()[:2]).strip()
        return (
            Crash(name="panic", text=text, dump=dump)
            if _RUST_LIBRARY.search(place["file"])
            else None
        )
    panics = [stack for stack in parse(log) if any(map(_GO_RETHROWN.match, stack.lines))]
    if panics:
        stack = _from_panic(panics[-1])
        return (
            None if stack.is_of_worker else Crash(name="panic", text=f"panic: {said}", stack=stack)
        )
    return _node_exception(log)


def _node_exception(log: str) -> Crash | None:
    """An exception with files of libraries only in its stack: the worker could not have caught
    it."""
    printed = list(_NODE_STACK.finditer(log))
    if not printed:
        return None
    files = _NODE_FILE.findall(printed[-1]["frames"])
    if not files or not all("/node_modules/" in file for file in files):
        return None
    return Crash(name="exception", text=printed[-1]["text"], dump=printed[-1][0])
