package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

const (
	// An idempotent producer asks a coordinator for its id in the constructor, and sarama's fails where librdkafka's
	// and Java's wait: the first one on a fresh broker is told COORDINATOR_LOAD_IN_PROGRESS. So creation, and only
	// creation, is tried again for this long, before `ready`.
	createFor = 20 * time.Second
	createGap = 250 * time.Millisecond
)

// coordinator errors that pass by themselves: LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR.
var passing = map[int16]bool{14: true, 15: true, 16: true}

// retriableErrors counts answers that sarama answers with a retry of its own, by the line that it logs for each.
var retriableErrors atomic.Int64

// clientLog is stderr, kept by the harness.
type clientLog struct{}

func (c clientLog) Write(line []byte) (int, error) {
	if text := string(line); strings.Contains(text, "state change to [retrying] on") {
		retriableErrors.Add(1)
	}
	return os.Stderr.Write(line)
}

// calls of sarama, as a scenario names them.
const (
	async = "async" // AsyncProducer: into its channel, outcomes from two others
	sync1 = "sync"  // SyncProducer.SendMessage, one at a time
	batch = "batch" // SyncProducer.SendMessages, n at a time
)

type producer struct {
	loop   *kit.OpenLoop
	report *kit.Reporter
	config *sarama.Config
	size   int
	wait   bool // when the client's channel is full, as a patient application
	async  sarama.AsyncProducer
	sync   sarama.SyncProducer
	client sarama.Client
	own    []*transactional // with transactions: one for each goroutine that sends, and none of the two above

	headers []sarama.RecordHeader
}

func produce(session *kit.Session) error {
	p, err := connected(session)
	if err != nil {
		return err
	}
	return p.loop.Run(p)
}

// connected is a producer that knows its topics.
func connected(session *kit.Session) (*producer, error) {
	spec := session.Spec
	sarama.Logger = log.New(clientLog{}, "[sarama] ", log.LstdFlags|log.Lmicroseconds)
	loop, err := kit.NewOpenLoop(session)
	if err != nil {
		return nil, err
	}
	config, err := configOf(session)
	if err != nil {
		return nil, err
	}
	p := &producer{loop: loop, report: session.Report, config: config, size: 1, wait: spec.Producer.WhenFull != "fail"}
	for _, header := range spec.Producer.Headers {
		p.headers = append(p.headers, sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
	}
	config.Producer.Return.Successes, config.Producer.Return.Errors = true, true
	if loop.Lanes()[0].Partition >= 0 { // a producer has lanes of one mode
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	return p, p.connect(spec)
}

// connect makes the client, learns the topics and makes the producer.
func (p *producer) connect(spec *kit.Spec) error {
	var err error
	if p.client, err = sarama.NewClient(strings.Split(spec.Bootstrap, ","), p.config); err != nil {
		return refused("refused to start", err)
	}
	for _, lane := range p.loop.Lanes() {
		if _, err = p.client.Partitions(lane.Topic); err != nil {
			return refused(fmt.Sprintf("knows no topic %s", lane.Topic), err)
		}
	}
	if spec.Producer.Transactions != nil {
		return p.connectTransactional(strings.Split(spec.Bootstrap, ","))
	}
	calls := spec.Producer.Calls
	switch calls {
	case "", async:
		return p.connectAsync()
	case batch:
		if p.size = spec.Producer.Batch; p.size < 1 {
			return kit.Failuref("", "calls: batch needs batch, the messages of a call, at least 1; got %d", p.size)
		}
	case sync1:
	default:
		return kit.Failuref("", "calls %q: sarama has %s, %s, %s", calls, async, sync1, batch)
	}
	return created(func() (err error) {
		p.sync, err = sarama.NewSyncProducerFromClient(p.client)
		return err
	})
}

func (p *producer) connectAsync() error {
	err := created(func() (err error) {
		p.async, err = sarama.NewAsyncProducerFromClient(p.client)
		return err
	})
	if err != nil {
		return err
	}
	p.answersOf(p.async)
	return nil
}

// answersOf an AsyncProducer come from two channels.
func (p *producer) answersOf(async sarama.AsyncProducer) {
	go func() {
		for message := range async.Successes() {
			p.stored(message)
		}
	}()
	go func() {
		for failed := range async.Errors() {
			p.failed(failed.Msg, failed.Err)
		}
	}()
}

// created tries a constructor again while the coordinator is not there yet.
func created(construct func() error) error {
	for giveUp := time.Now().Add(createFor); ; time.Sleep(createGap) {
		err := construct()
		if err == nil {
			return nil
		}
		var code sarama.KError
		if !errors.As(err, &code) || !passing[int16(code)] || time.Now().After(giveUp) {
			return refused("refused to make a producer", err)
		}
	}
}

func refused(what string, err error) error {
	hint := "options are paths in sarama.Config; see also the client's log (stderr.log)"
	return kit.Failuref(hint, "sarama %s: %v", what, err)
}

func (p *producer) CallSize() int { return p.size }

func (p *producer) Exposure() map[string]any {
	return map[string]any{"retriable_errors": retriableErrors.Load()}
}

// Send calls sarama once.
func (p *producer) Send(messages []*kit.Message) {
	made := make([]*sarama.ProducerMessage, len(messages))
	for i, message := range messages {
		made[i] = p.messageOf(message)
	}
	switch {
	case p.own != nil:
		p.sendAsync(messages[0].Client().(*transactional).async, made[0])
	case p.async != nil:
		p.sendAsync(p.async, made[0])
	case p.size > 1:
		messages[0].Blocking(func() { p.answered(made, p.sync.SendMessages(made)) })
	default:
		messages[0].Blocking(func() {
			if _, _, err := p.sync.SendMessage(made[0]); err != nil {
				p.failed(made[0], err)
			} else {
				p.stored(made[0])
			}
		})
	}
}

func (p *producer) messageOf(message *kit.Message) *sarama.ProducerMessage {
	value, identity := message.Parts()
	made := &sarama.ProducerMessage{
		Headers: p.headers, Topic: message.Lane.Topic, Value: sarama.ByteEncoder(value), Metadata: message,
		Partition: message.Lane.Partition,
		Offset:    -1, // stays when the broker says that it has the message already
	}
	if identity != nil {
		header := sarama.RecordHeader{Key: []byte(kit.IdentityHeader), Value: identity}
		made.Headers = append(p.headers[:len(p.headers):len(p.headers)], header)
		for _, each := range message.MadeHeaders() {
			more := sarama.RecordHeader{Key: []byte(each[0]), Value: []byte(each[1])}
			made.Headers = append(made.Headers, more)
		}
	}
	if message.Lane.Key != nil {
		made.Key = sarama.ByteEncoder(message.Lane.Key)
	}
	return made
}

// sent is the message of the schedule that sarama's stands for.
func sent(message *sarama.ProducerMessage) *kit.Message { return message.Metadata.(*kit.Message) }

func (p *producer) sendAsync(async sarama.AsyncProducer, message *sarama.ProducerMessage) {
	select {
	case async.Input() <- message:
	default:
		if !p.wait {
			sent(message).Failed(kit.Fail, "_QUEUE_FULL: the producer's channel is full")
			return
		}
		sent(message).Blocking(func() { async.Input() <- message })
	}
}

// answered: SendMessages returned. What its error does not list was stored.
func (p *producer) answered(messages []*sarama.ProducerMessage, err error) {
	var each sarama.ProducerErrors
	wrong := map[*sarama.ProducerMessage]error{}
	if errors.As(err, &each) {
		for _, failed := range each {
			wrong[failed.Msg] = failed.Err
		}
	}
	for _, message := range messages {
		switch {
		case wrong[message] != nil:
			p.failed(message, wrong[message])
		case err != nil && len(each) == 0: // not by message: nobody knows
			sent(message).Failed(kit.Info, errorText(err))
		default:
			p.stored(message)
		}
	}
}

func (p *producer) stored(message *sarama.ProducerMessage) {
	position := message.Offset
	if p.config.Producer.RequiredAcks == sarama.NoResponse {
		position = -1
	}
	sent(message).StoredIn(message.Partition, position)
}

func (p *producer) failed(message *sarama.ProducerMessage, err error) {
	noteDeath(p.report, err)
	sent(message).Failed(outcomeOf(err, p.config.Producer.Retry.Max), errorText(err))
}

// Close ends the producer and its connections.
func (p *producer) Close() {
	for _, own := range p.own {
		own.close()
	}
	if p.async != nil {
		p.async.AsyncClose()
	} else if p.sync != nil {
		_ = p.sync.Close()
	}
	_ = p.client.Close()
}
