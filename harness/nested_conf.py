"""Files of nested blocks, as nats-server has them: ``jetstream { max_file_store: 1GB }``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.rundir import read_text

MOST_BYTES: Final = 1_000_000
MOST_DEPTH: Final = 20
_COMMON: Final = r"""(?P<space>[ \t\r]+|(?:\#|//)[^\n]*)
      | (?P<end>[\n,;])
      | (?P<open>\{) | (?P<close>\})
      | (?P<list>\[)
      | (?P<text>"(?:\\.|[^"\\])*"|'[^']*')"""
_KEY: Final = re.compile(rf"""{_COMMON} | (?P<word>[^\s,;{{}}\[\]"'=:\#]+)""", re.VERBOSE)
#: What separates a key from its value, mostly; a space does too.
_SIGN: Final = re.compile(r"[ \t]*[=:]")
_VALUE: Final = re.compile(rf"""{_COMMON} | (?P<word>[^\s,;{{}}\[\]"']+)""", re.VERBOSE)


def read_nested(path: Path) -> dict[str, str]:
    """The settings of a file that a user names, with dots for blocks: ``jetstream.max_file_store``.

    A list is kept as it is written. Of a key that is there twice the last value counts.

    Raises:
        UsageError: unreadable, no regular file, too large, not UTF-8, or not such a file; says the
            line.
    """
    found: dict[str, str] = {}
    blocks: list[str] = []
    words: list[str] = []
    line = 1
    for kind, token, line in _tokens(read_text(path, MOST_BYTES), path):
        if kind == "word":
            words.append(token)
            continue
        if kind == "open":
            if not words or len(blocks) >= MOST_DEPTH:
                raise UsageError(
                    f"{path}:{line}: a block needs a name, and at most {MOST_DEPTH} are nested"
                )
            blocks.append(words[0])
            words = []
            continue
        _keep(found, blocks, words, path, line)
        words = []
        if kind == "close":
            if not blocks:
                raise UsageError(f"{path}:{line}: '}}' without a block")
            blocks.pop()
    _keep(found, blocks, words, path, line)
    if blocks:
        raise UsageError(f"{path}: the block {'.'.join(blocks)} does not end")
    return found


def _tokens(text: str, path: Path) -> Iterator[tuple[str, str, int]]:
    """Kind (``word``, ``end`` of a setting, ``open`` and ``close`` of a block), text and line of
    each part.

    A key ends at ``=`` or ``:``, which a value may hold.
    """
    at, is_key = 0, True
    while at < len(text):
        match = (_KEY if is_key else _VALUE).match(text, at)
        line = text.count("\n", 0, at) + 1
        if match is None:
            raise UsageError(f"{path}:{line}: cannot read {text[at : at + 20].splitlines()[0]!r}")
        kind, token, at = str(match.lastgroup), match[0], match.end()
        if kind == "list":
            at = _end_of_list(text, match.start(), path, line)
            yield "word", text[match.start() : at], line
        elif kind in {"text", "word"}:
            yield "word", token[1:-1] if kind == "text" and is_key else token, line
            sign = _SIGN.match(text, at) if is_key else None
            at = sign.end() if sign else at
            is_key = False
        elif kind != "space":
            yield kind, token, line
            is_key = True


def _keep(
    found: dict[str, str], blocks: list[str], words: list[str], path: Path, line: int
) -> None:
    if not words:
        return
    if len(words) == 1:
        raise UsageError(f"{path}:{line}: {words[0]} has no value")
    found[".".join([*blocks, words[0]])] = " ".join(words[1:])


def _end_of_list(text: str, begin: int, path: Path, line: int) -> int:
    """Where the list that begins there is over."""
    depth = 0
    for place in range(begin, len(text)):
        depth += {"[": 1, "]": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    raise UsageError(f"{path}:{line}: the list does not end")
