"""Stack dumps of Go, the JVM, Python and Rust: cut into stacks, and the one in which the worker's
call waits.

A dump of a client has dozens of threads, goroutines or asyncio tasks. The one to show is the
worker's own, seen from the client: code of a library that was called by code of the worker.
Libraries are distinguished from the standard library by where they come from, so no client is known
by name here. Those of Rust have the form of a JVM's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADS = (
    re.compile(r"^goroutine \d+ .*\[.*\]:$"),
    re.compile(r'^".*" .*(tid|nid)=0x'),
    re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*:$"),
    re.compile(r'^Task ".*" \(.*:$'),
)
_JVM_HEAD = re.compile(r'^(?P<name>".*") .*\bnid=\w+ (?P<state>[^\[]*)')
#: Lines of code of a worker or its kit: in Python, whatever is neither installed nor part of the
#: language.
_WORKER = re.compile(
    r'^(main\.|brokerstorm/)|^at <?brokerstorm(\.|_\w+::)|^File "(?!.*/lib/python[0-9.]+/).*\.py"'
)
_ROLE = re.compile(
    r"producer|consumer|openloop|open_loop|asyncio_loop|asyncio_consuming|audit", re.IGNORECASE
)
#: Code of the language itself. Go's packages have no dot in front of their first slash.
_STANDARD = re.compile(
    r"^(created by )?[a-z0-9_/]+\.[^/]*$"
    r"|^at (java\.|javax\.|jdk\.|sun\.|java\.base)"
    r"|^at <?(std|core|alloc)::"
    r"|^File .*/lib/python[0-9.]+/(?!site-packages|dist-packages)"
)
#: A program of Rust has its client in itself.
_SHARED_LIBRARY = re.compile(r"\.so[.0-9]*\)$")
#: The second line of a Go frame: file, line, offset.
_PLACE = re.compile(r"^(?P<file>\S+\.(go|s)):(?P<line>\d+)")
_GO_ARGUMENTS = re.compile(r"\([^()]*\)$")
_JAVA = re.compile(r"^at (?P<call>[^(]+)\((?P<place>[^)]*)\)")
_PYTHON = re.compile(r'^File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<call>.*)$')
#: Lines of a stack that a report shows.
SHOWN_LINES = 40


@dataclass(frozen=True, slots=True)
class Stack:
    """One thread, goroutine or task; ``lines`` without indent, innermost call first."""

    title: str
    lines: tuple[str, ...]

    @property
    def where(self) -> str:
        """The innermost call that is not the language's own, with file and line; empty when there
        is none."""
        for number, line in enumerate(self.lines):
            if _PLACE.match(line) or not _is_frame(line) or _is_standard(line):
                continue
            after = self.lines[number + 1] if number + 1 < len(self.lines) else ""
            return _call(line, after)
        return ""

    @property
    def is_of_worker(self) -> bool:
        """Whether the innermost call is code of a worker or its kit: no library lies between."""
        for line in self.lines:
            if not _is_frame(line):
                continue
            if _WORKER.match(line):
                return True
            if not _is_standard(line):
                return False
        return False


def shown(stack: Stack) -> list[str]:
    """The innermost `SHOWN_LINES`; the place of a Go frame is indented under its call."""
    lines = stack.lines[:SHOWN_LINES]
    return [f"    {line}" if _PLACE.match(line) else line for line in lines]


def parse(dump: str) -> list[Stack]:
    """The stacks of a dump; text around them (a client's log goes to the same file) is left out."""
    stacks: list[Stack] = []
    title, lines = "", list[str]()
    for raw in [*dump.splitlines(), ""]:
        line = raw.strip()
        if any(head.match(line) for head in _HEADS) or not line:
            if title:
                stacks.append(Stack(_title(title), tuple(lines)))
            title, lines = line, []
        elif title:
            lines.append(line)
    return stacks


def _title(head: str) -> str:
    """Without addresses and scheduling figures, which say nothing to people."""
    if jvm := _JVM_HEAD.match(head):
        return f"{jvm['name']} {jvm['state']}".strip()
    return head.removesuffix(":").removesuffix(" (most recent call first)")


def waiting(dump: str) -> Stack | None:
    """The stack in which the worker's call into the client waits.

    Library code that the worker called comes first; else (a client in C, or calls that do not
    block) the longest stack of the worker itself; None when the dump has neither.
    """
    stacks = parse(dump)
    called = [stack for stack in stacks if _library_calls(stack)]
    if called:
        return max(called, key=_library_calls)
    own = [stack for stack in stacks if any(_WORKER.match(line) for line in stack.lines)]
    return max(own, key=lambda stack: (_is_role(stack), len(stack.lines)), default=None)


def _is_role(stack: Stack) -> bool:
    """The thread that sends or reads, and not one that listens to the harness."""
    return any(_WORKER.match(line) and _ROLE.search(line) for line in stack.lines)


def _library_calls(stack: Stack) -> int:
    """Frames of libraries inside of the worker's innermost frame; 0 when the worker has none."""
    count = 0
    for line in stack.lines:
        if _WORKER.match(line):
            return count
        if _is_frame(line) and not _is_standard(line):
            count += 1
    return 0


def _is_frame(line: str) -> bool:
    if _PLACE.match(line) or line.startswith(("created by ", "- ", "java.lang.Thread.State")):
        return False
    return bool(_JAVA.match(line) or _PYTHON.match(line) or line.endswith(")"))


def _is_standard(line: str) -> bool:
    return bool(_SHARED_LIBRARY.search(line) or _STANDARD.match(_GO_ARGUMENTS.sub("", line)))


def _call(line: str, after: str) -> str:
    if java := _JAVA.match(line):
        return f"{java['call'].rpartition('/')[2]} ({java['place']})"
    if python := _PYTHON.match(line):
        return f"{python['call']} ({python['file'].rpartition('/')[2]}:{python['line']})"
    place = _PLACE.match(after)
    call = _GO_ARGUMENTS.sub("", line)
    return f"{call} ({place['file'].rpartition('/')[2]}:{place['line']})" if place else call
