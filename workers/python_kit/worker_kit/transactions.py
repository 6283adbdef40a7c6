"""The journal of the transactions of one sending thread, and the rows of the sends in the one that
is open.

Every intent is written before the client is called, and every answer after it. A send's row gets
its outcome when its transaction has one, which is the same for all of them: only then is it known
what became of the message.
"""

from __future__ import annotations

import mmap
import time
from array import array
from collections.abc import Mapping
from typing import Any

from . import layouts as lay
from .process import Session
from .segments import SegmentWriter

ROW_WORDS = lay.ROW_BYTES[lay.SENDS] // 8
#: Words of a sends row: when it was done; client name (low) and error (high); outcome.
_DONE, _ERROR, _OUTCOME = 5, 10, 11
#: 64 kB a file: some tens of transactions a second.
_CAPACITY = 1024


class Transactions:
    """The transactions of thread ``thread`` of ``threads``: its transaction k has the number k *
    threads + thread + 1.

    ``asked``: the section ``transactions`` of the spec. Not for several threads.
    """

    def __init__(
        self, session: Session, asked: Mapping[str, Any], thread: int, threads: int
    ) -> None:
        self.messages: int = asked["messages"]
        self.every_ns = int(asked["every_s"] * 1e9)
        self.abort_every: int = asked["abort_every"]
        #: The transactional id of this thread's client.
        self.id = f"{asked['id']}-{thread}"
        self._thread, self._threads = thread, threads
        self._segments = SegmentWriter(
            session.spec.folder, lay.TRANSACTIONS, session.spec.part["instance"], session.spec.run_tag,
            capacity=_CAPACITY,
        )  # fmt: skip
        self._rows, self._at, self._end = mmap.mmap(-1, 1), 0, 0
        self._asked = 0
        self._count = 0
        self._began_ns = 0
        self._stretches: list[tuple[mmap.mmap, int, int]] = []
        #: Messages of the open transaction.
        self.sent = 0
        self.number = 0

    def share(self, other: Transactions) -> None:
        """Number the segments together with the segments of another thread of this producer."""
        self._segments = other._segments

    # -- when it ends

    def room(self) -> int:
        """How many more messages the open transaction takes."""
        return self.messages - self.sent if self.messages else 2**62

    def left_s(self) -> float:
        """Until the open transaction is to end by time."""
        return (
            max(0, self._began_ns + self.every_ns - time.monotonic_ns()) / 1e9
            if self.every_ns
            else 3600.0
        )

    def is_due(self) -> bool:
        """Whether the open transaction is to end now."""
        return not self.room() or not self.left_s()

    @property
    def aborts(self) -> bool:
        """Whether the application wants to abort the open transaction."""
        return bool(self.abort_every) and self._count % self.abort_every == 0

    # -- the journal

    def begin(self) -> None:
        """Journal the next transaction.

        Raises:
            WorkerFailure: the next segment cannot be made.
        """
        if self._at == self._end:
            self._rows, self._at, self._end = self._segments.rotate()
        self.number = self._count * self._threads + self._thread + 1
        self._count += 1
        self._began_ns = time.monotonic_ns()
        self._asked = self.sent = 0
        self._stretches = []
        lay.TRANSACTIONS_BEGUN.pack_into(
            self._rows, self._at, self.number, self._thread, self._began_ns, 1
        )

    def ask(self, what: int) -> None:
        """Journal that the client is about to be asked to commit or to abort."""
        if not self._asked:
            at = self._at + lay.TRANSACTIONS_ASKED_OFFSET
            lay.TRANSACTIONS_ASKED.pack_into(self._rows, at, time.monotonic_ns(), what)
        self._asked |= what
        self._rows[self._at + lay.TRANSACTIONS_ASKED_OFFSET + 8] = self._asked

    def answered(self, outcome: int, error: int = 0) -> None:
        """Journal what came back; the transaction is over."""
        at = self._at + lay.TRANSACTIONS_DONE_OFFSET
        lay.TRANSACTIONS_DONE.pack_into(self._rows, at, time.monotonic_ns(), error, outcome)
        self._at += lay.ROW_BYTES[lay.TRANSACTIONS]
        self.number = 0

    # -- the rows of its sends

    def wrote(self, rows: mmap.mmap, begin: int, end: int) -> None:
        """Rows of sends of the open transaction lie there."""
        if self._stretches and self._stretches[-1][0] is rows and self._stretches[-1][2] == begin:
            begin = self._stretches.pop()[1]
        if end > begin:
            self._stretches.append((rows, begin, end))

    def complete(self, outcome: int, error: int = 0) -> int:
        """Complete the rows of all its sends, but for those that were answered already; how
        many."""
        completed, now = 0, time.monotonic_ns()
        for rows, begin, end in self._stretches:
            words = memoryview(rows).cast("Q")
            first, last = begin // 8, end // 8
            done = words[first + _DONE : last : ROW_WORDS].tolist()
            if (
                0 not in done
                and not error
                and not any(words[first + _OUTCOME : last : ROW_WORDS].tolist())
            ):
                words[first + _OUTCOME : last : ROW_WORDS] = array("Q", [outcome]) * len(done)
                completed += len(done)
                continue
            for word in range(first, last, ROW_WORDS):
                if not words[word + _OUTCOME]:
                    words[word + _DONE] = words[word + _DONE] or now
                    words[word + _ERROR] = error << 32
                    words[word + _OUTCOME] = outcome
                    completed += 1
        self._stretches = []
        return completed
