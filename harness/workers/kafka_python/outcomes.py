"""What an exception of kafka-python says about a send: fail (certainly not stored) or info (unknown).

An exception out of ``send`` itself means that the record never reached the accumulator: fail. The future's
exception is judged by this table, in doubt info. Sources: kafka/producer/sender.py (`_can_retry`,
`_dispatch_error`: which errors are retried), kafka/errors.py (`retriable`), and the broker's
org.apache.kafka.common.protocol.Errors.
"""

from __future__ import annotations

import re

from worker_kit.layouts import FAIL, INFO

_VARYING = re.compile(r"TopicPartition\([^)]*\)|\d+")

#: The broker checks these before it appends and the client does not retry them, so an earlier attempt of
#: the same batch met the same check. Numbers of the protocol: class names differ between releases.
REJECTED = frozenset(
    {
        10,  # MESSAGE_TOO_LARGE
        17,  # INVALID_TOPIC_EXCEPTION
        18,  # RECORD_LIST_TOO_LARGE
        21,  # INVALID_REQUIRED_ACKS
        29,  # TOPIC_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        32,  # INVALID_TIMESTAMP
        43,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        44,  # POLICY_VIOLATION
        76,  # UNSUPPORTED_COMPRESSION_TYPE
        87,  # INVALID_RECORD
    }
)

#: Refused before the append but retried by the client: final only for a send that was never retried.
REJECTED_THIS_ATTEMPT = frozenset(
    {
        2,  # CORRUPT_MESSAGE
        3,  # UNKNOWN_TOPIC_OR_PARTITION
        5,  # LEADER_NOT_AVAILABLE
        6,  # NOT_LEADER_OR_FOLLOWER
        19,  # NOT_ENOUGH_REPLICAS, checked before the append; 20, ..._AFTER_APPEND, is info
    }
)


class Outcomes:
    """The table for one producer's options."""

    def __init__(self, options: dict[str, object]) -> None:
        self._fail = REJECTED | REJECTED_THIS_ATTEMPT if options.get("retries") == 0 else REJECTED

    def reported(self, error: BaseException) -> int:
        """Outcome of a send whose future failed."""
        return FAIL if getattr(error, "errno", None) in self._fail else INFO


def error_text(error: BaseException) -> str:
    """Class and first line, the text behind an error id, without what differs from message to message."""
    text = str(error).partition("\n")[0].removeprefix(f"{type(error).__name__}: ")
    return f"{type(error).__name__}: {_VARYING.sub('*', text)[:200]}"
