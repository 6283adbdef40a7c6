//go:build async_timeout

package main

import "github.com/nats-io/nats.go/jetstream"

const asyncTimeouts = true

var withAsyncTimeout = jetstream.WithPublishAsyncTimeout
