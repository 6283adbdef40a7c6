package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"brokerstorm/kit"
	codes "brokerstorm/kit/kafka"
	"github.com/segmentio/kafka-go"
)

// Outcome of a send by the error of kafka-go: fail (certainly not stored) or info (unknown), in doubt info. Sources:
// writer.go (WriteMessages: what is refused before it is in a batch; writeBatch: what is tried again) and error.go.

// outcomeOf the error with which a batch ended. attempts: Writer.MaxAttempts.
func outcomeOf(err error, attempts int) kit.Outcome {
	var code kafka.Error
	if errors.As(err, &code) {
		return codes.Outcome(int16(code), attempts != 1)
	}
	return kit.Info
}

// errorText is the text behind an error id.
func errorText(err error) string {
	var code kafka.Error
	if errors.As(err, &code) {
		return fmt.Sprintf("Error %d: %s", int(code), code.Title())
	}
	if errors.Is(err, io.ErrClosedPipe) {
		return kit.ErrorText("ErrClosedPipe", err)
	}
	name := strings.TrimPrefix(reflect.TypeOf(err).String(), "*")
	return kit.ErrorText(strings.TrimPrefix(name, "kafka."), err)
}
