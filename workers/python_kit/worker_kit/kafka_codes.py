"""Maps error codes of Kafka's protocol to outcomes of a send, for every client.

Sources: org.apache.kafka.common.protocol.Errors, and where the broker checks for each
(ReplicaManager.appendRecords, UnifiedLog.append).
"""

from __future__ import annotations

from typing import Final

from .layouts import FAIL, INFO

#: The broker checks these before it appends and clients do not retry them, so an earlier attempt of
#: the same batch met the same check. Numbers: names differ between clients and their releases.
REJECTED: Final = frozenset(
    {
        10,  # MESSAGE_TOO_LARGE; clients also give it for a limit of their own, before sending
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

#: Refused before the append, but retried by clients. Final only when nothing is ever retried: an
#: earlier attempt may have been stored before its connection broke.
REJECTED_THIS_ATTEMPT: Final = frozenset(
    {
        2,  # CORRUPT_MESSAGE
        3,  # UNKNOWN_TOPIC_OR_PARTITION
        5,  # LEADER_NOT_AVAILABLE
        6,  # NOT_LEADER_OR_FOLLOWER
        19,  # NOT_ENOUGH_REPLICAS, checked before the append; 20, ..._AFTER_APPEND, is info
        74,  # FENCED_LEADER_EPOCH
        75,  # UNKNOWN_LEADER_EPOCH
    }
)


def outcome_of(code: int | None, *, retries: bool) -> int:
    """FAIL (certainly not stored) or INFO (unknown) for a send that ended with this code."""
    return FAIL if code in REJECTED or (not retries and code in REJECTED_THIS_ATTEMPT) else INFO
