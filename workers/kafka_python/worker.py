"""kafka-python: one process, one role (docs/worker-protocol.md)."""

from __future__ import annotations

import sys
from typing import Any

import kafka
from consumer import ConsumerRole
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from options import typed
from outcomes import Outcomes
from producer import ProducerRole
from transactional import TransactionalRole
from worker_kit.client_log import show_client_log
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session, main


def config(session: Session, client: Any) -> dict[str, Any]:
    """The options, and over them what the harness decides."""
    spec = session.spec
    options = {"client_id": spec.name, **spec.options}
    if unknown := sorted(options.keys() - client.DEFAULT_CONFIG.keys()):
        raise WorkerFailure(
            f"kafka-python {kafka.__version__} has no option {', '.join(unknown)}",
            hint="options are kafka-python's own names (linger_ms, not linger.ms)",
        )
    return {**typed(options, client.DEFAULT_CONFIG), "bootstrap_servers": spec.bootstrap.split(",")}


def make(client: Any, settings: dict[str, Any]) -> Any:
    """Construct the client; an option it does not take ends the worker with the client's own
    words."""
    try:
        return client(**settings)
    except (KafkaError, ValueError, TypeError, AssertionError, RuntimeError) as error:
        raise WorkerFailure(
            f"kafka-python refused to start: {type(error).__name__}: {error}",
            hint="see the client's log (stderr.log)",
        ) from error


def produce(session: Session) -> None:
    session.check_options(lambda: config(session, KafkaProducer))  # to construct it needs a broker
    settings = config(session, KafkaProducer)
    outcomes = Outcomes(settings)
    if "transactions" in session.spec.part:
        TransactionalRole(
            session,
            lambda own: make(KafkaProducer, {**settings, "transactional_id": own}),
            outcomes,
        ).run()
        return
    ProducerRole(session, make(KafkaProducer, settings), outcomes).run()


def consume(session: Session) -> None:
    session.check_options(lambda: config(session, KafkaConsumer))
    settings = {**config(session, KafkaConsumer), "group_id": session.spec.part["group"]}
    ConsumerRole(session, settings, make).run()


if __name__ == "__main__":
    show_client_log()
    sys.exit(
        main(
            {"producer": produce, "consumer": consume},
            {"client_version": kafka.__version__},
            (KafkaError,),
        )
    )
