"""The pipeline role but for the client: of each message read one is made, and both sides end
together.

One thread polls, journals what it is handed, sends what is made of it, and settles the two. What
could not be settled is read once more from the positions that the group has committed, as Kafka's
documentation of `sendOffsetsToTransaction` and the examples of its clients do.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Final, Literal, Protocol

from . import layouts as lay
from .consuming import ConsumerSession, Partition
from .failure import WorkerFailure
from .payload import Sizes, encode, is_probe
from .process import Session
from .spec import Lane

#: What became of a settlement: it holds; what was read is to be read once more; try again with the
#: next one.
Settlement = Literal["settled", "again", "later"]
#: Messages between two looks at the clock and the commands.
BURST: Final = 500
POLL_S: Final = 0.05
#: What a header has room for.
MOST_OFFSET: Final = 2**32 - 1


class Writer(Protocol):
    """The half that sends (a `Sender` with a way to settle); positions are the next to be read."""

    lanes: list[Lane]
    sizes: Sizes

    def begin_next(self) -> None:
        """Begin the next settlement, if none is open: what is sent from now on belongs to it."""

    def send_one(self, index: int, seq: int, due_ns: int, kind: int, payload: bytes) -> None:
        """Send one message to lane ``index``, a row before it."""

    def is_full(self) -> bool:
        """Whether a settlement is due by the number of messages."""

    def left_s(self) -> float:
        """Until one is due by time."""

    def settle(self, positions: Mapping[Partition, int] | None) -> Settlement:
        """See everything that was sent to its end, and have these positions committed; None: they
        are lost, and so is what was made."""

    def serve(self, seconds: float) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def close(self) -> None: ...


class Pipeline(ABC):
    """One member of a pipeline. `run` returns when everything is captured."""

    def __init__(self, session: Session, journal: ConsumerSession, writer: Writer) -> None:
        self._session = session
        self._control, self._report = session.control, session.report
        self._journal, self._writer = journal, writer
        self._seqs = [0] * len(writer.lanes)
        self._run_tag = session.spec.run_tag
        #: Next position of everything that was settled in this session.
        self._settled: dict[Partition, int] = {}
        #: Reading goes back: nothing is made of what is handed over until then.
        self.reads_again = False

    # -- what the client adds

    @abstractmethod
    def join(self) -> None:
        """Join the group; rebalances call `assigned`, `revoked` and `lost`."""

    @abstractmethod
    def take(self, most: int, seconds: float) -> None:
        """Have up to ``most`` messages handed over, by `handed_over`; return when none comes for so
        long, and when `reads_again`."""

    @abstractmethod
    def committed(self) -> Mapping[Partition, int] | None:
        """Positions that the group has committed of what is assigned; None = it does not tell."""

    @abstractmethod
    def seek(self, partition: Partition, position: int) -> bool:
        """Read on from there, -1 = from the earliest message; False: the client cannot now."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group; the partitions are revoked before it returns."""

    # -- life

    def run(self) -> None:
        self._report.counts = self.counts
        self.join()
        self._journal.await_assignment(lambda: self.take(1, POLL_S))
        self._session.ready()
        while not self._is_over():
            if self._report.died:
                break
            self._step()
        if not self._report.died:
            self._settle()
        self.leave()  # others continue with what it had, if its client died too
        while not self._is_over():
            time.sleep(POLL_S)
        self._writer.close()

    def _is_over(self) -> bool:
        return self._control.stopped or time.monotonic_ns() > self._control.deadline_ns

    def _step(self) -> None:
        if self.reads_again:
            self._read_again()
            return
        self.take(BURST, min(POLL_S, self._writer.left_s()))
        self._writer.serve(0)
        if self._journal.uncommitted and not self._writer.left_s():
            self._settle()

    def counts(self) -> dict[str, object]:
        """Numbers of the stats line: of both halves; positions are those that are settled."""
        settled = {f"{topic}-{p}": after for (topic, p), after in list(self._settled.items())}
        return {**self._writer.counts(), **self._journal.counts(), "positions": settled}

    # -- a message

    def handed_over(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """The client handed a message over: one is made of it. Probes are read, and nothing is made
        of them.

        Raises:
            WorkerFailure: no header has room for its offset.
        """
        now = time.monotonic_ns()
        if self.reads_again:  # what lies before it was not settled
            self._journal.handed_over(topic, partition, offset, value, now)
            return
        writer = self._writer
        writer.begin_next()
        check = self._journal.deliver(topic, partition, offset, value, now)
        if check != lay.CHECK_OK or is_probe(value, check):
            return
        if offset > MOST_OFFSET:
            raise WorkerFailure(
                f"{topic}-{partition} is at offset {offset}: outputs name their input up to {MOST_OFFSET}",
                hint="a shorter load, or more partitions",
            )
        index = partition % len(writer.lanes)
        lane, seq = writer.lanes[index], self._seqs[index]
        self._seqs[index] = seq + 1
        length = writer.sizes.of(lane.lane, seq) if writer.sizes.vary else writer.sizes.least
        payload = encode(
            self._run_tag, writer.sizes.instance, lane.lane, seq, now, value[3], 0, 0, length,
            writer.sizes.filling(lane.lane, seq, length), (partition, offset),
        )  # fmt: skip
        writer.send_one(index, seq, now, value[3], payload)
        if writer.is_full():
            self._settle()

    # -- the group

    def assigned(self, positions: Mapping[Partition, int]) -> None:
        """Partitions were given, to be read from these positions (-1 unknown)."""
        self._journal.assign(positions)

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Partitions are to be given back: what was made of their messages is settled before they
        go."""
        if not self._report.died:
            self._settle()
        self._journal.revoke(partitions)

    def lost(self, partitions: Collection[Partition]) -> None:
        """Partitions are others' by now: what was made of their messages must not count unless
        settled."""
        if not self._report.died:
            self._writer.settle(None)
            self._journal.uncommitted.clear()
            self.reads_again = True
        self._journal.revoke(partitions)

    # -- both sides

    def _settle(self) -> None:
        journal = self._journal
        if not journal.uncommitted:
            return
        positions = journal.take_uncommitted()
        found = self._writer.settle(positions)
        if found == "settled":
            for (topic, partition), position in positions.items():
                journal.note(lay.COMMIT, topic, partition, position)
            self._settled.update(positions)
        elif found == "later":
            journal.uncommitted = positions
        else:
            self.reads_again = True

    def _read_again(self) -> None:
        """From the positions that the group has committed; asked for until it tells them."""
        journal = self._journal
        found = self.committed()
        if found is None:
            return
        wanted = {each: found.get(each, -1) for each in sorted(journal.assigned)}
        if not all(self.seek(partition, position) for partition, position in wanted.items()):
            time.sleep(POLL_S)
            return
        for (topic, partition), position in wanted.items():
            journal.note(lay.SEEK, topic, partition, max(position, 0))
        self.reads_again = False
