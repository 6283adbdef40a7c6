"""Files of ``key=value`` lines, as Java programs read them (java.util.Properties)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.rundir import read_text

MOST_BYTES: Final = 1_000_000
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: What ends a key: the first separator that no backslash precedes.
_KEY: Final = re.compile(r"(?:\\.|[^\\=:\s])*")


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a file that a user names. If a key is there twice, its last value counts, as
    in Java.

    Raises:
        UsageError: unreadable, no regular file, too large, not UTF-8, or a line that has no key.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(read_text(path, MOST_BYTES)):
        match = _KEY.match(line)
        key = _unescaped(match[0]) if match else ""
        if not key:
            raise UsageError(f"{path}:{number}: no key before the value: {line[:60]!r}")
        value = _unescaped(_value(line[len(match[0]) :] if match else line))
        try:
            found[_whole(key)] = _whole(value)
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}:{number}: half a character: {line[:60]!r}") from error
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Number of the first line, and the lines that a backslash joins; without comments and empty
    lines."""
    found: list[tuple[int, str]] = []
    begun, joined = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        found.append((begun, joined + line))
        begun, joined = 0, ""
    if begun:
        found.append((begun, joined))
    return found


def _value(rest: str) -> str:
    """Return the value after a key: white space, one ``=`` or ``:``, white space, the value."""
    rest = rest.lstrip(" \t\f")
    return rest[1:].lstrip(" \t\f") if rest[:1] in {"=", ":"} else rest


def _whole(text: str) -> str:
    """The text with each pair of surrogates, as Java writes a character beyond U+FFFF, as that
    character.

    Raises:
        UnicodeDecodeError: one of them is without its other half, which no client and no file
            takes.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)

    return _ESCAPE.sub(character, text)
