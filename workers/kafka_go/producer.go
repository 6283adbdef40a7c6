package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	"github.com/segmentio/kafka-go"
)

// calls of kafka-go, as a scenario names them.
const (
	async = "async" // WriteMessages of an asynchronous Writer: it never waits, outcomes by Completion
	sync1 = "sync"  // WriteMessages of one message
	batch = "batch" // WriteMessages of n messages
)

// Metadata are asked for so long, unless Writer.ReadTimeout says otherwise.
const readTimeout = 10 * time.Second

type producer struct {
	size    int
	writer  *kafka.Writer
	headers []kafka.Header
	retries atomic.Int64
}

func produce(session *kit.Session) error {
	loop, err := kit.NewOpenLoop(session)
	if err != nil {
		return err
	}
	asked := session.Spec.Producer
	p := &producer{size: 1}
	for _, header := range asked.Headers {
		p.headers = append(p.headers, kafka.Header{Key: header[0], Value: []byte(header[1])})
	}
	config, err := writingOf(session)
	if err != nil {
		return err
	}
	p.writer = &config.Writer
	switch asked.Calls {
	case "", async:
		p.writer.Async = true
	case sync1:
	case batch:
		if p.size = asked.Batch; p.size < 1 {
			return kit.Failuref("", "calls: batch needs batch, the messages of a call, at least 1; got %d", p.size)
		}
	default:
		return kit.Failuref("", "calls %q: kafka-go has %s, %s, %s", asked.Calls, async, sync1, batch)
	}
	if loop.Lanes()[0].Partition >= 0 { // a producer has lanes of one mode
		p.writer.Balancer = kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return int(sent(&message).Lane.Partition)
		})
	}
	if err := knowsTopics(p.writer, loop.Lanes()); err != nil {
		return err
	}
	return loop.Run(p)
}

// writingOf the role's options, over kafka-go's own defaults.
func writingOf(session *kit.Session) (*writing, error) {
	options, err := session.Spec.Options()
	if err != nil {
		return nil, err
	}
	config := &writing{Transport: kafka.Transport{ClientID: session.Spec.Name}}
	if config.Transport.TLS, config.Transport.SASL, err = secure(options); err != nil {
		return nil, err
	}
	if err := structOptions.Set(config, options); err != nil {
		return nil, err
	}
	config.Writer.Addr = kafka.TCP(strings.Split(session.Spec.Bootstrap, ",")...)
	config.Writer.Transport = &config.Transport
	config.Writer.ErrorLogger = clientLog()
	config.Writer.Completion = completed(&config.Writer)
	return config, session.OptionsTaken()
}

// knowsTopics asks the brokers for the topics of the lanes.
func knowsTopics(writer *kafka.Writer, lanes []kit.Lane) error {
	asked := map[string]bool{}
	for _, lane := range lanes {
		asked[lane.Topic] = true
	}
	timeout := writer.ReadTimeout
	if timeout == 0 {
		timeout = readTimeout
	}
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client := &kafka.Client{Addr: writer.Addr, Transport: writer.Transport, Timeout: timeout}
	for topic := range asked {
		answer, err := client.Metadata(within, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return refused("refused to start", err)
		}
		for _, found := range answer.Topics {
			if found.Error != nil {
				return refused("knows no topic "+topic, found.Error)
			}
		}
	}
	return nil
}

func (p *producer) CallSize() int { return p.size }

func (p *producer) Exposure() map[string]any {
	return map[string]any{"retriable_errors": p.retries.Add(p.writer.Stats().Retries)} // those since it was asked last
}

// Send calls kafka-go once. An error of the call itself comes before anything is in a batch; those of batches come to
// Completion, and the synchronous call repeats them.
func (p *producer) Send(messages []*kit.Message) {
	made := make([]kafka.Message, len(messages))
	for i, message := range messages {
		value, identity := message.Parts()
		made[i] = kafka.Message{
			Topic: message.Lane.Topic, Key: message.Lane.Key, Value: value, Headers: p.headers, WriterData: message,
		}
		if identity != nil {
			header := kafka.Header{Key: kit.IdentityHeader, Value: identity}
			made[i].Headers = append(p.headers[:len(p.headers):len(p.headers)], header)
			for _, each := range message.MadeHeaders() {
				made[i].Headers = append(made[i].Headers, kafka.Header{Key: each[0], Value: []byte(each[1])})
			}
		}
	}
	var err error
	call := func() { err = p.writer.WriteMessages(context.Background(), made...) }
	if p.writer.Async {
		call() // it waits for metadata only
	} else {
		messages[0].Blocking(call)
	}
	var each kafka.WriteErrors
	if err == nil || errors.As(err, &each) {
		return
	}
	for _, message := range messages {
		message.Failed(kit.Fail, errorText(err))
	}
}

// sent is the message of the schedule that kafka-go's stands for.
func sent(message *kafka.Message) *kit.Message { return message.WriterData.(*kit.Message) }

// completed is told what became of a batch, which is of one partition.
func completed(writer *kafka.Writer) func([]kafka.Message, error) {
	return func(messages []kafka.Message, err error) {
		for i := range messages {
			message := &messages[i]
			if err != nil {
				sent(message).Failed(outcomeOf(err, writer.MaxAttempts), errorText(err))
				continue
			}
			position := message.Offset
			if writer.RequiredAcks == kafka.RequireNone {
				position = -1
			}
			sent(message).StoredIn(int32(message.Partition), position)
		}
	}
}

// Close ends the producer and its connections.
func (p *producer) Close() {
	_ = p.writer.Close()
	p.writer.Transport.(*kafka.Transport).CloseIdleConnections()
}
