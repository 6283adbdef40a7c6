// Package kafka gives the outcome of a send by the error code of Kafka's protocol, whatever the client.
//
// Source: org.apache.kafka.common.protocol.Errors, and where the broker checks for each (ReplicaManager.appendRecords).
package kafka

import "brokerstorm/kit"

// rejected by the broker before the append and not retried by clients, so an earlier attempt of the same batch met the
// same check.
var rejected = map[int16]bool{
	10: true, // MESSAGE_TOO_LARGE; clients also give it for a limit of their own, before sending
	17: true, // INVALID_TOPIC_EXCEPTION
	18: true, // RECORD_LIST_TOO_LARGE
	21: true, // INVALID_REQUIRED_ACKS
	29: true, // TOPIC_AUTHORIZATION_FAILED
	31: true, // CLUSTER_AUTHORIZATION_FAILED
	32: true, // INVALID_TIMESTAMP
	43: true, // UNSUPPORTED_FOR_MESSAGE_FORMAT
	44: true, // POLICY_VIOLATION
	76: true, // UNSUPPORTED_COMPRESSION_TYPE
	87: true, // INVALID_RECORD
}

// rejectedThisAttempt: refused before the append, but retried. Final only when nothing is ever retried: an earlier
// attempt may have been stored before its connection broke.
var rejectedThisAttempt = map[int16]bool{
	2:  true, // CORRUPT_MESSAGE
	3:  true, // UNKNOWN_TOPIC_OR_PARTITION
	5:  true, // LEADER_NOT_AVAILABLE
	6:  true, // NOT_LEADER_OR_FOLLOWER
	19: true, // NOT_ENOUGH_REPLICAS, checked before the append; 20, ..._AFTER_APPEND, is info
	74: true, // FENCED_LEADER_EPOCH
	75: true, // UNKNOWN_LEADER_EPOCH
}

// Outcome of a send that the broker answered with this code: fail (certainly not stored) or info (unknown).
func Outcome(code int16, retries bool) kit.Outcome {
	if rejected[code] || (!retries && rejectedThisAttempt[code]) {
		return kit.Fail
	}
	return kit.Info
}
