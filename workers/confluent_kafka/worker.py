"""confluent-kafka: one process, one role (docs/worker-protocol.md)."""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import partial

import confluent_kafka
from audit import AuditRole
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from consumer import ConsumerRole
from outcomes import Outcomes, error_text, is_refusal
from pipeline import Apart, PipelineRole, Together
from producer import ProducerRole
from transactional import TransactionalRole
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session, main

VERSIONS = {
    "client_version": confluent_kafka.__version__,
    "librdkafka": confluent_kafka.libversion()[0],
}

#: Option of our own: an OAUTHBEARER token, and the validity that the client is given.
TOKEN = "oauth_token"
TOKEN_S = 3600.0


def config(session: Session, **fixed: object) -> dict[str, object]:
    """The options, and over them what the harness decides."""
    spec = session.spec

    def heard(error: KafkaError) -> None:
        kind = (
            "disconnect"
            if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
            else "error"
        )
        session.report.event(kind, error_text(error), fatal=error.fatal())
        if not session.is_ready and is_refusal(error):
            # The client would try again for ever. What is raised here comes out of its `poll`.
            raise WorkerFailure(error_text(error), hint="check tls and auth of the connection file")

    options: dict[str, object] = dict(spec.options)
    if token := options.pop(TOKEN, None):
        # The same one again whenever the client asks; librdkafka wants to know until when it holds.
        options["oauth_cb"] = lambda _config: (token, time.time() + TOKEN_S)
    return {
        "client.id": spec.name,
        **options,
        "bootstrap.servers": spec.bootstrap,
        "error_cb": heard,
        **fixed,
    }


def make(client: type, settings: dict[str, object]) -> object:
    """Construct the client; an option it does not take ends the worker with the client's own
    words."""
    try:
        return client(settings)
    except KafkaException as error:
        raise WorkerFailure(
            f"confluent-kafka refused its options: {error_text(error.args[0])}",
            hint="options are librdkafka's own names, see its CONFIGURATION.md",
        ) from error


def produce(session: Session) -> None:
    session.check_options(lambda: make(Producer, config(session)))
    outcomes = Outcomes(dict(session.spec.options))
    if "transactions" in session.spec.part:
        TransactionalRole(
            session,
            lambda own: make(Producer, config(session, **{"transactional.id": own})),
            outcomes,
        ).run()
        return
    ProducerRole(session, make(Producer, config(session)), outcomes).run()


def consume(session: Session) -> None:
    settings = config(session, **{"group.id": session.spec.part["group"]})
    session.check_options(lambda: make(Consumer, settings))
    itself = str(settings["enable.auto.commit"]).lower() == "true"
    ConsumerRole(
        session,
        lambda on_commit: make(Consumer, {**settings, "on_commit": on_commit}),
        commits_itself=itself,
    ).run()


def pipe(session: Session) -> None:
    writing, reading = session.half("producer"), session.half("consumer")
    settings = config(reading, **{"group.id": reading.spec.part["group"]})
    session.check_options(lambda: (make(Producer, config(writing)), make(Consumer, settings)))

    def make_writer(consumer: Consumer) -> Together | Apart:
        outcomes = Outcomes(dict(writing.spec.options))
        if "transactions" not in writing.spec.part:
            every_ns = int(reading.spec.part["commit_every_s"] * 1e9)
            return Apart(writing, make(Producer, config(writing)), outcomes, consumer, every_ns)

        def make_producer(own: str) -> Producer:
            return make(Producer, config(writing, **{"transactional.id": own}))

        return Together(writing, make_producer, outcomes, consumer)

    PipelineRole(
        session, lambda on_commit: make(Consumer, {**settings, "on_commit": on_commit}), make_writer
    ).run()


def audit(session: Session) -> None:
    fixed = {
        # the client wants one; nothing is ever committed
        "group.id": f"audit-{session.spec.run_id}",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
        "isolation.level": session.spec.part["isolation"],
    }
    AuditRole(session, partial(make, Consumer, config(session, **fixed))).run()


if __name__ == "__main__":
    # Nothing here makes reference cycles, and walking the callbacks of 100,000 sends in flight over
    # and over cost twice as much as the sends themselves.
    gc.freeze()
    gc.disable()
    roles = {"producer": produce, "consumer": consume, "pipeline": pipe, "audit": audit}
    code = main(roles, VERSIONS, (KafkaException,))
    if code:
        # librdkafka's threads are in a handshake, maybe, while Python and OpenSSL are taken down
        # around them: of 40 workers whose broker had a certificate of another host, 2 ended with
        # SIGSEGV instead of 4.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
