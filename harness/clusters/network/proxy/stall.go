package main

import (
	"encoding/json"
	"math/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Stall holds a connection back where a request of some kinds begins. What was sent before it goes on; it and
// all behind it wait, and are delivered although the client has given up meanwhile. Other connections pass.
type Stall struct {
	Protocol string  `json:"protocol"`
	Kinds    []int   `json:"kinds"`
	Share    float64 `json:"share"`   // of those requests, 0 to 1
	HoldMs   int64   `json:"hold_ms"` // how long each is held
	Seen     counter `json:"seen"`    // requests of these kinds
	Held     counter `json:"held"`    // those of them that were held
}

// A counter of many connections that the API may read at any time.
type counter struct{ value atomic.Int64 }

func (c *counter) MarshalJSON() ([]byte, error) { return json.Marshal(c.value.Load()) }

func (c *counter) UnmarshalJSON([]byte) error { return nil }

func (t *Stall) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			begun := chunk.Timestamp.Location() == begins
			interrupted := begun && t.isHeld(chunk.Data) && t.hold(stub)
			stub.Output <- chunk
			if interrupted {
				return
			}
		}
	}
}

func (t *Stall) isHeld(head []byte) bool {
	kind, ok := kindOf[t.Protocol]
	if !ok || !slices.Contains(t.Kinds, kind(head)) {
		return false
	}
	t.Seen.value.Add(1)
	if rand.Float64() >= t.Share {
		return false
	}
	t.Held.value.Add(1)
	return true
}

// hold waits; true when the toxic is taken away meanwhile.
func (t *Stall) hold(stub *toxics.ToxicStub) bool {
	select {
	case <-time.After(time.Duration(t.HoldMs) * time.Millisecond):
		return false
	case <-stub.Interrupt:
		return true
	}
}

func init() { toxics.Register("stall", new(Stall)) }
