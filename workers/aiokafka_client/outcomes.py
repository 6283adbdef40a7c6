"""Maps exceptions of aiokafka to outcomes of a send: fail (certainly not stored) or info (unknown).

An exception out of ``send`` itself means that the message was not put into a batch (too large, no
room within request_timeout_ms, no such partition): fail. That of the future is judged by its code.
Sources: aiokafka/producer/producer.py (`send`), message_accumulator.py (`add_message`), sender.py
(`_can_retry`: every error that is retriable is retried, until the batch expires) and errors.py
(`errno`).
"""

from __future__ import annotations

from worker_kit.kafka_codes import outcome_of
from worker_kit.layouts import FAIL


def outcome(error: BaseException, *, refused: bool) -> int:
    """Outcome of a send; ``refused`` by the call itself."""
    return FAIL if refused else outcome_of(getattr(error, "errno", None), retries=True)


#: `Sender._fail_all`: the task that sends has ended, and the accumulator refuses everything with
#: its error.
_ENDED = {
    "ProducerFenced": "fenced",
    "OutOfOrderSequenceNumber": "error",
    "TransactionalIdAuthorizationFailed": "error",
    "ProducerClosed": "error",
}
#: The first for whoever waits, the second (`TransactionState`) for every call after it.
_FINAL = ("Unexpected error during batch delivery", "transition TransactionState.FATAL_ERROR")


def death(error: BaseException, *, refused: bool) -> str:
    """Why the producer takes nothing any more; empty = it does."""
    if not refused:
        return ""
    return _ENDED.get(
        type(error).__name__, "error" if any(word in str(error) for word in _FINAL) else ""
    )
