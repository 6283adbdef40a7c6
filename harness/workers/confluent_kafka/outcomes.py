"""What an error of librdkafka says about a send: fail (certainly not stored) or info (unknown).

An exception out of ``produce`` means that the message was never taken (rd_kafka_producev destroys it and
returns the error): fail. This table is for delivery reports. librdkafka knows more than it tells Python:
``rd_kafka_message_status`` (not, possibly, persisted) has no Python binding and looks only at the last
attempt, so the code alone has to decide, and in doubt the answer is info.

Sources: librdkafka INTRODUCTION.md, "Message persistence status" and "Message timeout considerations";
rd_kafka_handle_Produce_error and rd_kafka_err_action in rdkafka_request.c (what is permanent, what is
retried); org.apache.kafka.common.protocol.Errors.
"""

from __future__ import annotations

from confluent_kafka import KafkaError
from worker_kit.layouts import FAIL, INFO

#: Permanent refusals: the broker checks these before it appends, and librdkafka does not retry them, so
#: an earlier attempt of the same batch met the same check.
REJECTED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,  # MESSAGE_TOO_LARGE: larger than max.message.bytes
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,  # batch larger than a segment
        KafkaError.TOPIC_EXCEPTION,  # INVALID_TOPIC_EXCEPTION
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_RECORD,  # the log validator refused a record (compacted topic without key ...)
    }
)

#: Refusals before the append that librdkafka retries. An earlier attempt that was cut off by a lost
#: connection may have been stored, unless ``retries`` is 0: then such an attempt is the last one, and
#: the retries that do not count (after a refresh of metadata) follow refusals only.
REJECTED_THIS_ATTEMPT = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.NOT_ENOUGH_REPLICAS,  # checked before the append; ..._AFTER_APPEND is info
        KafkaError.INVALID_MSG,  # CORRUPT_MESSAGE: the CRC was wrong on arrival
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


class Outcomes:
    """The table for one producer's options."""

    def __init__(self, options: dict[str, str]) -> None:
        retries = options.get("retries", options.get("message.send.max.retries", ""))
        self._fail = REJECTED | REJECTED_THIS_ATTEMPT if retries == "0" else REJECTED

    def reported(self, error: KafkaError) -> int:
        """Outcome of a send that ended with a delivery report."""
        return FAIL if error.code() in self._fail else INFO


def error_text(error: KafkaError) -> str:
    """Name and sentence, the text behind an error id."""
    return f"{error.name()}: {error.str()}"
