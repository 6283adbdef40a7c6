//go:build next_waits

package main

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const nextWaits = true

// next message, within so long where that is above 0.
func next(messages jetstream.MessagesContext, within time.Duration) (jetstream.Msg, error) {
	if within > 0 {
		return messages.Next(jetstream.NextMaxWait(within))
	}
	return messages.Next()
}
