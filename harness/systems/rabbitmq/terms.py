"""Erlang's external term format (the "Erlang External Term Format" of its documentation).

Only the types that requests to RabbitMQ and its answers use. Integers, floats, lists, tuples, maps
and binaries become Python's; a text is a binary.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_VERSION: Final = 131


class Atom(str):
    """An atom: ``Atom("ok")``. It equals the text of its name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Pid:
    """A process. ``node`` is the node that it runs on; ``raw`` the bytes after the node's name."""

    node: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Reference:
    """A unique reference. ``raw``: its bytes after the node's name."""

    node: str
    raw: bytes
    words: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module by name, as ``fun module:name/arity``."""

    module: str
    name: str
    arity: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """A term that we only know to be there: a port, or a function without a name."""

    kind: int


class MalformedTerm(ValueError):
    """Bytes that are not a term, or a type that is not known here."""


def encoded(term: Any) -> bytes:
    """The bytes of a term, with the version in front.

    Raises:
        TypeError: no such type here.
    """
    return bytes([_VERSION]) + _encoded(term)


def _encoded(term: Any) -> bytes:
    if isinstance(term, bool):
        return _atom("true" if term else "false")
    if isinstance(term, Atom):
        return _atom(term)
    if isinstance(term, int):
        return _integer(term)
    if isinstance(term, float):
        return struct.pack(">Bd", 70, term)
    if isinstance(term, bytes):
        return struct.pack(">BI", 109, len(term)) + term
    if isinstance(term, str):
        return _encoded(term.encode())
    if isinstance(term, tuple):
        return _tuple_head(len(term)) + b"".join(map(_encoded, term))
    if isinstance(term, list):
        if not term:
            return b"\x6a"
        return struct.pack(">BI", 108, len(term)) + b"".join(map(_encoded, term)) + b"\x6a"
    if isinstance(term, dict):
        pairs = (_encoded(key) + _encoded(value) for key, value in term.items())
        return struct.pack(">BI", 116, len(term)) + b"".join(pairs)
    if isinstance(term, Pid):
        return b"\x58" + _atom(term.node) + term.raw
    if isinstance(term, Reference):
        return struct.pack(">BH", 90, term.words) + _atom(term.node) + term.raw
    if isinstance(term, Function):
        return b"\x71" + _atom(term.module) + _atom(term.name) + _integer(term.arity)
    raise TypeError(f"no term for {type(term).__name__}")


def _atom(name: str) -> bytes:
    raw = name.encode()
    return struct.pack(">BH", 118, len(raw)) + raw


def _integer(number: int) -> bytes:
    if 0 <= number < 256:
        return struct.pack(">BB", 97, number)
    if -(2**31) <= number < 2**31:
        return struct.pack(">Bi", 98, number)
    size = (abs(number).bit_length() + 7) // 8
    sign = 1 if number < 0 else 0
    return struct.pack(">BBB", 110, size, sign) + abs(number).to_bytes(size, "little")


def _tuple_head(size: int) -> bytes:
    return struct.pack(">BB", 104, size) if size < 256 else struct.pack(">BI", 105, size)


def decoded(data: bytes) -> tuple[Any, int]:
    """A term, and where the bytes after it begin.

    Raises:
        MalformedTerm: it is cut off, or has a type that is not known here.
    """
    if not data or data[0] != _VERSION:
        raise MalformedTerm("not a term of Erlang")
    reader = _Reader(data, 1)
    try:
        return reader.term(), reader.at
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise MalformedTerm(f"a term that is cut off ({type(error).__name__})") from None


class _Reader:
    """Reads terms one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._data):
            raise IndexError
        found = self._data[self.at : end]
        self.at = end
        return found

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def term(self) -> Any:
        kind = self._number(1)
        if kind == 97:
            return self._number(1)
        if kind == 98:
            return int.from_bytes(self._take(4), "big", signed=True)
        if kind == 70:
            return struct.unpack(">d", self._take(8))[0]
        if kind in (110, 111):
            return self._big(1 if kind == 110 else 4)
        if kind in (100, 118):
            return Atom(self._take(self._number(2)).decode("utf-8", "replace"))
        if kind in (115, 119):
            return Atom(self._take(self._number(1)).decode("utf-8", "replace"))
        if kind in (104, 105):
            return tuple(self.term() for _ in range(self._number(1 if kind == 104 else 4)))
        if kind == 106:
            return []
        if kind == 107:
            return list(self._take(self._number(2)))
        if kind == 108:
            return self._list()
        if kind == 109:
            return self._take(self._number(4))
        if kind == 116:
            return self._map()
        if kind == 88:
            return Pid(str(self.term()), self._take(12))
        if kind == 90:
            words = self._number(2)
            return Reference(str(self.term()), self._take(4 + 4 * words), words)
        if kind == 113:
            return Function(str(self.term()), str(self.term()), int(self.term()))
        return self._opaque(kind)

    def _big(self, size: int) -> int:
        count, sign = self._number(size), 0
        sign = self._number(1)
        number = int.from_bytes(self._take(count), "little")
        return -number if sign else number

    def _list(self) -> Sequence[Any]:
        found = [self.term() for _ in range(self._number(4))]
        self.term()  # the tail; improper lists have one, and nothing here reads it
        return found

    def _map(self) -> dict[Any, Any]:
        found = {}
        for _ in range(self._number(4)):
            key = self.term()
            value = self.term()
            found[key if _is_hashable(key) else repr(key)] = value
        return found

    def _opaque(self, kind: int) -> Opaque:
        if kind == 112:  # a function: its size counts the four bytes of the size, too
            self._take(self._number(4) - 4)
        elif kind == 77:
            self._take(self._number(4) + 1)
        elif kind == 89:
            self.term()
            self._take(8)
        elif kind == 120:
            self.term()
            self._take(12)
        else:
            raise MalformedTerm(f"a term of the type {kind}, which is not known here")
        return Opaque(kind)


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
