"""Producer role on nats-py, on the kit's event loop."""

from __future__ import annotations

import struct
from collections.abc import Awaitable
from typing import Any
from zlib import crc32

from connection import CLIENT_ERRORS, Connection
from nats.aio.client import Client
from nats.js import JetStreamContext
from options import Options
from outcomes import outcome
from worker_kit.asyncio_loop import AsyncOpenLoop
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session
from worker_kit.sending import Share
from worker_kit.spec import Lane
from worker_kit.template import parted_as_text

ASKING_S = 10.0
#: Instance, lane and sequence in a payload (docs/capture-format.md).
_IDENTITY = struct.Struct("<IIQ")
_IDENTITY_AT = 8


class ProducerRole(AsyncOpenLoop):
    client_errors = CLIENT_ERRORS

    def __init__(self, session: Session, options: Options, share: Share | None = None) -> None:
        super().__init__(session, share)
        self._own, self._chosen = options.own, options
        self._connection = Connection(session, options.connection, lambda text: None)
        self._client: Client = None
        self._js: JetStreamContext = None
        self._headers = dict(self.headers)
        self._topics = session.spec.topics

    async def connect(self) -> None:
        self._client = await self._connection.open()
        pending = (
            {"publish_async_max_pending": self._own.max_pending} if self._own.max_pending else {}
        )
        self._js = self._client.jetstream(timeout=ASKING_S, **pending)
        for subject in sorted({self._subject(lane)[0] for lane in self.lanes}):
            try:
                await self._js.stream_info(subject)
            except CLIENT_ERRORS as error:
                raise WorkerFailure(f"no stream {subject}: {error_text(error)}") from error

    def for_thread(self, share: Share) -> ProducerRole:
        other = ProducerRole(self.session, self._chosen, share)
        other._client, other._js = self._client, self._js
        return other

    def _subject(self, lane: Lane) -> tuple[str, int]:
        """Return the subject of a lane, the name of its stream and the partition.

        The client has no partitioner: an application does what subject mapping of the servers
        would, by a hash of the key.
        """
        topic, partition = self._topics[lane.topic], max(lane.partition, 0)
        if lane.key is not None:
            partition = crc32(lane.key) % topic.partitions
        return f"{topic.address}-{partition}", partition

    async def send(self, lane: Lane, payload: bytes) -> Awaitable[Any]:
        subject, partition = self._subject(lane)
        headers = dict(self._headers)
        if self._own.msg_id:
            headers["Nats-Msg-Id"] = "-".join(
                map(str, _IDENTITY.unpack_from(payload, _IDENTITY_AT))
            )
        if self.template:
            headers.update(self.text_headers(payload))
            payload, identity = parted_as_text(payload)
            headers.update(identity)
        answer: Awaitable[Any]
        if self._own.timeout is None:
            answer = await self._js.publish_async(subject, payload, headers=headers or None)
        else:
            answer = self._js.publish(
                subject, payload, timeout=self._own.timeout, headers=headers or None
            )
        return self._with_place(answer, lane.topic, partition)

    async def _with_place(
        self, answer: Awaitable[Any], topic: str, partition: int
    ) -> tuple[str, int, int]:
        sequence = (await answer).seq
        # 0: a repeat of what has no place yet (nats-server#5827)
        return topic, partition, sequence or -1

    def place(self, answer: tuple[str, int, int]) -> tuple[str, int, int]:
        return answer

    def outcome(self, error: BaseException, *, refused: bool) -> tuple[int, str]:
        return outcome(error, refused=refused), error_text(error)

    async def flush(self) -> None:
        if self._client.is_connected:
            await self._client.flush(timeout=2)

    async def close(self) -> None:
        await self._client.close()
