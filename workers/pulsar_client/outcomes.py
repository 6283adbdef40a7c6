"""Maps results of the Pulsar client to outcomes of a send: ok, fail (certainly not stored) or info.

Sources: C++ client, lib/ProducerImpl.cc (`sendAsyncWithStatsUpdate`: what is refused before a
message enters the queue of pending sends; `handleSendTimeout` and `closeAsync`: what fails messages
that may have left), lib/MultiTopicsConsumerImpl.cc and PulsarApi.proto `ServerError`. Measured: all
of 2,000 sends that timed out under a frozen broker had been stored after all, so Timeout is info.
In doubt, info.
"""

from __future__ import annotations

from worker_kit.layouts import FAIL, INFO, OK
from worker_kit.protocol import Reporter

#: Refused by the client itself, before the message was queued.
REFUSED = frozenset(
    {
        "ProducerQueueIsFull",
        "MemoryBufferIsFull",
        "MessageTooBig",
        "InvalidMessage",
        "InvalidConfiguration",
        "OperationNotSupported",
        "CryptoError",
    }
)
#: A patient application calls again when its message was refused for this reason.
FULL = frozenset({"ProducerQueueIsFull", "MemoryBufferIsFull"})


#: A producer or consumer that will not connect again, by result: why (`isValidProducerState`).
#: Nobody else closes it.
DEAD = {"ProducerFenced": "fenced", "AlreadyClosed": "error"}


def outcome_of(result: str, *, in_call: bool = False) -> int:
    """Outcome of a send by the name of the client's `Result`.

    ``in_call``: the answer came before the call returned; a dead producer queues nothing.
    """
    if result == "Ok":
        return OK
    return FAIL if result in REFUSED or (in_call and result in DEAD) else INFO


def note_death(report: Reporter, result: object) -> bool:
    """Write down that the client is of no further use; whether this result says so."""
    name = result_name(result)
    if name in DEAD:
        report.client_died(name, f"{name}: {result}", DEAD[name])
    return name in DEAD


def result_name(result: object) -> str:
    """``Timeout`` of ``Result.Timeout``, or of an exception of that name."""
    if isinstance(result, BaseException):
        return type(result).__name__
    return str(getattr(result, "name", result)).rpartition(".")[2]
