package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"brokerstorm/kit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// kinds of consumers.
const (
	durable = "durable" // kept by the servers under the name of the group, which its members share
	ordered = "ordered" // of this client alone; it acknowledges nothing
)

// consuming is what an application chooses; the names of options are paths in it. Kind: durable or ordered. Confirm:
// DoubleAck, which waits for the servers' answer, in place of Ack.
type consuming struct {
	Connection nats.Options
	Consumer   jetstream.ConsumerConfig
	Ordered    jetstream.OrderedConsumerConfig
	Kind       string
	Confirm    bool
	Pull       pulling
	TLS        securing
}

// pulling has options of Messages; 0 is the client's default. A pull that the servers lost is noticed after two
// heartbeats that did not come, by default after 30 s. NextMaxWait: of Next, which is then called again.
type pulling struct {
	MaxMessages                    int
	Expiry, Heartbeat, NextMaxWait time.Duration
}

type member struct {
	*connection
	session *kit.Session
	journal *kit.Journal
	streams streams
	asked   *consuming
	settle  string
	readers []jetstream.Consumer
}

func consume(session *kit.Session) error {
	spec := session.Spec
	options, err := spec.Options()
	if err != nil {
		return err
	}
	m := &member{session: session, streams: streamsOf(spec), settle: spec.Consumer.Settle}
	m.asked = &consuming{Connection: defaults(), Kind: durable}
	if err = structOptions.Set(m.asked, options); err != nil {
		return err
	}
	switch {
	case m.asked.Kind != durable && m.asked.Kind != ordered:
		return kit.Failuref(structOptions.Hint, "Kind %q: must be %s or %s", m.asked.Kind, durable, ordered)
	case m.asked.Pull.NextMaxWait > 0 && !nextWaits:
		return kit.Failuref("leave it out", "Pull.NextMaxWait: Next of this nats.go has no limit")
	case m.asked.Kind == ordered && m.settle != "none":
		return kit.Failuref("settle: none", "an ordered consumer acknowledges nothing, settle is %q", m.settle)
	}
	m.journal = kit.NewJournal(session)
	seen := func(text string) { m.journal.Connected(text) }
	if m.connection, err = connect(session, m.asked.Connection, m.asked.TLS, nil, seen); err != nil {
		return err
	}
	for _, topic := range spec.Consumer.Topics {
		for partition := 0; partition < spec.Topics[topic].Partitions; partition++ {
			reader, err := m.reader(m.streams.their(fmt.Sprintf("%s-%d", topic, partition)))
			if err != nil {
				return refused(fmt.Sprintf("has no consumer of %s-%d", topic, partition), err)
			}
			m.readers = append(m.readers, reader)
		}
	}
	m.journal.Connected(fmt.Sprintf("%s consumers of %d streams as %s", m.asked.Kind, len(m.readers), spec.Consumer.Group))
	return kit.RunMember(session, m.journal, m, errorText)
}

func (m *member) reader(stream string) (jetstream.Consumer, error) {
	within, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	if m.asked.Kind == ordered {
		return m.js.OrderedConsumer(within, stream, m.asked.Ordered)
	}
	config := m.asked.Consumer
	config.Durable, config.AckPolicy = m.session.Spec.Consumer.Group, jetstream.AckExplicitPolicy
	return m.js.CreateOrUpdateConsumer(within, stream, config)
}

// Read pulls from all streams, each on a goroutine of its own, as an application with one loop a stream.
func (m *member) Read(leave context.Context) error {
	failed := make(chan error, len(m.readers))
	var all sync.WaitGroup
	for _, reader := range m.readers {
		all.Add(1)
		go func(reader jetstream.Consumer) {
			defer all.Done()
			if err := m.readOne(leave, reader); err != nil {
				failed <- err
			}
		}(reader)
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (m *member) readOne(leave context.Context, reader jetstream.Consumer) error {
	var options []jetstream.PullMessagesOpt
	if m.asked.Pull.MaxMessages > 0 {
		options = append(options, jetstream.PullMaxMessages(m.asked.Pull.MaxMessages))
	}
	if m.asked.Pull.Expiry > 0 {
		options = append(options, jetstream.PullExpiry(m.asked.Pull.Expiry))
	}
	if m.asked.Pull.Heartbeat > 0 {
		options = append(options, jetstream.PullHeartbeat(m.asked.Pull.Heartbeat))
	}
	for leave.Err() == nil {
		messages, err := reader.Messages(options...)
		if err != nil {
			m.session.Report.Error(errorText(err))
			pause(leave)
			continue
		}
		stop := context.AfterFunc(leave, messages.Stop)
		err = m.handOverAll(leave, messages)
		stop()
		messages.Stop()
		if err != nil && leave.Err() == nil && !errors.Is(err, jetstream.ErrNoHeartbeat) {
			m.session.Report.Error(errorText(err))
			pause(leave)
		}
	}
	return nil
}

// pause before an error is met again.
func pause(leave context.Context) {
	select {
	case <-leave.Done():
	case <-time.After(200 * time.Millisecond):
	}
}

func (m *member) handOverAll(leave context.Context, messages jetstream.MessagesContext) error {
	for leave.Err() == nil {
		message, err := next(messages, m.asked.Pull.NextMaxWait)
		if m.asked.Pull.NextMaxWait > 0 && errors.Is(err, nats.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		m.handOver(message)
	}
	return nil
}

func (m *member) handOver(message jetstream.Msg) {
	about, err := message.Metadata()
	if err != nil {
		m.session.Report.Error(errorText(err))
		return
	}
	asked := m.session.Spec.Consumer
	place := kit.Place{Stream: m.streams.our(about.Stream), Position: int64(about.Sequence.Stream)}
	number := m.journal.Handed(place, uint32(about.NumDelivered-1), 0, payloadOf(message.Data(), message.Headers()))
	asked.Work()
	switch {
	case m.settle == "none":
	case asked.NackEvery > 0 && number%int64(asked.NackEvery) == 0:
		m.journal.Note(kit.Nack, place, 0)
		m.told(place, kit.Nack, message.Nak())
	case m.asked.Confirm:
		m.journal.Note(kit.AckCalled, place, 0)
		within, cancel := context.WithTimeout(context.Background(), asking)
		defer cancel()
		m.told(place, kit.AckConfirmed, message.DoubleAck(within))
	default:
		m.journal.Note(kit.AckCalled, place, 0)
		m.told(place, kit.AckConfirmed, message.Ack())
	}
}

// payloadOf a message: its value, or a body with the identity of its headers.
func payloadOf(value []byte, headers nats.Header) []byte {
	if kit.IsWhole(value) {
		return value
	}
	return kit.JoinedText(value, headers.Get(kit.IdentityHeader))
}

// told what an acknowledgement ended with. A refusal has no answer.
func (m *member) told(place kit.Place, event kit.Event, err error) {
	if err != nil {
		m.session.Report.Error("ack: " + errorText(err))
	} else if event == kit.AckConfirmed {
		m.journal.Note(event, place, 0)
	}
}

// Commit: messages are acknowledged one by one, where they are handed over.
func (m *member) Commit() {}

// Close the connection. The servers keep a durable consumer.
func (m *member) Close() { m.nats.Close() }
