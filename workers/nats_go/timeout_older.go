//go:build !async_timeout

package main

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const asyncTimeouts = false

func withAsyncTimeout(time.Duration) jetstream.JetStreamOpt { return nil }
