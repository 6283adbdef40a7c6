"""The consumer role but for the client: the journal, positions, and what is still to be
committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from . import layouts as lay
from . import payload
from .failure import WorkerFailure
from .payload import RESIDUE
from .process import Session
from .segments import SegmentWriter
from .streams import StreamIds

Partition = tuple[str, int]
#: A member of a group may get no partition, but a first answer of none is often early.
EMPTY_ASSIGNMENT_S = 5.0
ASSIGN_TIMEOUT_S = 25.0


class ConsumerSession:
    """The journal of one consumer session, in the order the application saw things. One thread
    writes."""

    def __init__(self, session: Session) -> None:
        part, spec = session.spec.part, session.spec
        self.group: str = part["group"]
        self.topics: list[str] = part["topics"]
        self.commit_every_ns = int(part["commit_every_s"] * 1e9)
        #: The application's time for a message, between its hand-over and what settles it.
        self.work_s: float = part.get("work_s", 0.0)
        group = session.names.id("subscription", self.group)
        self.segments = SegmentWriter(
            spec.folder, lay.DELIVERIES, part["session"], spec.run_tag, subscription=group
        )
        self._rows, self._at, self._end = self.segments.rotate()
        self._streams = StreamIds(session)
        self._prefixes = payload.accepted_prefixes(spec.run_tag)
        self._run_tag = spec.run_tag
        self._report = session.report
        self._control = session.control
        self._bootstrap = spec.bootstrap
        #: The partitions that it has, and the epoch in which each was given.
        self.assigned: dict[Partition, int] = {}
        self.epoch = 0
        #: Messages of the run that were handed over, without probes.
        self.delivered = 0
        #: next position of everything handed over in this session, and the part not yet committed
        self.positions: dict[Partition, int] = {}
        self.uncommitted: dict[Partition, int] = {}

    def counts(self) -> dict[str, object]:
        """Numbers of the stats line; runs on the ticking thread."""
        positions = {f"{topic}-{p}": after for (topic, p), after in list(self.positions.items())}
        return {"delivered": self.delivered, "epoch": self.epoch, "positions": positions}

    def await_assignment(self, take: Callable[[], None]) -> None:
        """Call ``take``, one poll of the client, until this member has partitions or is to have
        none.

        Raises:
            WorkerFailure: the group gives no answer.
        """
        begun = time.monotonic()
        while self.awaits_assignment(begun):
            take()

    def awaits_assignment(self, begun_s: float) -> bool:
        """Whether this member has yet to learn its partitions, asked for since ``begun_s``.

        Raises:
            WorkerFailure: the group gives no answer.
        """
        if self.assigned or self._control.stopped:
            return False
        waited_s = time.monotonic() - begun_s
        if self.epoch and waited_s > EMPTY_ASSIGNMENT_S:
            return False
        if waited_s > ASSIGN_TIMEOUT_S:
            raise WorkerFailure(
                f"group {self.group}: no assignment from {self._bootstrap} within "
                f"{ASSIGN_TIMEOUT_S:.0f} s"
            )
        return True

    def deliver(self, topic: str, partition: int, offset: int, value: bytes, t_ns: int = 0) -> int:
        """The client handed a message over, and the application works on it; what its check says.

        ``t_ns`` 0 = now.

        Raises:
            WorkerFailure: the next segment cannot be made.
        """
        check = self.handed_over(topic, partition, offset, value, t_ns)
        if self.work_s:
            time.sleep(self.work_s)
        self.positions[topic, partition] = self.uncommitted[topic, partition] = offset + 1
        return check

    def handed_over(
        self, topic: str, partition: int, offset: int, value: bytes, t_ns: int = 0
    ) -> int:
        """Write the row of a message that the client handed over; `deliver` without the work.

        Raises:
            WorkerFailure: the next segment cannot be made.
        """
        if value[:8] in self._prefixes and crc32(value) == RESIDUE:
            check = lay.CHECK_OK
        else:
            check = payload.check(value, self._run_tag)
        if self._at == self._end:
            self._rows, self._at, self._end = self.segments.rotate()
        lay.DELIVERIES_ROW.pack_into(
            self._rows, self._at, t_ns or time.monotonic_ns(), offset, 0, 0, self._streams[topic][partition],
            0, self.epoch, -1, value[:48], check, lay.DELIVER,
        )  # fmt: skip
        self._at += 104
        if not payload.is_probe(value, check):
            self.delivered += 1
        return check

    def note(self, kind: int, topic: str, partition: int, position: int, t_ns: int = 0) -> None:
        """Something that happened to a partition. ``t_ns`` 0 = now.

        Raises:
            WorkerFailure: the next segment cannot be made.
        """
        if self._at == self._end:
            self._rows, self._at, self._end = self.segments.rotate()
        lay.DELIVERIES_ROW.pack_into(
            self._rows, self._at, t_ns or time.monotonic_ns(), position, 0, 0,
            self._streams[topic][partition], 0, self.epoch, -1, b"", 0, kind,
        )  # fmt: skip
        self._at += 104

    def assign(self, positions: Mapping[Partition, int], t_ns: int = 0) -> None:
        """The group gave partitions, to be read from these positions (-1 unknown): a new epoch
        begins."""
        self.epoch += 1
        for (topic, partition), position in positions.items():
            self.note(lay.ASSIGN, topic, partition, position, t_ns)
        self.assigned.update(dict.fromkeys(positions, self.epoch))
        self._report.event("assign", f"{len(positions)} partitions", epoch=self.epoch)

    def revoke(self, partitions: Iterable[Partition], t_ns: int = 0) -> None:
        """Partitions were taken away; what was not committed is read by their next owner."""
        taken = list(partitions)
        for topic, partition in taken:
            self.note(
                lay.REVOKE, topic, partition, self.positions.get((topic, partition), -1), t_ns
            )
            self.uncommitted.pop((topic, partition), None)
            self.assigned.pop((topic, partition), None)
        self._report.event("revoke", f"{len(taken)} partitions", epoch=self.epoch)

    def sought(self, topic: str, partition: int, position: int) -> None:
        """The application went to another position, and reads on from there.

        Raises:
            WorkerFailure: the next segment cannot be made.
        """
        self.note(lay.SEEK, topic, partition, position)
        self.positions[topic, partition] = position

    def take_uncommitted(self) -> dict[Partition, int]:
        """Positions to commit now; each is journaled as COMMIT_CALLED."""
        taken, self.uncommitted = self.uncommitted, {}
        for (topic, partition), position in taken.items():
            self.note(lay.COMMIT_CALLED, topic, partition, position)
        return taken
