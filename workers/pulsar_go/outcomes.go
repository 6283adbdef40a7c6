package main

import (
	"errors"
	"regexp"
	"strings"

	"brokerstorm/kit"
	"github.com/apache/pulsar-client-go/pulsar"
)

// Outcome of a send by the error of the client: fail (certainly not stored) or info (unknown), in doubt info. Sources:
// producer_partition.go (what is looked at before a message is queued; doClose and failTimeoutMessages, which end what
// was queued) and error.go. By the words of errors that older versions have no name for.
const (
	fenced       = "producer fenced"
	memoryIsFull = "client memory buffer is full"
)

// outcomeOf the error of a send. inCall: it came before the call returned, when nothing was queued yet.
func outcomeOf(err error, chunks, inCall bool) kit.Outcome {
	var known *pulsar.Error
	if !errors.As(err, &known) {
		return kit.Info
	}
	switch known.Result() {
	case pulsar.ProducerQueueIsFull:
		return kit.Fail
	case pulsar.MessageTooBig: // a chunked one may have lost earlier chunks to the broker
		if !chunks {
			return kit.Fail
		}
	case pulsar.ProducerClosed: // given to what is queued, too
		if inCall {
			return kit.Fail
		}
	}
	if strings.Contains(known.Error(), memoryIsFull) {
		return kit.Fail
	}
	return kit.Info
}

// diedOf says why the client is of no further use, if this error says so: nobody else closes it.
func diedOf(err error) (why string, died bool) {
	var known *pulsar.Error
	if !errors.As(err, &known) {
		return "", false
	}
	if strings.Contains(known.Error(), fenced) {
		return "fenced", true
	}
	closed := known.Result() == pulsar.ProducerClosed || known.Result() == pulsar.ConsumerClosed
	return "error", closed
}

var word = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// errorText is the text behind an error id. Errors of the client end in the name of their result.
func errorText(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if cut := strings.LastIndex(line, ": "); cut >= 0 && word.MatchString(line[cut+2:]) {
		return kit.ErrorText(line[cut+2:], err)
	}
	return kit.ErrorText("Error", err)
}
