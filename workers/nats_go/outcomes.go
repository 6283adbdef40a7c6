package main

import (
	"errors"

	"brokerstorm/kit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Outcome of a send by the error of nats.go: fail (certainly not stored) or info (unknown), in doubt info. Sources:
// jetstream/publish.go (what is looked at before anything is published; what a retry is for), nats.go (publish), and
// the server's stream.go and jetstream_cluster.go (processJetStreamMsg, processClusteredInboundMsg: what is refused
// before it is proposed) with its errors.json. An unanswered publish is info.
var notSent = []error{
	nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrInvalidMsg, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed,
	nats.ErrHeadersNotSupported, jetstream.ErrTooManyStalledMsgs, jetstream.ErrAsyncPublishReplySubjectSet,
	jetstream.ErrInvalidOption,
	// A server says so of a publish that it had nobody to hand to; each of the client's retries ended like that.
	jetstream.ErrNoStreamResponse,
}

// err_code of answers with which a stream refuses a message before it has it.
var refusals = map[jetstream.ErrorCode]bool{
	10023: true, // insufficient resources
	10047: true, // insufficient storage resources available
	10054: true, // message size exceeds maximum allowed
	10060: true, // expected stream does not match
	10070: true, // wrong last msg ID
	10071: true, // wrong last sequence
	10097: true, // header size exceeds maximum allowed of 64k
	10109: true, // stream sealed
}

func outcomeOf(err error) kit.Outcome {
	for _, known := range notSent {
		if errors.Is(err, known) {
			return kit.Fail
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && refusals[api.ErrorCode] {
		return kit.Fail
	}
	return kit.Info
}
