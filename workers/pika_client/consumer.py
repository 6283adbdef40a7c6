"""Consumer role on pika: a channel that consumes every queue of its topics; the application asks in
a loop.

Messages are acknowledged one by one, or in transactions. After a rollback the channel is closed and
another one opened: tx.rollback alone leaves the messages with the channel (AMQP 0-9-1, class tx),
closing it gives them back.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple
from zlib import crc32

from connection import FAILURES, PAUSE_S, AmqpConnection, Options
from worker_kit import layouts as lay
from worker_kit import payload
from worker_kit.payload import RESIDUE
from worker_kit.process import Session
from worker_kit.segments import SegmentWriter
from worker_kit.streams import StreamIds
from worker_kit.template import joined

RECEIVE_S = 0.05
#: A transaction that does not fill up is committed when nothing came for this long.
IDLE_S = 0.3


class Delivery(NamedTuple):
    """A message that the client has read and the application has not yet asked for."""

    topic: str
    tag: int
    redelivered: bool
    value: bytes


class ConsumerRole:
    def __init__(self, session: Session, connection: AmqpConnection, options: Options) -> None:
        spec, part = session.spec, session.spec.part
        self.session, self.connection = session, connection
        self.control, self.report = session.control, session.report
        self.topics: list[str] = part["topics"]
        self.settle: str = part.get("settle", "auto")
        self.per_transaction: int = max(1, part.get("per_transaction", 1))
        self.rollback_every: int = part.get("rollback_every", 0)
        self.nack_every: int = part.get("nack_every", 0)
        self.work_s: float = part.get("work_s", 0.0)
        self.prefetch = options.own["prefetch_count"]
        if self.prefetch:  # the broker hands over no more that is not settled
            self.per_transaction = min(self.per_transaction, self.prefetch)
        group = session.names.id("subscription", part["group"])
        self.segments = SegmentWriter(
            spec.folder, lay.DELIVERIES, part["session"], spec.run_tag, subscription=group
        )
        self._rows, self._at, self._end = self.segments.rotate()
        self._streams = StreamIds(session)
        self._prefixes = payload.accepted_prefixes(spec.run_tag)
        self.waiting: deque[Delivery] = deque()
        #: Consumers that the broker ended by itself.
        self.cancelled: list[str] = []
        self.delivered = self.handed = self.epoch = self.open = 0
        self.transaction = 1
        self.last_tag = 0
        self.last_s = time.monotonic()

    def counts(self) -> dict[str, object]:
        exposure = {"reconnects": self.connection.reconnects}
        return {
            "delivered": self.delivered,
            "epoch": self.epoch,
            "positions": {},
            "exposure": exposure,
        }

    def run(self) -> None:
        self.report.counts = self.counts
        self._channel()
        self.session.ready()
        while not self.control.stopped and time.monotonic_ns() < self.control.deadline_ns:
            try:
                self._turn()
            except FAILURES as error:
                self._lost(error)
        try:
            if self.open and self.connection.is_open:
                self._end_transaction(rolls_back=False)
            self.connection.close()
        except FAILURES as error:
            self._lost(error)

    def _turn(self) -> None:
        self._channel()
        if not self.waiting:
            self.connection.serve(RECEIVE_S)
        if self.cancelled:
            raise ConnectionError(f"the broker cancelled the consumer {self.cancelled[0]}")
        if self.waiting:
            self._take(self.waiting.popleft())
        elif self.open and time.monotonic() - self.last_s > IDLE_S:
            self._end_transaction(rolls_back=False)

    def _channel(self) -> Any:
        return self.connection.channel(self._consume)

    def _consume(self, channel: Any) -> None:
        if self.settle == "transacted":
            channel.tx_select()
        channel.basic_qos(prefetch_count=self.prefetch)
        # The queue was deleted, or the node of a classic queue is down.
        channel.add_on_cancel_callback(
            lambda method: self.cancelled.append(method.method.consumer_tag)
        )
        self.cancelled.clear()
        self.waiting.clear()
        for topic in self.topics:
            channel.basic_consume(
                f"{topic}-0", self._handler(topic), auto_ack=self.settle == "auto"
            )
        self.epoch += 1
        self._row(lay.ASSIGN)

    def _handler(self, topic: str) -> Any:
        def handed(_channel: Any, method: Any, properties: Any, value: bytes) -> None:
            if value[:2] != lay.HEADER_MAGIC:
                value = joined(value, (properties.headers or {}).items())
            self.waiting.append(Delivery(topic, method.delivery_tag, method.redelivered, value))

        return handed

    def _take(self, message: Delivery) -> None:
        """The application: note it, work, settle."""
        value = message.value
        is_ours = value[:8] in self._prefixes and crc32(value) == RESIDUE
        check = lay.CHECK_OK if is_ours else payload.check(value, self.session.spec.run_tag)
        self._row(lay.DELIVER, message.topic, int(message.redelivered), value[:48], check)
        if not payload.is_probe(value, check):
            self.delivered += 1
        self.last_s = time.monotonic()
        if self.work_s:
            time.sleep(self.work_s)
        if self.settle == "ack":
            self._acknowledge(message.tag)
        if self.settle != "transacted":
            return
        self.open, self.last_tag = self.open + 1, message.tag
        if self.open >= self.per_transaction:
            ordinal = self.transaction
            self._end_transaction(
                rolls_back=bool(self.rollback_every) and ordinal % self.rollback_every == 0
            )

    def _acknowledge(self, tag: int) -> None:
        """Settle one message by itself. The broker does not answer, so no row says that it
        confirmed it."""
        channel = self._channel()
        self.handed += 1
        if self.nack_every and self.handed % self.nack_every == 0:
            self._row(lay.NACK)
            channel.basic_nack(tag, requeue=True)
        else:
            self._row(lay.ACK_CALLED)
            channel.basic_ack(tag)

    def _end_transaction(self, *, rolls_back: bool) -> None:
        channel = self._channel()
        self._row(lay.ROLLBACK_BEGIN if rolls_back else lay.COMMIT_CALLED, txn=True)
        if rolls_back:
            channel.tx_rollback()
            self.waiting.clear()
            self.connection.drop_channel()
        else:
            channel.basic_ack(self.last_tag, multiple=True)
            channel.tx_commit()
        self._row(lay.ROLLBACK_END if rolls_back else lay.COMMIT, txn=True)
        self.open, self.transaction = 0, self.transaction + 1

    def _lost(self, error: Exception) -> None:
        """Handle a lost connection: what was handed over and not committed is available to the next
        consumer.
        """
        self.transaction += 1 if self.open else 0
        self.open = 0
        self.waiting.clear()
        self.connection.broken(error)
        time.sleep(PAUSE_S)

    def _row(
        self,
        kind: int,
        topic: str = "",
        redelivery: int = -1,
        header: bytes = b"",
        check: int = 0,
        *,
        txn: bool = False,
    ) -> None:
        """One row; without a topic it concerns the whole session."""
        if self._at == self._end:
            self._rows, self._at, self._end = self.segments.rotate()
        stream = self._streams[topic][0] if topic else 0
        transaction = self.transaction if (topic or txn) and self.settle == "transacted" else 0
        lay.DELIVERIES_ROW.pack_into(
            self._rows, self._at, time.monotonic_ns(), -1, 0, transaction, stream, 0, self.epoch,
            redelivery, header, check, kind,
        )  # fmt: skip
        self._at += lay.ROW_BYTES[lay.DELIVERIES]
