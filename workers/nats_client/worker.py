"""nats-py: one process, one role (docs/worker-protocol.md)."""

from __future__ import annotations

import sys
from importlib.metadata import version

from connection import CLIENT_ERRORS
from consumer import ConsumerRole
from options import read
from producer import ProducerRole
from worker_kit.client_log import show_client_log
from worker_kit.process import Session, main


def produce(session: Session) -> None:
    session.check_options(lambda: read(session.spec.options))
    ProducerRole(session, read(session.spec.options)).run()


def consume(session: Session) -> None:
    session.check_options(lambda: read(session.spec.options))
    ConsumerRole(session, read(session.spec.options)).run()


if __name__ == "__main__":
    show_client_log()
    versions = {"client_version": version("nats-py")}
    sys.exit(main({"producer": produce, "consumer": consume}, versions, CLIENT_ERRORS))
