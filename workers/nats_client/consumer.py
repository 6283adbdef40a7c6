"""Consumer role on nats-py: durable consumers that are pulled from, or ordered ones."""

from __future__ import annotations

import asyncio
from typing import Any

from connection import CLIENT_ERRORS, Connection
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from options import Options, consumer_config
from worker_kit import asyncio_run
from worker_kit import layouts as lay
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session
from worker_kit.subscription_journal import SubscriptionJournal
from worker_kit.template import joined

#: For an acknowledgement that is waited for, and for the close of the client.
ANSWER_S, CLOSE_S = 5.0, 3.0
PAUSE_S = 0.2


def payload_of(message: Msg) -> bytes:
    """The value of a message, or a body with the identity of its headers."""
    value: bytes = message.data
    return (
        value if value[:2] == lay.HEADER_MAGIC else joined(value, (message.headers or {}).items())
    )


class ConsumerRole:
    def __init__(self, session: Session, options: Options) -> None:
        part = session.spec.part
        self.session, self.control = session, session.control
        self.own, self.chosen = options.own, options.consumer
        self.settle: str = part.get("settle", "ack")
        self.work_s: float = part.get("work_s", 0.0)
        self.nack_every: int = part.get("nack_every", 0)
        if self.own.kind == "ordered" and self.settle != "none":
            raise WorkerFailure(
                f"an ordered consumer acknowledges nothing, settle is {self.settle}",
                hint="settle: none",
            )
        self.journal = SubscriptionJournal(session)
        self.connection = Connection(session, options.connection, self.journal.connected)

    def run(self) -> None:
        self.session.report.counts = self.journal.counts
        asyncio_run.run(self._run())

    async def _run(self) -> None:
        client = await self.connection.open()
        js, spec = client.jetstream(timeout=ANSWER_S), self.session.spec
        streams = {
            f"{topic}-{partition}": f"{spec.topics[topic].address}-{partition}"
            for topic in spec.part["topics"]
            for partition in range(spec.topics[topic].partitions)
        }
        try:
            readers = {stream: await self._reader(js, name) for stream, name in streams.items()}
        except CLIENT_ERRORS as error:
            raise WorkerFailure(f"nats-py cannot subscribe: {error_text(error)}") from error
        self.journal.connected(f"{self.own.kind} consumers of {len(readers)} streams")
        self.session.ready()
        tasks = [asyncio.create_task(self._read(*each), name=each[0]) for each in readers.items()]
        await asyncio_run.until(self.control, tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait({asyncio.create_task(client.close())}, timeout=CLOSE_S)

    async def _reader(self, js: JetStreamContext, name: str) -> Any:
        if self.own.kind == "ordered":
            return await js.subscribe(name, stream=name, ordered_consumer=True)
        group = self.session.spec.part["group"]
        return await js.pull_subscribe(
            name, durable=group, stream=name, config=consumer_config(self.chosen, group)
        )

    async def _read(self, stream: str, reader: Any) -> None:
        while not asyncio_run.over(self.control):
            try:
                if self.own.kind == "ordered":
                    messages = [await reader.next_msg(timeout=self.own.fetch_timeout)]
                else:
                    messages = await reader.fetch(self.own.fetch, timeout=self.own.fetch_timeout)
            except NatsTimeout:
                continue
            except CLIENT_ERRORS as error:
                self.session.report.error(type(error).__name__, error_text(error))
                await asyncio.sleep(PAUSE_S)
                continue
            for message in messages:
                await self._process(stream, message)

    async def _process(self, stream: str, message: Msg) -> None:
        """The application: work, then settle."""
        about = message.metadata
        position = about.sequence.stream
        number = self.journal.deliver(
            stream, position, payload_of(message), (about.num_delivered or 1) - 1
        )
        if self.work_s:
            await asyncio.sleep(self.work_s)
        if self.settle == "none":
            return
        try:
            if self.nack_every and number % self.nack_every == 0:
                self.journal.note(lay.NACK, stream, position)
                await message.nak()
                return
            self.journal.note(lay.ACK_CALLED, stream, position)
            await (message.ack_sync(timeout=ANSWER_S) if self.own.confirm else message.ack())
        except CLIENT_ERRORS as error:
            self.session.report.error(type(error).__name__, f"ack: {error_text(error)}")
            return
        self.journal.note(lay.ACK_CONFIRMED, stream, position)
