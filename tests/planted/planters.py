"""The kinds of anomaly that can be planted and their near-misses, each with the hits it must
give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.records import Check, Kind, Outcome
from tests.planted.scripts import REDELIVERED, REWOUND, SPAN, Stream

Identity = tuple[int, int, int, int]  # instance, lane, seq, attempt
UNKNOWN_INSTANCE = 900_000
HUGE_SEQ = 10**15
NOWHERE = {"stream": 0, "position": -1}


@dataclass
class Truth:
    """What judging must find: messages by (class, split), each once. Everything else must be
    silent.

    ``attempted``, ``ok``, ``fail``, ``info``, ``open`` count sends; ``rows`` the rows of each
    table; ``dead`` names the clients that gave themselves up (client-died, which is of no message).
    """

    found: dict[tuple[str, str], list[Identity]] = field(default_factory=lambda: defaultdict(list))
    sends: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)

    def add(self, cls: str, identity: Identity, split: str = "") -> None:
        self.found[cls, split].append(identity)

    def counts(self) -> dict[str, int]:
        """Messages by class; of client-died, clients."""
        total: dict[str, int] = {"client-died": len(self.dead)} if self.dead else {}
        for (cls, _), identities in self.found.items():
            total[cls] = total.get(cls, 0) + len(identities)
        return dict(sorted(total.items()))

    def splits(self, cls: str) -> dict[str, int]:
        return {split: len(ids) for (c, split), ids in sorted(self.found.items()) if c == cls}

    def identities(self, cls: str) -> npt.NDArray[np.int64]:
        """Sorted (instance, lane, seq, attempt) of a class, shape (n, 4)."""
        ids = [i for (c, _), found in self.found.items() if c == cls for i in found]
        return np.array(sorted(ids), np.int64).reshape(-1, 4)


@dataclass(frozen=True, slots=True)
class Block:
    """Where an anomaly goes: ``seq`` is the first of the `SPAN` messages of instance number ``i``.

    ``sibling``: another stream of the topic (itself if there is none).
    """

    stream: Stream
    seq: int
    i: int
    sibling: Stream
    error: Mapping[str, int]  # name id by text

    def at(self, offset: int) -> int:
        """Clean index of the offset-th message of the block."""
        return self.stream.index(self.seq + offset, self.i)

    def done(self, offset: int, outcome: Outcome, error: str = "", **columns: int) -> None:
        """The send ended otherwise than ok; its acknowledgement named no place."""
        number = self.error[error] if error else 0
        change = {"outcome": outcome, "error": number, **NOWHERE, **columns}
        self.stream.sends[self.at(offset)] = change


def _lost(block: Block, truth: Truth, offset: int, split: str) -> None:
    block.stream.drop(block.at(offset))
    truth.add("acked-lost", block.stream.identity(block.at(offset)), split)


def _middle(block: Block, truth: Truth) -> None:
    _lost(block, truth, 5, "middle")


def _prefix(block: Block, truth: Truth) -> None:
    _lost(block, truth, 0, "prefix")


def _tail(block: Block, truth: Truth) -> None:
    _lost(block, truth, SPAN - 1, "tail")


def _false_nack(block: Block, truth: Truth) -> None:
    block.done(5, Outcome.FAIL, "MSG_SIZE_TOO_LARGE")
    truth.add("false-nack", block.stream.identity(block.at(5)))


def _phantom_instance(block: Block, truth: Truth) -> None:
    identity = (UNKNOWN_INSTANCE, block.stream.lane, block.seq, 0)
    _strange_row(block, truth, identity)


def _phantom_sequence(block: Block, truth: Truth) -> None:
    identity = (int(block.stream.instances[block.i]), block.stream.lane, HUGE_SEQ + block.seq, 0)
    _strange_row(block, truth, identity)


def _strange_row(block: Block, truth: Truth, identity: Identity) -> None:
    instance, lane, seq, _ = identity
    ref = block.stream.special(instance=instance, lane=lane, seq=seq, kind=Kind.LOAD)
    block.stream.insert(block.at(5), ref)
    truth.add("phantom", identity, "never sent")


def _foreign(block: Block, truth: Truth) -> None:
    block.stream.insert(block.at(5), block.stream.special(check=Check.FOREIGN))
    truth.add("phantom", (0, 0, 0, 0), "foreign")


def _other_run(block: Block, truth: Truth) -> None:
    block.stream.insert(block.at(5), block.stream.special(check=Check.OTHER_RUN))
    truth.add("phantom", (0, 0, 0, 0), "other run")


def _write_duplicate(block: Block, truth: Truth) -> None:
    block.stream.insert(block.at(8), block.at(5))
    truth.add("write-duplicate", block.stream.identity(block.at(5)), "same send")


def _block_resent(block: Block, truth: Truth) -> None:
    for offset in (3, 4, 5, 6):
        block.stream.insert(block.at(7), block.at(offset))
        truth.add("write-duplicate", block.stream.identity(block.at(offset)), "same send")


def _producer_reorder(block: Block, truth: Truth) -> None:
    block.stream.drop(block.at(5))
    block.stream.insert(block.at(7), block.at(5))
    truth.add("producer-reorder", block.stream.identity(block.at(5)))


def _premature(block: Block, truth: Truth) -> None:
    block.stream.insert(block.at(6), block.at(9))
    truth.add("premature-then-repeat", block.stream.identity(block.at(9)))


def _info_stored(block: Block, truth: Truth) -> None:
    block.done(5, Outcome.INFO, "MSG_TIMED_OUT")
    truth.add("info-stored", block.stream.identity(block.at(5)))


def _info_not_stored(block: Block, truth: Truth) -> None:
    block.done(5, Outcome.INFO, "MSG_TIMED_OUT")
    block.stream.drop(block.at(5))
    truth.add("info-not-stored", block.stream.identity(block.at(5)))


def _corrupt(block: Block, truth: Truth) -> None:
    block.stream.drop(block.at(5))
    # the acknowledged position is the corrupt row's, which is how the message is recognised
    ref = block.stream.special(
        check=Check.CORRUPT, ack_lane=block.stream.lane, ack_index=block.at(5)
    )
    block.stream.insert(block.at(5), ref)
    truth.add("corrupt", block.stream.identity(block.at(5)), "in the log")


def _wrong_partition(block: Block, truth: Truth) -> None:
    index = block.at(5)
    instance, lane, seq, _ = block.stream.identity(index)
    block.stream.drop(index)
    ref = block.sibling.special(
        instance=instance, lane=lane, seq=seq, kind=Kind.LOAD, ack_lane=lane, ack_index=index
    )
    block.sibling.insert(block.at(0), ref)
    truth.add("wrong-partition", (instance, lane, seq, 0), "partition")


def _unrecorded(block: Block, truth: Truth) -> None:
    block.stream.unrecorded.add(block.at(5))
    truth.add("send-record-missing", block.stream.identity(block.at(5)), "stored")


def _application_resend(block: Block, truth: Truth) -> None:
    """Timed out but stored; the application sends it again as attempt 1, which is stored too."""
    index = block.at(5)
    instance, lane, seq, _ = block.stream.identity(index)
    block.done(5, Outcome.INFO, "MSG_TIMED_OUT")
    again = {"instance": instance, "lane": lane, "seq": seq, "attempt": 1, "kind": Kind.LOAD}
    block.stream.insert(block.at(12), block.stream.special(**again, ack_lane=lane, ack_index=index))
    block.stream.resends.append((block.at(10), index))
    truth.add("info-stored", (instance, lane, seq, 0))
    truth.add("write-duplicate", (instance, lane, seq, 1), "application re-send")


def _failed_absent(block: Block, truth: Truth) -> None:
    block.done(5, Outcome.FAIL, "QUEUE_FULL")
    block.stream.drop(block.at(5))


def _delivery(what: str, cls: str, split: str = "") -> Planter:
    def plant(block: Block, truth: Truth) -> None:
        block.stream.disturb(what, block.at(5))
        truth.add(cls, block.stream.identity(block.at(5)), split)

    return plant


def _rebalance(block: Block, truth: Truth) -> None:
    _redelivered(
        block, truth, "rebalance", range(REDELIVERED), "delivery-duplicate", "after rebalance"
    )


def _rewind(block: Block, truth: Truth) -> None:
    _redelivered(
        block, truth, "rewind", range(REDELIVERED), "delivery-duplicate", "after rebalance"
    )
    _redelivered(block, truth, "", range(-REWOUND, 0), "rewind-past-commit", "")


def _redelivered(
    block: Block, truth: Truth, what: str, offsets: range, cls: str, split: str
) -> None:
    if what:
        block.stream.disturb(what, block.at(5))
    for offset in offsets:
        truth.add(cls, block.stream.identity(block.at(5) + offset), split)


Planter = Callable[[Block, Truth], None]
#: What can be planted, by name. In brackets the classes that it is a near-miss of.
PLANTERS: Mapping[str, Planter] = {
    "acked-lost-prefix": _prefix,
    "acked-lost-middle": _middle,
    "acked-lost-tail": _tail,
    "failed-absent": _failed_absent,  # (acked-lost, false-nack)
    "info-not-stored": _info_not_stored,  # (acked-lost)
    "false-nack": _false_nack,
    "info-stored": _info_stored,  # (false-nack)
    "phantom": _phantom_instance,
    "phantom-sequence": _phantom_sequence,
    "send-record-missing": _unrecorded,  # (phantom)
    "foreign": _foreign,  # (phantom, corrupt)
    "other-run": _other_run,  # (phantom)
    "write-duplicate": _write_duplicate,
    "block-resent": _block_resent,  # (producer-reorder)
    "application-resend": _application_resend,  # (write-duplicate)
    "producer-reorder": _producer_reorder,
    "premature-then-repeat": _premature,
    "corrupt": _corrupt,
    "wrong-partition": _wrong_partition,
    "not-dispatched": _delivery("skip", "not-dispatched"),
    "delivery-duplicate": _delivery("repeat", "delivery-duplicate", "same assignment"),
    "delivery-reorder": _delivery("swap", "delivery-reorder"),
    "legal-redelivery": _rebalance,  # (delivery-duplicate, rewind-past-commit)
    "rewind-past-commit": _rewind,
}
ALL_KINDS = tuple(PLANTERS)
