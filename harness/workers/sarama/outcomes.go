package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

// What an error of sarama says about a send: fail (certainly not stored) or info (unknown), in doubt info. Sources:
// async_producer.go (handleSuccess: which codes are retried; handleError: what a lost connection does; dispatcher:
// what is refused before anything is sent), errors.go, and the broker's org.apache.kafka.common.protocol.Errors.

// rejected by the broker before the append and not retried by sarama, so an earlier attempt of the same batch met
// the same check. Numbers of the protocol: older releases do not name all of them.
var rejected = map[int16]bool{
	10: true, // MESSAGE_TOO_LARGE; sarama also gives it for its own limit, before sending
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
}

// refusedLocally: the message never left the producer's dispatcher.
var refusedLocally = []error{sarama.ErrInvalidPartition, sarama.ErrShuttingDown}

// outcomeOf the error of one send. retries: Producer.Retry.Max.
func outcomeOf(err error, retries int) kit.Outcome {
	var code sarama.KError
	if errors.As(err, &code) {
		if rejected[int16(code)] || (retries == 0 && rejectedThisAttempt[int16(code)]) {
			return kit.Fail
		}
		return kit.Info
	}
	var configuration sarama.ConfigurationError
	var encoding sarama.PacketEncodingError
	if errors.As(err, &configuration) || errors.As(err, &encoding) {
		return kit.Fail
	}
	for _, local := range refusedLocally {
		if errors.Is(err, local) {
			return kit.Fail
		}
	}
	return kit.Info
}

var varying = regexp.MustCompile(`[0-9a-fA-F.:\[\]]*:\d+(->[0-9a-fA-F.:\[\]]*:\d+)?|\d+`)

// errorText is class and first line, the text behind an error id, without what differs from message to message.
func errorText(err error) string {
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Sprintf("KError %d: %s", int16(code), strings.TrimPrefix(code.Error(), "kafka server: "))
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	line = varying.ReplaceAllString(line, "*")
	if len(line) > 200 {
		line = line[:200]
	}
	return fmt.Sprintf("%s: %s", className(err), line)
}

// className of an error: its type, or the words that stand for one that has none of its own.
func className(err error) string {
	switch {
	case errors.Is(err, sarama.ErrOutOfBrokers):
		return "ErrOutOfBrokers"
	case errors.Is(err, sarama.ErrNotConnected):
		return "ErrNotConnected"
	case errors.Is(err, sarama.ErrIncompleteResponse):
		return "ErrIncompleteResponse"
	case errors.Is(err, sarama.ErrShuttingDown):
		return "ErrShuttingDown"
	}
	return strings.TrimPrefix(strings.TrimPrefix(reflect.TypeOf(err).String(), "*"), "sarama.")
}
