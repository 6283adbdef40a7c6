"""Maps exceptions of kafka-python to outcomes of a send: fail (certainly not stored) or info
(unknown).

An exception out of ``send`` itself means that the record never reached the accumulator: fail. The
future's exception is judged by its code, in doubt info. Sources: kafka/producer/sender.py
(`_can_retry`, `_dispatch_error`: which errors are retried) and kafka/errors.py (`errno`,
`retriable`).
"""

from __future__ import annotations

from worker_kit.kafka_codes import outcome_of
from worker_kit.protocol import Reporter

#: What the client says when it takes nothing any more: `ERROR_CLASS_FATAL` of
#: transaction_manager.py for an idempotent producer, a member whose group_instance_id another one
#: has, a producer that closed itself.
_DEAD = {
    "ProducerFencedError": "fenced",
    "FencedInstanceIdError": "fenced",
    "ClusterAuthorizationFailedError": "error",
    "InvalidTxnStateError": "error",
}
_CLOSED = "already closed"
#: For a producer that cannot begin a transaction: only an abort leads out of it, and that was
#: before.
_FAILED = "we are in an error state"


def note_death(report: Reporter, error: BaseException, *, at_begin: bool = False) -> bool:
    """Write down an error after which the client is of no further use; whether it is one.

    ``at_begin``: it refused to begin a transaction.
    """
    name, text = type(error).__name__, str(error).partition("\n")[0]
    why = _DEAD.get(name, "error" if _CLOSED in text or (at_begin and _FAILED in text) else "")
    if why:
        report.client_died(name, f"{name}: {text}", why)
    return bool(why)


class Outcomes:
    """The table for one producer's options."""

    def __init__(self, options: dict[str, object]) -> None:
        self._retries = options.get("retries") != 0

    def reported(self, error: BaseException) -> int:
        """Outcome of a send whose future failed."""
        return outcome_of(getattr(error, "errno", None), retries=self._retries)
