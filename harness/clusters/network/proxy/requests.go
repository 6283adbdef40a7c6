package main

import (
	"encoding/binary"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// kindOf reads the kind of a request from its first bytes, by the name of the protocol.
var kindOf = map[string]func(head []byte) int{
	// https://kafka.apache.org/protocol#protocol_messages: size, then the API key.
	"kafka": func(head []byte) int { return int(binary.BigEndian.Uint16(head[4:])) },
	// PulsarApi.proto: size, size of the command, and the command, whose first field is its type.
	"pulsar": func(head []byte) int { return int(head[9]) },
}

// What kindOf reads at most; no request of these protocols is shorter.
const headBytes = 10

// toxiproxy loses bytes of longer chunks.
const longestBytes = 32 << 10

// begins marks a chunk with which a request begins, as the time zone of its time stamp: a chunk has nothing
// else to say it by, and toxics in between keep it.
var begins = time.FixedZone("a request begins", 0)

// Requests cuts the bytes of each connection where requests begin, and marks those chunks for a toxic behind
// it. It is there from a connection's first byte on, or it would not know.
type Requests struct{}

type position struct {
	// Of a request that has begun, the bytes still to come.
	left int
	// The first bytes of the next one, too few to go on yet.
	head []byte
}

func (t *Requests) NewState() interface{} { return new(position) }

func (t *Requests) Pipe(stub *toxics.ToxicStub) {
	at := stub.State.(*position)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				if len(at.head) > 0 {
					stub.Output <- &stream.StreamChunk{Data: at.head, Timestamp: time.Now()}
				}
				stub.Close()
				return
			}
			at.cut(chunk, stub.Output)
		}
	}
}

func (at *position) cut(chunk *stream.StreamChunk, output chan<- *stream.StreamChunk) {
	data := append(at.head, chunk.Data...)
	for len(data) > 0 {
		stamp := chunk.Timestamp
		if at.left == 0 {
			if len(data) < headBytes {
				break
			}
			at.left = max(int(binary.BigEndian.Uint32(data))+4, headBytes)
			stamp = stamp.In(begins)
		}
		n := min(at.left, len(data), longestBytes)
		output <- &stream.StreamChunk{Data: data[:n:n], Timestamp: stamp}
		at.left, data = at.left-n, data[n:]
	}
	at.head = data
}

func init() { toxics.Register("requests", new(Requests)) }
