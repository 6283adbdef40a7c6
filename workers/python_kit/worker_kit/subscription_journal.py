"""The journal of one consumer session whose messages are settled one by one, in the order of
events."""

from __future__ import annotations

import time
from zlib import crc32

from . import layouts as lay
from . import payload
from .payload import RESIDUE
from .process import Session
from .segments import SegmentWriter


class SubscriptionJournal:
    """One thread writes. A message is known by its stream and position."""

    def __init__(self, session: Session) -> None:
        spec, part = session.spec, session.spec.part
        group = session.names.id("subscription", part["group"])
        self._segments = SegmentWriter(
            spec.folder, lay.DELIVERIES, part["session"], spec.run_tag, subscription=group
        )
        self._rows, self._at, self._end = self._segments.rotate()
        self._run_tag = spec.run_tag
        self._prefixes = payload.accepted_prefixes(spec.run_tag)
        self._names = session.names
        self._report = session.report
        #: Everything that was handed over, and the probes among it.
        self._handed_over = self._probes = 0
        self.epoch = 0

    def counts(self) -> dict[str, object]:
        """Numbers of the stats line; runs on the ticking thread."""
        return {"delivered": self._handed_over - self._probes, "epoch": self.epoch, "positions": {}}

    def deliver(self, stream: str, position: int, value: bytes, redelivery: int) -> int:
        """The application has a message; returns its number in this session, from 1.

        Raises:
            WorkerFailure: the next segment cannot be made, as of the others.
        """
        is_ours = value[:8] in self._prefixes and crc32(value) == RESIDUE
        check = lay.CHECK_OK if is_ours else payload.check(value, self._run_tag)
        self._write(
            self._names.id("stream", stream), position, redelivery, value[:48], check, lay.DELIVER
        )
        self._handed_over += 1
        if payload.is_probe(value, check):
            self._probes += 1
        return self._handed_over

    def note(self, kind: int, stream: str, position: int) -> None:
        """Something the application did with a message, or learned about it."""
        self._write(self._names.id("stream", stream), position, -1, b"", 0, kind)

    def connected(self, text: str) -> None:
        """Subscribed, or connected again: what was prefetched before comes again, a new epoch
        begins."""
        self.epoch += 1
        self._write(0, -1, -1, b"", 0, lay.ASSIGN)
        self._report.event("assign", text, epoch=self.epoch)

    def _write(
        self, stream: int, position: int, redelivery: int, header: bytes, check: int, kind: int
    ) -> None:
        if self._at == self._end:
            self._rows, self._at, self._end = self._segments.rotate()
        ledger = -1 if kind == lay.ASSIGN else 0
        lay.DELIVERIES_ROW.pack_into(
            self._rows, self._at, time.monotonic_ns(), position, ledger, 0, stream, 0, self.epoch,
            redelivery, header, check, kind,
        )  # fmt: skip
        self._at += lay.ROW_BYTES[lay.DELIVERIES]
