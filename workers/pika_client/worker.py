"""pika: one process, one role (docs/worker-protocol.md)."""

from __future__ import annotations

import sys

import pika
from connection import FAILURES, AmqpConnection, Options
from consumer import ConsumerRole
from producer import ProducerRole
from worker_kit.client_log import show_client_log
from worker_kit.process import Session, main


def options(session: Session) -> Options:
    return Options(session.spec.options, session.spec.role)


def produce(session: Session) -> None:
    session.check_options(lambda: options(session))
    chosen = options(session)
    ProducerRole(session, AmqpConnection(session, chosen), chosen).run()


def consume(session: Session) -> None:
    session.check_options(lambda: options(session))
    chosen = options(session)
    ConsumerRole(session, AmqpConnection(session, chosen), chosen).run()


if __name__ == "__main__":
    show_client_log()
    sys.exit(
        main(
            {"producer": produce, "consumer": consume},
            {"client_version": pika.__version__},
            FAILURES,
        )
    )
