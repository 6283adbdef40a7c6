"""aiokafka: one process, one role (docs/worker-protocol.md)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from consumer import ConsumerRole
from options import typed
from producer import ProducerRole
from transactional import TransactionalRole
from worker_kit.client_log import show_client_log
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session, main


def settings(session: Session, client: type) -> dict[str, Any]:
    """The options, and over them what the harness decides."""
    spec = session.spec
    return {
        **typed({"client_id": spec.name, **spec.options}, client),
        "bootstrap_servers": spec.bootstrap,
    }


def make(client: type, chosen: Mapping[str, Any]) -> Any:
    """Construct the client, on an event loop; an option that it does not take ends the worker."""
    try:
        return client(**chosen)
    except (KafkaError, ValueError, TypeError, AssertionError, RuntimeError) as error:
        raise WorkerFailure(
            f"aiokafka refused to start: {type(error).__name__}: {error}",
            hint="options are aiokafka's own names (linger_ms, not linger.ms)",
        ) from error


def check(session: Session, client: type, chosen: Mapping[str, Any]) -> None:
    async def construct() -> None:
        make(client, chosen)

    session.check_options(lambda: asyncio.run(construct()))


def produce(session: Session) -> None:
    chosen = settings(session, AIOKafkaProducer)
    check(session, AIOKafkaProducer, chosen)
    if "transactions" in session.spec.part:
        TransactionalRole(
            session, lambda own: make(AIOKafkaProducer, {**chosen, "transactional_id": own})
        ).run()
        return
    ProducerRole(session, lambda: make(AIOKafkaProducer, chosen)).run()


def consume(session: Session) -> None:
    chosen = {**settings(session, AIOKafkaConsumer), "group_id": session.spec.part["group"]}
    check(session, AIOKafkaConsumer, chosen)
    itself = bool(chosen["enable_auto_commit"])
    ConsumerRole(session, lambda: make(AIOKafkaConsumer, chosen), commits_itself=itself).run()


if __name__ == "__main__":
    show_client_log()
    versions = {"client_version": aiokafka.__version__}
    sys.exit(main({"producer": produce, "consumer": consume}, versions, (KafkaError,)))
