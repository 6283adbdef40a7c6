"""Maps exceptions of kafka-python to outcomes of a send: fail (certainly not stored) or info (unknown).

An exception out of ``send`` itself means that the record never reached the accumulator: fail. The future's
exception is judged by its code, in doubt info. Sources: kafka/producer/sender.py (`_can_retry`,
`_dispatch_error`: which errors are retried) and kafka/errors.py (`errno`, `retriable`).
"""

from __future__ import annotations

from worker_kit.kafka_codes import outcome_of
from worker_kit.protocol import Reporter

#: What the client says when it takes nothing any more: `ERROR_CLASS_FATAL` of transaction_manager.py for an
#: idempotent producer, a member whose group_instance_id another one has, a producer that closed itself.
_DEAD = {
    "ProducerFencedError": "fenced",
    "FencedInstanceIdError": "fenced",
    "ClusterAuthorizationFailedError": "error",
    "InvalidTxnStateError": "error",
}
_CLOSED = "already closed"


def note_death(report: Reporter, error: BaseException) -> None:
    """Write down an error after which the client is of no further use."""
    name, text = type(error).__name__, str(error).partition("\n")[0]
    why = _DEAD.get(name, "error" if _CLOSED in text else "")
    if why:
        report.client_died(name, f"{name}: {text}", why)


class Outcomes:
    """The table for one producer's options."""

    def __init__(self, options: dict[str, object]) -> None:
        self._retries = options.get("retries") != 0

    def reported(self, error: BaseException) -> int:
        """Outcome of a send whose future failed."""
        return outcome_of(getattr(error, "errno", None), retries=self._retries)
