//! The outcome of a send by the error code of Kafka's protocol, whatever the client.
//!
//! Source: org.apache.kafka.common.protocol.Errors, and where the broker checks for each
//! (ReplicaManager.appendRecords).

use crate::layout::Outcome;

/// Checked before the append and not tried again by clients, so an earlier attempt of the same batch met the same
/// check: MESSAGE_TOO_LARGE (of a client's own limit, too), INVALID_TOPIC, RECORD_LIST_TOO_LARGE,
/// INVALID_REQUIRED_ACKS, TOPIC_ and CLUSTER_AUTHORIZATION_FAILED, INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT,
/// POLICY_VIOLATION, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD.
const REJECTED: [i32; 11] = [10, 17, 18, 21, 29, 31, 32, 43, 44, 76, 87];
/// Refused before the append, but tried again. Final only when nothing ever is: an earlier attempt may have been
/// stored before its connection broke. CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE,
/// NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (20, ..._AFTER_APPEND, is info), FENCED_ and UNKNOWN_LEADER_EPOCH.
const REJECTED_THIS_ATTEMPT: [i32; 7] = [2, 3, 5, 6, 19, 74, 75];

/// Fail (certainly not stored) or info (unknown) for a send that the broker answered with this code.
pub fn outcome_of(code: i32, retries: bool) -> Outcome {
    if REJECTED.contains(&code) || (!retries && REJECTED_THIS_ATTEMPT.contains(&code)) {
        Outcome::Fail
    } else {
        Outcome::Info
    }
}
