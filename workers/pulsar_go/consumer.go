package main

import (
	"context"
	"strings"
	"sync"

	"brokerstorm/kit"
	"github.com/apache/pulsar-client-go/pulsar"
)

// member of a subscription. What was handed over is settled on the goroutine that reads; cumulatively by the clock.
type member struct {
	session  *kit.Session
	journal  *kit.Journal
	streams  streams
	client   pulsar.Client
	consumer pulsar.Consumer

	lock  sync.Mutex
	lasts map[string]pulsar.Message // newest message of a stream that no cumulative acknowledgement covers
}

func consume(session *kit.Session) error {
	spec := session.Spec
	settle := spec.Consumer.Settle
	switch settle {
	case "", "auto", "ack", "cumulative", "none":
	default:
		return kit.Failuref("", "settle %q: pulsar-client-go has auto, ack, cumulative, none", settle)
	}
	options, err := spec.Options()
	if err != nil {
		return err
	}
	token := take(options, "Auth.Token")
	config := &consuming{}
	if err = structOptions.Set(config, options); err != nil {
		return err
	}
	asked := &config.Consumer
	asked.SubscriptionName = spec.Consumer.Group
	for _, topic := range spec.Consumer.Topics {
		asked.Topics = append(asked.Topics, spec.Topics[topic].Address)
	}
	if len(asked.Topics) == 1 { // several of them have another consumer in the client
		asked.Topic, asked.Topics = asked.Topics[0], nil
	}
	if err = session.OptionsTaken(); err != nil {
		return err
	}
	m := &member{session: session, streams: streamsOf(spec), lasts: map[string]pulsar.Message{}}
	m.journal = kit.NewJournal(session)
	if m.client, err = newClient(session, config.Client, token, m.seen); err != nil {
		return err
	}
	m.consumer, err = within(limitOf(config.Client), "a subscription", func() (pulsar.Consumer, error) {
		return m.client.Subscribe(*asked)
	})
	if err != nil {
		return err
	}
	m.journal.Connected("subscribed as " + spec.Consumer.Group)
	return kit.RunMember(session, m.journal, m, errorText)
}

// seen is a line of the client's log. A connection that ends, or is there again, begins an epoch.
func (m *member) seen(line string) {
	switch {
	case strings.HasPrefix(line, "Broker notification of Closed consumer"),
		strings.HasPrefix(line, "Error reading from connection"):
		m.journal.Connected("the consumer lost a connection")
	case strings.HasPrefix(line, "Reconnected consumer to broker"):
		m.journal.Exposed("reconnects")
		m.journal.Connected("the consumer has another connection")
	}
}

// Read messages until the context is done.
func (m *member) Read(leave context.Context) error {
	for {
		message, err := m.consumer.Receive(leave)
		if leave.Err() != nil {
			return nil
		}
		if err != nil {
			if why, died := diedOf(err); died {
				m.session.Report.ClientDied(errorText(err), why)
			}
			return err
		}
		m.handOver(message)
	}
}

// payloadOf a message: its value, or a body with the identity of its properties.
func payloadOf(message pulsar.Message) []byte {
	if value := message.Payload(); kit.IsWhole(value) {
		return value
	}
	return kit.JoinedText(message.Payload(), message.Properties()[kit.IdentityHeader])
}

func (m *member) handOver(message pulsar.Message) {
	asked := m.session.Spec.Consumer
	place := m.streams.place(message.Topic(), message.ID())
	number := m.journal.Handed(place, message.RedeliveryCount(), 0, payloadOf(message))
	asked.Work()
	switch {
	case asked.NackEvery > 0 && number%int64(asked.NackEvery) == 0:
		m.journal.Note(kit.Nack, place, 0)
		m.consumer.Nack(message)
	case asked.Settle == "cumulative":
		m.lock.Lock()
		m.lasts[place.Stream] = message
		m.lock.Unlock()
	case asked.Settle != "none":
		m.journal.Note(kit.AckCalled, place, 0)
		m.told(place, m.consumer.Ack(message))
	}
}

func (m *member) told(place kit.Place, err error) {
	if err != nil {
		m.session.Report.Error("ack: " + errorText(err))
		return
	}
	m.journal.Note(kit.AckConfirmed, place, 0)
}

// Commit acknowledges, cumulatively, what was handed over.
func (m *member) Commit() {
	m.lock.Lock()
	lasts := m.lasts
	m.lasts = map[string]pulsar.Message{}
	m.lock.Unlock()
	for _, message := range lasts {
		place := m.streams.place(message.Topic(), message.ID())
		m.journal.Note(kit.AckCalled, place, 0)
		m.told(place, m.consumer.AckCumulative(message))
	}
}

// Close settles what is left, and closes the client.
func (m *member) Close() {
	m.Commit()
	m.consumer.Close()
	m.client.Close()
}
