package main

import (
	"context"
	"errors"
	"io"
	"log"
	"reflect"
	"strings"
	"sync"
	"time"

	"brokerstorm/kit"
	"github.com/segmentio/kafka-go"
)

// A commit waits for a rebalance that goes on, and for the coordinator.
const commitWithin = 5 * time.Second

// member of a consumer group. A Reader tells nobody which partitions it has, but its logger: with the arguments of two
// lines, which are the same in all versions.
type member struct {
	session *kit.Session
	journal *kit.Journal
	reader  *kafka.Reader
	log     *log.Logger

	lock     sync.Mutex // the Reader logs from goroutines of its own
	assigned []kit.TopicPartition
}

const (
	subscribed = "subscribed to topics and partitions: %+v"
	stopped    = "stopped commit for group "
)

func consume(session *kit.Session) error {
	spec := session.Spec
	options, err := spec.Options()
	if err != nil {
		return err
	}
	m := &member{session: session, log: clientLog()}
	config := &reading{Dialer: kafka.Dialer{ClientID: spec.Name, Timeout: dialTimeout, DualStack: true}}
	if config.Dialer.TLS, config.Dialer.SASLMechanism, err = secure(options); err != nil {
		return err
	}
	if err = structOptions.Set(config, options); err != nil {
		return err
	}
	reader := &config.Reader
	reader.Brokers, reader.Dialer = strings.Split(spec.Bootstrap, ","), &config.Dialer
	reader.GroupID, reader.GroupTopics = spec.Consumer.Group, spec.Consumer.Topics
	reader.Logger, reader.ErrorLogger = kafka.LoggerFunc(m.logged), m.log
	if err = reader.Validate(); err != nil {
		return refused("refused its options", err)
	}
	if err = session.OptionsTaken(); err != nil {
		return err
	}
	if err = answers(config); err != nil {
		return err
	}
	m.journal = kit.NewJournal(session)
	m.reader = kafka.NewReader(*reader)
	return kit.RunMember(session, m.journal, m, errorText)
}

// The time of DefaultDialer.
const dialTimeout = 10 * time.Second

// answers makes sure that a broker is there and lets the client in; a Reader tries for ever.
func answers(config *reading) error {
	var err error
	for _, broker := range config.Reader.Brokers {
		var connection *kafka.Conn
		if connection, err = config.Dialer.DialContext(context.Background(), "tcp", broker); err == nil {
			return connection.Close()
		}
	}
	return refused("refused to start", err)
}

// logged is every line of the Reader but errors.
func (m *member) logged(format string, args ...any) {
	switch {
	case format == subscribed && len(args) == 1:
		m.nowHas(placesOf(args[0]))
	case strings.HasPrefix(format, stopped):
		m.nowHas(nil)
	default:
		return // one a fetch
	}
	m.log.Printf(format, args...)
}

// placesOf the argument of a line of log: a map whose keys the client does not export.
func placesOf(offsets any) []kit.TopicPartition {
	var found []kit.TopicPartition
	for _, key := range reflect.ValueOf(offsets).MapKeys() {
		found = append(found, kit.TopicPartition{
			Topic: key.FieldByName("topic").String(), Partition: int32(key.FieldByName("partition").Int()),
		})
	}
	return found
}

// nowHas journals that a generation of the group began, or (nil) ended.
func (m *member) nowHas(places []kit.TopicPartition) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.assigned) > 0 {
		m.journal.Revoked(m.assigned)
	}
	if m.assigned = places; places != nil {
		m.journal.Assigned(places)
	}
}

// payloadOf a message: its value, or a body with the identity of its header.
func payloadOf(message *kafka.Message) []byte {
	for _, header := range message.Headers {
		if header.Key == kit.IdentityHeader {
			return kit.Joined(message.Value, header.Value)
		}
	}
	return message.Value
}

// Read as a member of the group until the context is done.
func (m *member) Read(leave context.Context) error {
	for {
		message, err := m.reader.FetchMessage(leave)
		if leave.Err() != nil {
			return nil
		}
		if errors.Is(err, io.EOF) { // closed, though nobody closed it
			m.session.Report.ClientDied("EOF: "+err.Error(), "error")
		}
		if err != nil {
			return err
		}
		place := kit.TopicPartition{Topic: message.Topic, Partition: int32(message.Partition)}
		m.journal.Delivered(place, message.Offset, payloadOf(&message))
		m.session.Spec.Consumer.Work()
		m.journal.Processed(place, message.Offset)
	}
}

// Commit what was processed, unless the scenario left it to the clock of the client, which tells no result.
func (m *member) Commit() {
	taken := m.journal.TakeUncommitted()
	if len(taken) == 0 {
		return
	}
	var last []kafka.Message
	for place, position := range taken {
		last = append(last, kafka.Message{Topic: place.Topic, Partition: int(place.Partition), Offset: position - 1})
	}
	within, cancel := context.WithTimeout(context.Background(), commitWithin)
	defer cancel()
	if err := m.reader.CommitMessages(within, last...); err != nil {
		m.session.Report.Error("commit: " + errorText(err))
		return
	}
	for place, position := range taken {
		m.journal.Committed(place, position)
	}
}

// Close leaves the group.
func (m *member) Close() { _ = m.reader.Close() }
