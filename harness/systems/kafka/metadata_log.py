"""Reads who led which partition in which leader epoch, and since when, from Kafka's metadata log
(KIP-500).

The log of the KRaft quorum holds every change of a partition as a record with a time, so nothing
has to be watched during a run. Fields and tags of the records: apache/kafka,
metadata/src/main/resources/common/metadata; the frame around them: KIP-631.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka.errors import KafkaError
from kafka.record.memory_records import MemoryRecords

#: The first segment, below a node's data folder: all of the log until it is a week or a gigabyte
#: old.
METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"
_TOPIC, _PARTITION, _PARTITION_CHANGE, _REGISTER_BROKER = 2, 3, 5, 27
_TAG_ISR, _TAG_LEADER, _TAG_RECOVERY = 0, 1, 5  # of a PartitionChangeRecord
_UNCHANGED = -2
_RECOVERING = 1  # elected although it was not in sync
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Epoch:
    """One leader epoch of a partition. Times: the controllers' wall clock, ms.

    Attributes:
        leader: number of the node, `NOBODY` while there is none.
        over_ms: from then on the deposed leader certainly acts as one no longer: it is in sync as a
            follower again, is elected anew, or is another process. 0 = not known.
        unclean: the leader was not in sync when it was elected.
    """

    number: int
    leader: int
    since_ms: int
    over_ms: int = 0
    unclean: bool = False


@dataclass(slots=True)
class _Partition:
    isr: frozenset[int] = frozenset()
    epochs: list[Epoch] = field(default_factory=list)

    def begin(self, leader: int, t_ms: int, *, unclean: bool, number: int | None = None) -> None:
        self.end_of(leader, t_ms)
        known = self.epochs[-1].number + 1 if self.epochs else 0
        number = known if number is None else number
        self.epochs.append(Epoch(number, leader, t_ms, unclean=unclean))

    def in_sync(self, isr: frozenset[int], t_ms: int) -> None:
        """Record the replicas that are in sync from this time on."""
        for node in isr - self.isr:
            self.end_of(node, t_ms, but_last=True)
        self.isr = isr

    def end_of(self, node: int, t_ms: int, *, but_last: bool = False) -> None:
        """The node's earlier epochs are over at the latest now."""
        for i, epoch in enumerate(self.epochs[: len(self.epochs) - but_last]):
            if epoch.leader == node and not epoch.over_ms:
                self.epochs[i] = replace(epoch, over_ms=t_ms)


class _Fields:
    """Fields of one record, in order (Kafka's flexible encoding)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises ValueError if the record has fewer."""
        piece = self._data[self._at : self._at + count]
        if len(piece) < count:
            raise ValueError("a record ends within a field")
        self._at += count
        return piece

    def int8(self) -> int:
        """Read a signed number of one byte."""
        return int.from_bytes(self.take(1), "big", signed=True)

    def int32(self) -> int:
        """Read a signed number of four bytes."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def uvarint(self) -> int:
        """Read an unsigned number of variable length (KIP-482)."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        """Read a compact string (KIP-482)."""
        return self.take(self.uvarint() - 1).decode()

    def numbers(self) -> tuple[int, ...]:
        """A compact array of int32; a null one is empty."""
        count = max(self.uvarint() - 1, 0)
        return struct.unpack(f">{count}i", self.take(4 * count))

    def tagged(self) -> dict[int, _Fields]:
        """Read the tagged fields, by tag (KIP-482)."""
        return {self.uvarint(): _Fields(self.take(self.uvarint())) for _ in range(self.uvarint())}


class LeaderHistory:
    """Leader epochs of every partition, from the records of a metadata log."""

    def __init__(self, log: bytes) -> None:
        """Raises ValueError: not a metadata log from its beginning on, or a record that cannot be
        read."""
        self._topics: dict[str, bytes] = {}
        self._partitions: dict[tuple[bytes, int], _Partition] = {}
        try:
            for t_ms, value in _records(log):
                self._add(t_ms, _Fields(value))
        except KafkaError as error:
            raise ValueError(f"the metadata log cannot be read: {error}") from error

    def epochs(self, topic: str, partition: int) -> Sequence[Epoch]:
        """In order; empty for a partition that the log does not know. Of topics with one name, the
        latest."""
        found = self._partitions.get((self._topics.get(topic, b""), partition))
        return tuple(found.epochs) if found else ()

    def _add(self, t_ms: int, fields: _Fields) -> None:
        fields.uvarint()  # version of the frame
        kind, _version = fields.uvarint(), fields.uvarint()
        if kind == _TOPIC:
            name = fields.text()
            self._topics[name] = fields.take(16)
        elif kind == _PARTITION:
            self._partition(t_ms, fields)
        elif kind == _PARTITION_CHANGE:
            self._change(t_ms, fields)
        elif kind == _REGISTER_BROKER:
            node = fields.int32()
            for known in self._partitions.values():
                known.end_of(node, t_ms)

    def _partition(self, t_ms: int, fields: _Fields) -> None:
        number, topic = fields.int32(), fields.take(16)
        _replicas, isr, _removing, _adding = (fields.numbers() for _ in range(4))
        leader, epoch = fields.int32(), fields.int32()
        made = self._partitions[topic, number] = _Partition(frozenset(isr))
        made.begin(leader, t_ms, unclean=False, number=epoch)

    def _change(self, t_ms: int, fields: _Fields) -> None:
        """Apply a change in the way of Kafka's PartitionRegistration.merge: an epoch begins with
        every leader that is named.
        """
        number, topic = fields.int32(), fields.take(16)
        known = self._partitions.get((topic, number))
        if known is None:
            raise ValueError("a change of a partition that was not created")
        tags: Mapping[int, _Fields] = fields.tagged()
        leader = tags[_TAG_LEADER].int32() if _TAG_LEADER in tags else _UNCHANGED
        if leader != _UNCHANGED:
            unclean = _TAG_RECOVERY in tags and tags[_TAG_RECOVERY].int8() == _RECOVERING
            known.begin(leader, t_ms, unclean=unclean)
        if _TAG_ISR in tags:
            known.in_sync(frozenset(tags[_TAG_ISR].numbers()), t_ms)


def _records(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Time (ms) and value of each record; a batch that is cut off at the end is left out."""
    batches = MemoryRecords(log)
    first = True
    while (batch := batches.next_batch()) is not None:
        if first and batch.base_offset:
            raise ValueError(f"the metadata log begins at {batch.base_offset}")
        first = False
        if batch.is_control_batch:
            continue
        for record in batch:
            if record.value:
                yield int(record.timestamp), bytes(record.value)
