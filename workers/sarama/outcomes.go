package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"brokerstorm/kit"
	"brokerstorm/kit/kafka"
	"github.com/IBM/sarama"
)

// Outcome of a send by the error of sarama: fail (certainly not stored) or info (unknown), in doubt info. Sources:
// async_producer.go (handleSuccess: which codes are retried; handleError: what a lost connection does; dispatcher:
// what is refused before anything is sent) and errors.go.

// refusedLocally: the message never left the producer's dispatcher.
var refusedLocally = []error{sarama.ErrInvalidPartition, sarama.ErrShuttingDown}

// outcomeOf the error of one send. retries: Producer.Retry.Max.
func outcomeOf(err error, retries int) kit.Outcome {
	var code sarama.KError
	if errors.As(err, &code) {
		return kafka.Outcome(int16(code), retries > 0)
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

// deathOf is why the client takes nothing any more, by its own words; "" = it does. Nobody else closes it.
func deathOf(err error) string {
	switch {
	case errors.Is(err, sarama.ErrFencedInstancedId):
		return "fenced"
	case errors.Is(err, sarama.ErrShuttingDown), errors.Is(err, sarama.ErrClosedClient),
		errors.Is(err, sarama.ErrClosedConsumerGroup):
		return "error"
	}
	return ""
}

// noteDeath writes down an error after which the client is of no further use.
func noteDeath(report *kit.Reporter, err error) {
	if why := deathOf(err); why != "" {
		report.ClientDied(className(err)+": "+err.Error(), why)
	}
}

// errorText is the text behind an error id.
func errorText(err error) string {
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Sprintf("KError %d: %s", int16(code), strings.TrimPrefix(code.Error(), "kafka server: "))
	}
	return kit.ErrorText(className(err), err)
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
