"""Turns a column of a file into numbers, exactly, or refuses it with file, row, value and what is
allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.contracts.rows import NameRow
from harness.errors import UsageError, did_you_mean
from harness.importing.columns import Field
from harness.importing.readers import Batch
from harness.validation import is_one_line

Ints = npt.NDArray[np.int64]
_WHOLE: Final = r"^[+-]?[0-9]{1,19}$"
#: Above it, whole numbers have no exact floating-point form.
_EXACT_FLOAT: Final = 2**53
MAX_TEXT: Final = 300
#: Different texts of a column; more cannot be names.
MAX_NAMES: Final = 100_000
_NS_OF: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class ImportedNames:
    """Numbers for texts, shared by all tables of an import: streams first, 1, 2, 3 ..."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = {text: number for number, text in enumerate(streams, start=1)}
        self._others: dict[tuple[str, str], int] = {}
        self._texts: list[str] = []

    def number(self, kind: str, text: str) -> int | None:
        """Return the number of a text, and assign one if it is new; None if there are too many."""
        known = self._others.get((kind, text))
        if known is None:
            if len(self._others) >= MAX_NAMES:
                return None
            known = self._others[kind, text] = len(self.streams) + len(self._others) + 1
            self._texts.append(text)
        return known

    def text(self, number: int) -> str:
        """Return the text to which `number` gave a number."""
        return self._texts[number - len(self.streams) - 1]

    def rows(self) -> list[NameRow]:
        """Rows of the sealed names.jsonl."""
        streams = (NameRow(n, "stream", text) for text, n in self.streams.items())
        others = (NameRow(n, kind, text) for (kind, text), n in self._others.items())
        return [*streams, *others]


class BatchColumn:
    """A column of a batch that is being read."""

    def __init__(
        self, field: Field, batch: Batch, theirs: str, names: ImportedNames, unit_ns: int | None
    ) -> None:
        self._field = field
        self._batch = batch
        self._theirs = theirs
        self._names = names
        self._unit_ns = unit_ns

    def numbers(self, array: pa.Array) -> Ints:
        """The values as int64, empty ones filled in.

        Raises:
            UsageError: a value that is not allowed.
        """
        if isinstance(array, pa.ExtensionArray):
            self._refuse_type(array.type)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
            array = array.cast(pa.string())
        read = {
            "whole": self._whole,
            "choice": self._choice,
            "text": self._text,
            "stream": self._stream,
            "time": self._time,
        }[self._field.reads]
        if pa.types.is_null(array.type):
            array = pa.nulls(
                len(array), pa.int64() if self._field.reads in ("whole", "time") else pa.string()
            )
        return self._filled(read(array))

    # -- what a value may be

    def _whole(self, array: pa.Array) -> pa.Array:
        numbers = self._int64(array)
        low, high = self._field.low, self._field.high
        self._require(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)), array)
        return numbers

    def _time(self, array: pa.Array) -> pa.Array:
        kind = array.type
        if pa.types.is_timestamp(kind):
            if kind.tz is None:
                self._refuse_type(kind, "has no time zone, so it names no moment")
            numbers, unit_ns = array.cast(pa.int64()), _NS_OF[kind.unit]
        elif pa.types.is_string(kind) and not self._are_whole(array):
            return self._moments(array)
        else:
            numbers, unit_ns = self._int64(array), self._number_unit()
        self._require(pc.and_(pc.greater(numbers, 0), pc.less(numbers, 2**62 // unit_ns)), array)
        return pc.multiply(numbers, unit_ns)

    def _number_unit(self) -> int:
        if self._unit_ns is not None:
            return self._unit_ns
        if self._theirs != self._field.name:
            raise UsageError(
                f"{self._batch.file}: {self._theirs} holds numbers, and import.yaml does not say their unit",
                hint="times: ns, us, ms or s",
            )
        return 1

    def _moments(self, array: pa.Array) -> pa.Array:
        """Parse texts like 2026-01-31T12:00:00.123Z."""
        try:
            numbers = array.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
        except pa.ArrowException:
            for index, value in enumerate(array.to_pylist()):
                if value is not None and not _is_moment(value):
                    self._refuse(index, value)
            raise
        self._require(pc.greater(numbers, 0), array)
        return numbers

    def _choice(self, array: pa.Array) -> pa.Array:
        choices = self._field.choices
        numbers = {str(number): number for number in choices.values()}
        texts = array.cast(pa.string()) if pa.types.is_integer(array.type) else array
        return self._looked_up(texts, {**numbers, **choices})

    def _stream(self, array: pa.Array) -> pa.Array:
        return self._looked_up(array, self._names.streams, label="streams")

    def _text(self, array: pa.Array) -> pa.Array:
        encoded = self._encoded(array)
        found: list[int] = []
        for at, text in enumerate(encoded.dictionary.to_pylist()):
            if not is_one_line(text) or len(text) > MAX_TEXT or not text.isprintable():
                self._refuse(
                    self._first_of(encoded, at),
                    text,
                    f"one printable line, at most {MAX_TEXT} characters",
                )
            number = self._names.number(self._field.name, text)
            if number is None:
                raise UsageError(
                    f"{self._batch.file}: {self._theirs} makes more than {MAX_NAMES:,} different texts",
                    hint="a text names a class of errors, a client or a group, not a message",
                )
            found.append(number)
        return pa.array(found, pa.int64()).take(encoded.indices)

    # -- how

    def _looked_up(self, array: pa.Array, known: Mapping[str, int], label: str = "") -> pa.Array:
        encoded = self._encoded(array)
        found: list[int] = []
        for at, text in enumerate(encoded.dictionary.to_pylist()):
            if text not in known:
                near = did_you_mean(text, known, label=label)
                self._refuse(self._first_of(encoded, at), text, near=near if label else "")
            found.append(known[text])
        return pa.array(found, pa.int64()).take(encoded.indices)

    def _encoded(self, array: pa.Array) -> pa.DictionaryArray:
        if not pa.types.is_string(array.type):
            self._refuse_type(array.type)
        return array.dictionary_encode()

    def _first_of(self, encoded: pa.DictionaryArray, at: int) -> int:
        return int(pc.index(encoded.indices, at).as_py())

    def _int64(self, array: pa.Array) -> pa.Array:
        kind = array.type
        if pa.types.is_integer(kind):
            if kind == pa.uint64():
                self._require(pc.less_equal(array, pa.scalar(2**63 - 1, pa.uint64())), array)
            return array.cast(pa.int64())
        if pa.types.is_string(kind):
            self._require(pc.match_substring_regex(array, _WHOLE), array)
            try:
                return pc.replace_substring_regex(array, r"^\+", "").cast(pa.int64())
            except pa.ArrowException:
                large = (
                    i
                    for i, v in enumerate(array.to_pylist())
                    if v and not -(2**63) <= int(v) < 2**63
                )
                index = next(large)
                self._refuse(index, array[index].as_py())
        if pa.types.is_float64(kind) or pa.types.is_float32(kind):
            return self._of_floats(array.cast(pa.float64()))
        self._refuse_type(kind)

    def _of_floats(self, array: pa.Array) -> pa.Array:
        """Whole numbers that a tool with missing values kept as floating point; NaN is such a
        value."""
        array = pc.if_else(pc.is_nan(array), None, array)
        exact = pc.and_(
            pc.equal(pc.floor(array), array), pc.less_equal(pc.abs(array), float(_EXACT_FLOAT))
        )
        self._require(exact, array, "; as floating point, exact up to 2^53 only")
        return array.cast(pa.int64())

    def _are_whole(self, array: pa.Array) -> bool:
        """Whether no value is a text as of a moment."""
        return not pc.any(pc.match_substring_regex(array, "[-:T]"), min_count=0).as_py()

    def _filled(self, array: pa.Array) -> Ints:
        if array.null_count:
            if self._field.empty is None:
                index = int(pc.index(pc.is_null(array), True).as_py())
                raise UsageError(
                    f"{self._batch.place(index)}: {self._theirs} has no value; allowed: "
                    f"{self._field.allowed}"
                )
            array = pc.fill_null(array, self._field.empty)
        # a copy: rows are filled in later
        return np.array(array.to_numpy(zero_copy_only=False), np.int64)

    # -- refusals

    def _require(self, holds: pa.Array, array: pa.Array, more: str = "") -> None:
        """Refuse the first value that is there and for which ``holds`` is not true."""
        wrong = pc.and_(pc.invert(pc.fill_null(holds, False)), pc.is_valid(array))
        index = int(pc.index(wrong, True).as_py())
        if index >= 0:
            self._refuse(index, array[index].as_py(), self._field.allowed + more)

    def _refuse(self, index: int, value: Any, allowed: str = "", near: str = "") -> NoReturn:
        shown = str(value) if len(str(value)) <= 60 else f"{str(value)[:57]}..."
        tail = near or f"allowed: {allowed or self._field.allowed}"
        raise UsageError(f"{self._batch.place(index)}: {self._theirs} is {shown!r}; {tail}")

    def _refuse_type(self, kind: pa.DataType, why: str = "") -> NoReturn:
        said = f"{self._batch.file}: column {self._theirs} is of type {kind}"
        raise UsageError(f"{said}{f', which {why}' if why else ''}; allowed: {self._field.allowed}")


def _is_moment(value: str) -> bool:
    try:
        pa.array([value]).cast(pa.timestamp("ns", "UTC"))
    except pa.ArrowException:
        return False
    return True
