//go:build !next_waits

package main

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const nextWaits = false

func next(messages jetstream.MessagesContext, _ time.Duration) (jetstream.Msg, error) {
	return messages.Next()
}
