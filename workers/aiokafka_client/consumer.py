"""Consumer role on aiokafka: a member of a group. Its listener runs on the loop that reads and
journals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError
from worker_kit.asyncio_consuming import AsyncConsumer, Message
from worker_kit.consuming import ConsumerSession, Partition
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session
from worker_kit.template import joined

POLL_MS = 50


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # mypy has no client installed
    """Writes down what the group gives and takes, as the client says it."""

    def __init__(self, journal: ConsumerSession) -> None:
        self._journal = journal

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._journal.assign({(tp.topic, tp.partition): -1 for tp in assigned})

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._journal.revoke((tp.topic, tp.partition) for tp in revoked)


class ConsumerRole(AsyncConsumer):
    client_errors = (KafkaError,)

    def __init__(
        self, session: Session, make: Callable[[], AIOKafkaConsumer], *, commits_itself: bool
    ) -> None:
        super().__init__(session)
        self.commits_itself = commits_itself
        self._make = make
        self._consumer: AIOKafkaConsumer = None

    async def subscribe(self) -> None:
        self._consumer = self._make()
        self._consumer.subscribe(self.journal.topics, listener=Listener(self.journal))
        try:
            await self._consumer.start()
        except KafkaError as error:
            raise WorkerFailure(f"cannot join: {error_text(error)}") from error

    async def poll(self) -> Iterable[Message]:
        polled = await self._consumer.getmany(timeout_ms=POLL_MS)
        return [
            (record.topic, record.partition, record.offset, joined(record.value, record.headers))
            for records in polled.values()
            for record in records
        ]

    async def commit(self, positions: Mapping[Partition, int]) -> None:
        await self._consumer.commit(
            {TopicPartition(*partition): at for partition, at in positions.items()}
        )

    async def close(self) -> None:
        """Leave the group. The client does not call its listener then: what it had is given
        back."""
        await self._consumer.stop()
        self.journal.revoke(sorted(self.journal.assigned))

    def error_text(self, error: BaseException) -> str:
        return error_text(error)
