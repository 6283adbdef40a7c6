"""Producer role on aiokafka, on the kit's event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from outcomes import death, outcome
from worker_kit.asyncio_loop import AsyncOpenLoop
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session
from worker_kit.sending import Share
from worker_kit.spec import Lane
from worker_kit.template import HEADER, parted


class ProducerRole(AsyncOpenLoop):
    """One sending task; the tasks of a producer share the client.

    ``make``: constructs the client, which needs a running loop.
    """

    client_errors: tuple[type[BaseException], ...] = (
        KafkaError,
        ValueError,
        TypeError,
        AssertionError,
    )

    def __init__(
        self, session: Session, make: Callable[[], AIOKafkaProducer], share: Share | None = None
    ) -> None:
        super().__init__(session, share)
        self._make = make
        self._producer: AIOKafkaProducer = None
        self._headers = [(name, value.encode()) for name, value in self.headers] or None

    async def connect(self) -> None:
        self._producer = self._make()
        try:
            await self._producer.start()
        except KafkaError as error:
            raise WorkerFailure(
                f"no broker answers: {error_text(error)}", hint="see the client's log (stderr.log)"
            ) from error
        for topic in sorted({lane.topic for lane in self.lanes}):
            try:
                await self._producer.partitions_for(topic)
            except KafkaError as error:
                raise WorkerFailure(f"no metadata of topic {topic}: {error_text(error)}") from error

    def for_thread(self, share: Share) -> ProducerRole:
        other = ProducerRole(self.session, self._make, share)
        other._producer = self._producer
        return other

    async def send(self, lane: Lane, payload: bytes) -> Awaitable[Any]:
        partition = None if lane.partition < 0 else lane.partition
        headers = self._headers
        if self.template:
            headers = [*(headers or ()), *self.made_headers(payload)]
            payload, identity = parted(payload)
            headers.append((HEADER, identity))
        answer = await self._producer.send(
            lane.topic, payload, lane.key, partition, headers=headers
        )
        return self._with_place(answer, lane)

    async def _with_place(self, answer: Awaitable[Any], lane: Lane) -> tuple[str, int, int]:
        """Return where a message was stored. With acks=0 no answer comes, and only an explicit
        partition is known.
        """
        stored = await answer
        if stored is None:
            return lane.topic, lane.partition, -1
        return stored.topic, stored.partition, stored.offset

    def place(self, answer: tuple[str, int, int]) -> tuple[str, int, int]:
        return answer

    def outcome(self, error: BaseException, *, refused: bool) -> tuple[int, str]:
        return outcome(error, refused=refused), error_text(error)

    def death(self, error: BaseException, *, refused: bool) -> str:
        return death(error, refused=refused)

    async def flush(self) -> None:
        await self._producer.flush()

    async def close(self) -> None:
        await self._producer.stop()
