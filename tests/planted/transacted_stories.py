"""Blocks of a run with transactions and a pipeline: one of each class, beside blocks that only look
like it.

A block is a `History` of two partitions of ``orders`` and two of ``invoices``: a transaction that
is committed, one that is aborted, and what the pipeline made of the first, in transactions of its
own. Everything that readers of committed data see is delivered and made into an output, unless the
story is about that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.records import Event
from tests.planted.pairs import Found
from tests.planted.tiny import History
from tests.planted.tiny_pipelines import made, piped
from tests.planted.tiny_transactions import stored, transaction

#: Messages of a partition in the transaction that every block has, and in the further ones.
SIZE, MORE = 100, 5
BOTH = (0, 1)
#: Instances from here on have this block alone: lives of one client.
OWN = 100


class Block:
    """A block being told. ``inputs``: positions by partition that an output is still to be made
    of."""

    def __init__(self) -> None:
        self.h = piped(2, 2, sessions=0)
        self.inputs: tuple[list[int], list[int]] = ([], [])
        self._sent = self._made = 0
        self._numbers = {1: 0, 2: 0}
        self._outputs = [0, 0]

    def number(self, instance: int) -> int:
        self._numbers[instance] = self._numbers.get(instance, 0) + 1
        return self._numbers[instance]

    def send(
        self, count: int, outcome: str = "ok", asked: str = "commit", instance: int = 1
    ) -> range:
        """Messages of both partitions in a transaction; their sequences."""
        seqs = range(self._sent, self._sent + count) if instance == 1 else range(count)
        self._sent += count if instance == 1 else 0
        transaction(
            self.h,
            self.number(instance),
            *seqs,
            outcome=outcome,
            asked=asked,
            partitions=BOTH,
            instance=instance,
        )
        return seqs

    def store(
        self,
        seqs: Sequence[int],
        how: str = "committed",
        partitions: Sequence[int] = BOTH,
        instance: int = 1,
        *,
        marker: bool = True,
    ) -> Block:
        """What the log makes of them; what is visible is delivered, and an input."""
        for partition in partitions:
            first = self.h._next.get(partition + 1, 0)
            stored(self.h, *seqs, how=how, partition=partition, instance=instance, marker=marker)
            if how == "committed":
                self.h.deliver(*seqs, partition=partition, instance=instance, session=1)
                self.inputs[partition].extend(range(first, first + len(seqs)))
        return self

    def plain(self) -> Block:
        """What every block begins with."""
        self.store(self.send(SIZE))
        return self.store(self.send(MORE, "aborted", "abort"), "aborted")

    def output(self, *sources: int, partition: int = 0, how: str = "committed") -> Block:
        """Outputs of a partition, in a transaction that ended so for the pipeline and in the
        log."""
        outcome, asked = ("aborted", "abort") if how == "aborted" else ("ok", "commit")
        made(
            self.h,
            *sources,
            source=partition,
            first=self._outputs[partition],
            how=how,
            number=self.number(2),
            outcome=outcome,
            asked=asked,
        )
        self._outputs[partition] += len(sources)
        return self

    def done(self) -> History:
        """Outputs of all inputs that are left."""
        for partition, sources in enumerate(self.inputs):
            if sources:
                self.output(*sources, partition=partition)
        return self.h


def plain() -> History:
    return Block().plain().done()


def aborted_but_visible() -> History:
    block = Block().plain()
    return block.store(block.send(MORE, "aborted", "abort")).done()


def committed_but_hidden() -> History:
    block = Block().plain()
    return block.store(block.send(MORE), "aborted").done()


def torn() -> History:
    block = Block().plain()
    seqs = block.send(MORE)
    return block.store(seqs, "committed", (0,)).store(seqs, "aborted", (1,)).done()


def one_end_of_two() -> History:
    block = Block().plain()
    first, second = block.send(MORE), block.send(MORE)
    return block.store([*first, *second]).done()


def two_ends_of_one() -> History:
    block = Block().plain()
    seqs = block.send(MORE)
    return block.store(seqs[:2]).store(seqs[2:]).done()


def without_an_end(outcome: str) -> History:
    block = Block().plain()
    return block.store(block.send(MORE, outcome), "open", marker=False).done()


def not_answered() -> History:
    """Nobody knows of the commit, and it was one."""
    block = Block().plain()
    return block.store(block.send(MORE, "info")).done()


def read_early() -> History:
    block = Block().plain()
    begun = block.h.transactions[0]["t_begin_ns"]
    first = next(row for row in block.h.rows["deliveries"] if row["event"] == Event.DELIVER)
    first["t_ns"] = begun + 1
    return block.done()


def made_twice() -> History:
    block = Block().plain()
    block.output(*block.inputs[0])
    block.inputs[0][:] = [7]
    return block.done()


def made_again(how: str = "aborted") -> History:
    """The first outputs are in a transaction that was aborted."""
    block = Block().plain()
    return block.output(*block.inputs[0], how=how).done()


def skipped() -> History:
    block = Block().plain()
    block.inputs[0].remove(7)
    return block.done()


def aborted_and_passed() -> History:
    block = Block().plain()
    block.output(*block.inputs[0][:3], how="aborted")
    del block.inputs[0][:3]
    return block.done()


def swapped() -> History:
    block = Block().plain()
    block.inputs[0][7:9] = [8, 7]
    return block.done()


def older_epoch() -> History:
    """A batch and the marker behind it."""
    h = plain()
    same = {"producer_id": 7, "epoch": 3, "newest": 4}
    writes = ({"first": 0, "last": SIZE - 1}, {"first": SIZE, "last": SIZE, "is_marker": True})
    return h.bounds(0, stale=[same | write for write in writes])


def lives(order: Sequence[int]) -> History:
    """Two lives of a client write to both partitions, each time in a transaction."""
    block = Block().plain()
    sent: dict[int, int] = {}
    for life in order:
        instance = OWN + life
        at = sent.get(life, 0)
        transaction(block.h, at + 1, at, partitions=BOTH, instance=instance)
        block.store([at], instance=instance)
        sent[life] = at + 1
    return block.done()


@dataclass(frozen=True)
class Planted:
    """A block, and exactly what must be said of it: messages, or rows, by class and split."""

    build: Callable[[], History]
    shows: Found


_NEXT = range(SIZE + MORE, SIZE + 2 * MORE)
_LATE = SIZE + MORE + 2  # position behind both transactions and their markers


def _all(
    instance: int = 1, seqs: Sequence[int] = _NEXT, partitions: Sequence[int] = BOTH
) -> list[str]:
    return [f"{instance}/{partition}/{seq}" for partition in partitions for seq in seqs]


#: Each class, and behind it what only looks like it.
STORIES: tuple[Planted, ...] = (
    Planted(aborted_but_visible, {("aborted-read", "in the log"): _all()}),
    Planted(committed_but_hidden, {("lost-commit", ""): ["1/0/105"]}),
    Planted(torn, {("torn-transaction", "committed"): ["1/1/105"]}),
    Planted(
        one_end_of_two,
        {("mixed-transaction", "ended with another"): [f"orders-{p}@{_LATE + MORE}" for p in BOTH]},
    ),
    Planted(
        two_ends_of_one,
        {("mixed-transaction", "ended in parts"): [f"orders-{p}@{_LATE + 3}" for p in BOTH]},
    ),
    Planted(lambda: without_an_end("ok"), {("hanging-transaction", "ended"): _all()}),
    Planted(
        lambda: without_an_end("info"),
        {("hanging-transaction", "never ended"): _all()},
    ),
    Planted(not_answered, {("info-stored", ""): _all()}),
    Planted(read_early, {("intermediate-read", ""): ["1/0/0"]}),
    Planted(made_twice, {("input-twice", ""): [f"2/2/{SIZE}"]}),
    Planted(made_again, {}),
    Planted(skipped, {("input-skipped", "no output"): ["1/0/7"]}),
    Planted(aborted_and_passed, {("input-skipped", "aborted"): ["1/0/0", "1/0/1", "1/0/2"]}),
    Planted(swapped, {("input-reordered", ""): ["2/2/8"]}),
    Planted(older_epoch, {("fence-breach", "older epoch"): ["orders-0@0", f"orders-0@{SIZE - 1}"]}),
    Planted(
        lambda: lives((0, 1, 0)),
        {("fence-breach", "older life"): [f"orders-{p}@{_LATE + 4}" for p in BOTH]},
    ),
    Planted(lambda: lives((0, 0, 1)), {}),
)
