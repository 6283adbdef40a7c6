"""Maps errors of librdkafka to outcomes of a send: fail (certainly not stored) or info (unknown).

An exception out of ``produce`` means that the message was never taken (rd_kafka_producev destroys
it and returns the error): fail. A delivery report is judged by its code. librdkafka knows more than
it tells Python: ``rd_kafka_message_status`` (not, possibly, persisted) has no Python binding and
looks only at the last attempt, so the code alone has to decide, and in doubt the answer is info.

With ``retries`` 0 a refused attempt is the last one, and the retries that do not count (after a
refresh of metadata) follow refusals only.

Sources: librdkafka INTRODUCTION.md, "Message persistence status" and "Message timeout
considerations"; rd_kafka_handle_Produce_error and rd_kafka_err_action in rdkafka_request.c (what is
permanent, what is retried). Its own codes are below 0, the broker's come from the protocol.
"""

from __future__ import annotations

from confluent_kafka import KafkaError
from worker_kit.kafka_codes import outcome_of
from worker_kit.layouts import FAIL
from worker_kit.protocol import Reporter


def note_death(report: Reporter, error: KafkaError) -> bool:
    """Write down a fatal error: the client takes nothing from then on (INTRODUCTION.md, "Fatal
    errors").

    Returns whether it is one. It comes out of `poll` and `flush` of a producer as an exception,
    with the code of its cause, and out of `poll` of a consumer as a message with ``_FATAL`` and the
    cause in its text.
    """
    if not error.fatal() and error.code() != KafkaError._FATAL:
        return False
    text = error_text(error)
    asked = error.code() == KafkaError._GAPLESS_GUARANTEE
    report.client_died(
        error.name(), text, "asked" if asked else "fenced" if "fenced" in text else "error"
    )
    return True


class Outcomes:
    """The table for one producer's options."""

    def __init__(self, options: dict[str, str]) -> None:
        self._retries = options.get("retries", options.get("message.send.max.retries", "")) != "0"

    def reported(self, error: KafkaError) -> int:
        """Outcome of a send that ended with a delivery report."""
        if error.code() == KafkaError.INVALID_MSG_SIZE:
            return FAIL
        return outcome_of(error.code(), retries=self._retries)


def is_refusal(error: KafkaError) -> bool:
    """A broker, or the client by the broker's certificate, said no: trying again is of no use.

    A handshake that breaks off is an error of SSL, too, and says nothing of the kind.
    """
    if error.code() == KafkaError._SSL:
        return any(word in error.str() for word in ("certificate", "alert"))
    return bool(error.code() == KafkaError._AUTHENTICATION)


def error_text(error: KafkaError) -> str:
    """Name and sentence, the text of an error id."""
    return f"{error.name()}: {error.str()}"
