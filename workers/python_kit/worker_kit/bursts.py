"""Payloads and open rows of consecutive messages of a schedule, made together, a field at a time.

Python pays by the call and hardly by the byte. Packing one header costs more than filling a field
of 32 headers, and one number of 32 * 64 bits counts up 32 sequences in one addition. So the fields
of a burst lie in memory as they do in the payloads and rows, and are filled by strided copies: a
third of the time of packing message by message. The bytes are the same as from `payload.encode` and
`layouts.SENDS_OPEN`.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from zlib import crc32

from . import layouts as lay
from .failure import WorkerFailure
from .payload import Sizes, encode
from .schedule import Schedule
from .spec import Lane, Turns
from .template import Template

#: Messages of a burst at most (docs/worker-protocol.md). Its calls follow one another, so a row
#: says that its call began at most the time of this many calls, some 50 microseconds, before it
#: did.
BURST = 32
ROW_BYTES = lay.ROW_BYTES[lay.SENDS]
#: A row in 64-bit words, the distance of a column's numbers; the fifth word holds the state.
ROW_WORDS, STATE_WORD = ROW_BYTES // 8, 4
#: A column: numbers in the machine's own format.
Column = memoryview
#: One in each of BURST 64-bit numbers: multiplying repeats a number, adding adds to each.
_ONES = sum(1 << 64 * k for k in range(BURST))


@lru_cache(maxsize=4 * BURST)
def _counting(numerator: int, denominator: int) -> int:
    """``(numerator + k) // denominator`` for every k of a burst, as one number."""
    return sum((numerator + k) // denominator << 64 * k for k in range(BURST))


def _column(numbers: int) -> Column:
    return memoryview(numbers.to_bytes(8 * BURST, "little")).cast("Q")


def around(lanes: Sequence[Lane]) -> list[Lane]:
    """The lanes, and on around them: from any of them on for a whole burst."""
    return [*lanes, *(lanes[k % len(lanes)] for k in range(BURST))]


class Payloads:
    """Makes the payloads of a producer; the values of ``columns`` go into its rows too.

    Raises:
        WorkerFailure: on a big-endian machine.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        run_tag: int,
        sizes: Sizes,
        turns: Turns | None = None,
        template: Template | None = None,
    ) -> None:
        """Make payloads of ``sizes``, or around the bodies of a ``template``.

        ``turns``: of which ``lanes`` are those; None = each lane has one.
        """
        if sys.byteorder != "little":
            raise WorkerFailure(
                "this worker writes its rows as a little-endian machine has them in memory"
            )
        instance, length = sizes.instance, sizes.least
        self._lanes = len(lanes)
        self._turns = None if turns is None or turns.is_even else turns
        self._around = around(lanes)
        self._run_tag, self._sizes, self._template = run_tag, sizes, template
        self._length = length
        self._stride = (length + 7) // 8 * 8
        one = encode(
            run_tag=run_tag, instance=instance, lane=0, seq=0, t_intended_ns=0, length=length
        )
        self._memory = memoryview(bytearray(one.ljust(self._stride, b"\0") * BURST))
        words = self._memory.cast("Q")
        self._seqs, self._dues = words[2 :: self._stride // 8], words[3 :: self._stride // 8]
        halves = self._memory.cast("I")
        self._lane_ids, self._keys = halves[3 :: self._stride // 4], halves[8 :: self._stride // 4]
        self._kinds = self._memory[3 :: self._stride]
        crcs = self._memory[length - 4 : length + self._stride * (BURST - 1)]
        self._crcs = crcs.cast("I")[:: self._stride // 4]
        self._bodies = [self._memory[k * self._stride :][: length - 4] for k in range(BURST)]
        self._around_ids = array("I", [lane.lane for lane in self._around])
        self._around_keys = array("I", [lane.key_number for lane in self._around])
        self._keyed = any(self._around_keys)
        self._kind = -1

    def columns(
        self, first: int, count: int, schedule: Schedule, now_ns: int
    ) -> tuple[Column, Column]:
        """Sequence numbers and intended times of ``count`` messages or more from message
        ``first``."""
        seqs = self._seqs_of(first)
        period = schedule.period_ns
        if not period:
            return seqs, _column(now_ns * _ONES)
        t0_ns, step = schedule.t0_ns, int(period)
        if step == period and not schedule.profile:
            return seqs, _column(step * _counting(0, 1) + (t0_ns + first * step) * _ONES)
        return seqs, memoryview(schedule.dues_ns(first, first + count))

    def _seqs_of(self, first: int) -> Column:
        """Sequence numbers of a whole burst."""
        if self._turns:
            return memoryview(self._turns.seqs(first, first + BURST))
        seq, phase = divmod(first, self._lanes)
        if self._lanes > BURST:  # at most one step up: not a pattern for every lane to begin with
            phase = max(phase, self._lanes - BURST)
        return _column(_counting(phase, self._lanes) + seq * _ONES)

    def of(
        self, first: int, count: int, kind: int, columns: tuple[Column, Column]
    ) -> tuple[bytes, ...]:
        """Payloads of ``count`` messages from ``first``, whose columns these are."""
        phase = first % self._lanes
        if self._template or self._sizes.vary or self._sizes.compressible >= 0:
            return tuple(
                self._one(phase + k, columns[0][k], columns[1][k], kind) for k in range(count)
            )
        self._seqs[:], self._dues[: len(columns[1])] = columns
        self._lane_ids[:] = self._around_ids[phase : phase + BURST]
        if self._keyed:
            self._keys[:] = self._around_keys[phase : phase + BURST]
        if kind != self._kind:
            self._kinds[:] = bytes([kind]) * BURST
            self._kind = kind
        self._crcs[:count] = array("I", map(crc32, self._bodies[:count]))
        found: tuple[bytes, ...] = _cutter(self._length, count).unpack_from(self._memory)
        return found

    def _one(self, index: int, seq: int, due_ns: int, kind: int) -> bytes:
        lane = self._around[index]
        if self._template:
            filling = self._template.body(lane, seq)
            length = len(filling) + lay.MIN_PAYLOAD_BYTES
        else:
            length = self._sizes.of(lane.lane, seq)
            filling = self._sizes.filling(lane.lane, seq, length)
        return encode(
            run_tag=self._run_tag, instance=self._sizes.instance, lane=lane.lane, seq=seq,
            t_intended_ns=due_ns, kind=kind, key=lane.key_number, length=length, filling=filling,
        )  # fmt: skip


@lru_cache(maxsize=2 * BURST)
def _cutter(length: int, count: int) -> Struct:
    return Struct(f"{length}s{-length % 8}x" * count)


class OpenRows:
    """Writes the open part of a burst's rows, the state of all of them last."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._rows = mmap.mmap(-1, 8)
        self._words = memoryview(self._rows).cast("Q")
        self._lanes = len(lanes)
        #: the fifth word of every row: written, and the transaction that it is of
        self._state = 1
        #: lane and kind, the first word of a row, by kind
        self._firsts = {
            kind: array("Q", [lane.lane | kind << 48 for lane in around(lanes)])
            for kind in (lay.WARM_UP, lay.LOAD)
        }

    def use(self, rows: mmap.mmap) -> None:
        """Write into this segment from now on."""
        self._rows, self._words = rows, memoryview(rows).cast("Q")

    def in_transaction(self, number: int) -> None:
        """Rows are of this transaction from now on; 0 = of none."""
        self._state = 1 | number << 32

    def write(
        self,
        at: int,
        first: int,
        count: int,
        kind: int,
        columns: tuple[Column, Column],
        now_ns: int,
    ) -> None:
        """Rows of ``count`` messages from ``first``, called from now on; the first is at byte
        ``at``."""
        words, begin, phase = self._words, at // 8, first % self._lanes
        end = begin + count * ROW_WORDS
        words[begin:end:ROW_WORDS] = self._firsts[kind][phase : phase + count]
        words[begin + 1 : end : ROW_WORDS] = columns[0][:count]
        words[begin + 2 : end : ROW_WORDS] = columns[1][:count]
        words[begin + 3 : end : ROW_WORDS] = array("Q", [now_ns]) * count
        words[begin + STATE_WORD : end : ROW_WORDS] = array("Q", [self._state]) * count

    def take_back(self, at: int, end: int) -> None:
        """The messages of these rows are not sent now: no row shall say that they were."""
        count = (end - at) // ROW_BYTES
        self._words[at // 8 + STATE_WORD : end // 8 : ROW_WORDS] = array("Q", [0]) * count
        self._rows[at:end] = bytes(end - at)
