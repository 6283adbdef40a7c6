"""Producer role on pika: one connection, one channel, one thread; messages are committed some at a
time.

A message has its outcome with the commit. With ``confirms: 1`` each publish waits for the broker's
confirm, as pika's blocking channel does. With neither, a message has its outcome when the client
has written it to its socket, and it is not known whether a broker has it.
"""

from __future__ import annotations

import mmap
import time
from typing import Any

import pika
from connection import FAILURES, AmqpConnection, Options, describe
from pika.exceptions import NackError, UnroutableError
from worker_kit import layouts as lay
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import BLOCKED_NS, OpenLoop
from worker_kit.process import Session
from worker_kit.streams import StreamIds
from worker_kit.template import parted_as_text


class ProducerRole(OpenLoop):
    def __init__(self, session: Session, connection: AmqpConnection, options: Options) -> None:
        super().__init__(session)
        self.connection = connection
        self.per_transaction = options.own["transacted"]
        self.confirms, self.mandatory = (
            bool(options.own["confirms"]),
            bool(options.own["mandatory"]),
        )
        if self.confirms and self.per_transaction:
            raise WorkerFailure(
                f"pika: transacted={self.per_transaction} and confirms: a channel has one of them",
                hint="transacted=0 with confirms=1",
            )
        if self.mandatory and not self.confirms:
            raise WorkerFailure(
                "pika: mandatory requires confirms: a returned message is told by its confirm",
                hint="confirms=1, or mandatory=0",
            )
        self.delivery_mode = options.own["delivery_mode"]
        self.properties = self._properties(dict(self.headers))
        self.streams = StreamIds(session)
        #: Messages of the open transaction: where each row's completion is, and its stream.
        self.uncommitted: list[tuple[mmap.mmap, int, int]] = []

    def _properties(self, headers: dict[str, str]) -> pika.BasicProperties:
        return pika.BasicProperties(delivery_mode=self.delivery_mode, headers=headers or None)

    def _prepare(self, channel: Any) -> None:
        for lane in self.lanes:
            channel.queue_declare(f"{lane.topic}-{max(0, lane.partition)}", passive=True)
        if self.per_transaction:
            channel.tx_select()
        elif self.confirms:
            channel.confirm_delivery()

    def connect(self) -> None:
        self.connection.channel(self._prepare)

    def offer(self, first: int, stop: int, kind: int) -> int:
        count, dues = len(self.lanes), self.dues_ns(first, stop)
        for i in range(first, stop):
            now = time.monotonic_ns()
            due = dues[i - first] if dues else now
            self.attempted = i + 1
            self._send(i % count, self.turns.seq(i), due, kind)
            if self.control.stop_load:
                return i + 1
        return stop

    def _send(self, index: int, seq: int, due_ns: int, kind: int) -> None:
        lane = self.lanes[index]
        value, properties = self.payload(index, seq, due_ns, kind), self.properties
        if self.template:
            headers = self.text_headers(value)
            value, identity = parted_as_text(value)
            properties = self._properties({**headers, **identity})
        partition = max(0, lane.partition)
        rows, at = self.open_row(lane.lane, seq, due_ns, kind, 0, time.monotonic_ns())
        begun = self.blocked_since_ns = time.monotonic_ns()
        queue, stream = f"{lane.topic}-{partition}", self.streams[lane.topic][partition]
        self._publish(rows, at, queue, value, properties, stream)
        took, self.blocked_since_ns = time.monotonic_ns() - begun, 0
        self.blocked_ns += took if took > BLOCKED_NS else 0

    def _publish(
        self,
        rows: mmap.mmap,
        at: int,
        queue: str,
        value: bytes,
        properties: pika.BasicProperties,
        stream: int,
    ) -> None:
        try:
            channel = self.connection.channel(self._prepare)
        except FAILURES as error:  # nothing was sent
            self.finish(rows, at, lay.FAIL, describe(error))
            return
        self.uncommitted.append((rows, at, stream))
        try:
            channel.basic_publish("", queue, value, properties, mandatory=self.mandatory)
        except UnroutableError:
            self._ended(lay.FAIL, "returned: no queue takes the message")
            return
        except NackError:
            self._ended(lay.INFO, "nack: the broker refused the message")
            return
        except FAILURES as error:
            self._lost(error)
            return
        if not self.per_transaction:
            self._stored()
        elif len(self.uncommitted) >= self.per_transaction:
            self._commit(channel)

    def _commit(self, channel: Any) -> None:
        try:
            channel.tx_commit()
        except FAILURES as error:
            self._lost(error)
        else:
            self._stored()

    def _stored(self) -> None:
        now = time.monotonic_ns()
        for rows, at, stream in self.uncommitted:
            if self.capture:
                lay.SENDS_DONE.pack_into(rows, at, now, -1, 0, 0, stream, 0, 0, 0, lay.OK)
            self.ok += 1
        self.uncommitted.clear()

    def _ended(self, outcome: int, text: str) -> None:
        """The broker answered for the last message; the channel works as before."""
        rows, at, _stream = self.uncommitted.pop()
        self.session.report.error(text.partition(":")[0], text)
        self.finish(rows, at, outcome, text)

    def _lost(self, error: Exception) -> None:
        """The channel is broken: it is not known what became of its transaction."""
        text = describe(error)
        for rows, at, _stream in self.uncommitted:
            self.finish(rows, at, lay.INFO, text)
        self.uncommitted.clear()
        self.connection.broken(error)

    def serve(self, seconds: float) -> None:
        try:
            self.connection.serve(seconds)
        except FAILURES as error:
            self._lost(error)

    def flush(self, seconds: float) -> None:
        """The last transaction may be a small one."""
        if self.uncommitted and self.per_transaction and self.connection.is_open:
            self._commit(self.connection.channel(self._prepare))
        else:
            self.serve(seconds)

    def close(self) -> None:
        try:
            self.connection.close()
        except FAILURES as error:
            self.session.report.error(type(error).__name__, describe(error))
