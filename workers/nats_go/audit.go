package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"brokerstorm/kit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type auditing struct {
	Connection nats.Options
	TLS        securing
}

// logReader reads whole streams by ordered consumers, one after the other.
type logReader struct {
	*connection
	streams streams
}

func audit(session *kit.Session) error {
	options, err := session.Spec.Options()
	if err != nil {
		return err
	}
	config, r := &auditing{Connection: defaults()}, &logReader{streams: streamsOf(session.Spec)}
	if err = structOptions.Set(config, options); err != nil {
		return err
	}
	if r.connection, err = connect(session, config.Connection, config.TLS, nil, nil); err != nil {
		return err
	}
	return kit.RunAudit(session, r, errorText)
}

// Bounds as the leader of the stream tells them. That there is none only the leader of the meta group says.
func (r *logReader) Bounds(stream string) (int64, int64, error) {
	within, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	found, err := r.js.Stream(within, r.streams.their(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, 0, fmt.Errorf("%w: %v", kit.ErrGone, err)
	}
	if err != nil {
		return 0, 0, err
	}
	state := found.CachedInfo().State
	begin := int64(state.FirstSeq)
	if begin <= 1 { // sequences are counted from 1: nothing was removed
		begin = 0
	}
	return begin, int64(state.LastSeq) + 1, nil
}

func (r *logReader) Read(leave context.Context, stream string, begin, end int64, row func(kit.LogRow) bool) error {
	reader, err := r.js.OrderedConsumer(leave, r.streams.their(stream), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(begin, 1)),
	})
	if err != nil {
		return err
	}
	// A pull that comes before the consumer listens is lost; the client notices by the heartbeats that do not come.
	messages, err := reader.Messages(
		jetstream.PullMaxMessages(5000), jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second),
	)
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(leave, messages.Stop)()
	for {
		message, err := messages.Next()
		if leave.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		about, err := message.Metadata()
		if err != nil {
			return err
		}
		found := kit.LogRow{
			Position: int64(about.Sequence.Stream), BrokerTimeMs: about.Timestamp.UnixNano() / int64(time.Millisecond),
			Value: message.Data(),
		}
		// Behind the last one there may be positions without a message.
		if !row(found) || about.NumPending == 0 {
			return nil
		}
	}
}

func (r *logReader) Close() { r.nats.Close() }
