package main

import (
	"errors"
	"reflect"
	"strings"

	"brokerstorm/kit"
	"brokerstorm/kit/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Outcome of a send by the error of franz-go: fail (certainly not stored) or info (unknown), in doubt info. Sources:
// producer.go (produce: what is refused before it is buffered), sink.go (handleReqRespBatch: which codes are retried;
// failAllRecords: timed out, aborted and closed records may have been in a request), errors.go.

// notInTransaction is the text of an error that the client does not export: the record was not buffered.
const notInTransaction = "cannot produce record transactionally if not in a transaction"

// outcomeOf the error of one send. retries: whether the client sends a record again.
func outcomeOf(err error, retries bool) kit.Outcome {
	var code *kerr.Error
	if errors.As(err, &code) {
		return kafka.Outcome(code.Code, retries)
	}
	if errors.Is(err, kgo.ErrMaxBuffered) || err.Error() == notInTransaction {
		return kit.Fail
	}
	return kit.Info
}

// fenced says that another client took the place of this one.
func fenced(err error) bool {
	for _, code := range []*kerr.Error{
		kerr.FencedInstanceID, kerr.ProducerFenced, kerr.InvalidProducerEpoch,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// errorText is the text behind an error id.
func errorText(err error) string {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Message + ": " + code.Description
	}
	return kit.ErrorText(className(err), err)
}

var sentinels = map[error]string{
	kgo.ErrRecordTimeout: "ErrRecordTimeout", kgo.ErrRecordRetries: "ErrRecordRetries",
	kgo.ErrMaxBuffered: "_QUEUE_FULL", kgo.ErrAborting: "ErrAborting", kgo.ErrClientClosed: "ErrClientClosed",
}

// className of an error: the client's name of it, or its type.
func className(err error) string {
	for known, name := range sentinels {
		if errors.Is(err, known) {
			return name
		}
	}
	name := strings.TrimPrefix(reflect.TypeOf(err).String(), "*")
	return strings.TrimPrefix(name, "kgo.")
}
