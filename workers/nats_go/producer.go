package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"time"

	"brokerstorm/kit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// calls of nats.go, as a scenario names them.
const (
	async = "async" // PublishMsgAsync
	sync1 = "sync"  // PublishMsg
)

// A client whose queue is full lets the caller wait so long, where the application wants to.
const forever = 24 * time.Hour

// producing is what an application chooses; the names of options are paths in it.
type producing struct {
	Connection nats.Options
	Publish    publishing
	TLS        securing
}

// publishing has options of calls. Timeout: of PublishMsg, 0 is the client's own (5 s); AsyncTimeout: of
// PublishMsgAsync, 0 = none, and what is not answered stays open until the connection is made again.
type publishing struct {
	Timeout, AsyncTimeout, RetryWait time.Duration
	RetryAttempts, AsyncMaxPending   int
	MsgID                            bool
}

type producer struct {
	*connection
	asked   publishing
	sync    bool
	waits   bool
	streams streams
	spec    *kit.Spec
	headers nats.Header
}

func produce(session *kit.Session) error {
	loop, err := kit.NewOpenLoop(session)
	if err != nil {
		return err
	}
	part := session.Spec.Producer
	p := &producer{spec: session.Spec, streams: streamsOf(session.Spec), waits: part.WhenFull != "fail"}
	switch part.Calls {
	case "", async:
	case sync1:
		p.sync = true
	default:
		return kit.Failuref("", "calls %q: nats.go has %s, %s", part.Calls, async, sync1)
	}
	for _, header := range part.Headers {
		if p.headers == nil {
			p.headers = nats.Header{}
		}
		p.headers[header[0]] = []string{header[1]}
	}
	options, err := session.Spec.Options()
	if err != nil {
		return err
	}
	config := &producing{Connection: defaults()}
	if err = structOptions.Set(config, options); err != nil {
		return err
	}
	p.asked = config.Publish
	var more []jetstream.JetStreamOpt
	if p.asked.AsyncMaxPending > 0 {
		more = append(more, jetstream.WithPublishAsyncMaxPending(p.asked.AsyncMaxPending))
	}
	if p.asked.AsyncTimeout > 0 && !asyncTimeouts {
		return kit.Failuref("leave it out", "Publish.AsyncTimeout: PublishMsgAsync of this nats.go has no limit")
	} else if p.asked.AsyncTimeout > 0 {
		more = append(more, withAsyncTimeout(p.asked.AsyncTimeout))
	}
	if p.connection, err = connect(session, config.Connection, config.TLS, more, nil); err != nil {
		return err
	}
	for _, lane := range loop.Lanes() {
		if err = p.knows(lane); err != nil {
			return err
		}
	}
	return loop.Run(p)
}

// knows asks for the streams of a lane's topic.
func (p *producer) knows(lane kit.Lane) error {
	within, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	if _, err := p.js.Stream(within, p.subject(&lane)); err != nil {
		return refused("knows no stream "+p.subject(&lane), err)
	}
	return nil
}

// subject that a lane is published on, which is the name of its stream. The client has no partitioner: an application
// does what subject mapping of the servers would, by a hash of the key.
func (p *producer) subject(lane *kit.Lane) string {
	topic, partition := p.spec.Topics[lane.Topic], int(lane.Partition)
	if lane.Key != nil {
		partition = int(crc32.ChecksumIEEE(lane.Key) % uint32(topic.Partitions))
	} else if partition < 0 {
		partition = 0
	}
	return fmt.Sprintf("%s-%d", topic.Address, partition)
}

func (p *producer) CallSize() int { return 1 }

func (p *producer) Exposure() map[string]any {
	return map[string]any{"reconnects": p.reconnects.Load()}
}

// Send calls the client once.
func (p *producer) Send(messages []*kit.Message) {
	message := messages[0]
	value, identity := message.Parts()
	made := &nats.Msg{Subject: p.subject(message.Lane), Data: value, Header: nats.Header{}}
	for name, values := range p.headers {
		made.Header[name] = values
	}
	if identity != nil {
		made.Header[kit.IdentityHeader] = []string{kit.IdentityText(identity)}
		for _, each := range message.MadeHeaders() {
			made.Header[each[0]] = []string{each[1]}
		}
	}
	options := []jetstream.PublishOpt{
		jetstream.WithRetryAttempts(p.asked.RetryAttempts), jetstream.WithRetryWait(p.asked.RetryWait),
	}
	if p.asked.MsgID {
		options = append(options, jetstream.WithMsgID(message.ID()))
	}
	if p.sync {
		message.Blocking(func() { p.publish(message, made, options) })
		return
	}
	p.publishAsync(message, made, options)
}

func (p *producer) publish(message *kit.Message, made *nats.Msg, options []jetstream.PublishOpt) {
	within, cancel := context.Background(), func() {}
	if p.asked.Timeout > 0 {
		within, cancel = context.WithTimeout(within, p.asked.Timeout)
	}
	defer cancel()
	ack, err := p.js.PublishMsg(within, made, options...)
	p.answered(message, ack, err)
}

func (p *producer) publishAsync(message *kit.Message, made *nats.Msg, options []jetstream.PublishOpt) {
	stall := forever
	if !p.waits {
		stall = time.Millisecond
	}
	future, err := p.js.PublishMsgAsync(made, append(options, jetstream.WithStallWait(stall))...)
	if err != nil {
		p.answered(message, nil, err)
		return
	}
	go func() {
		select {
		case ack := <-future.Ok():
			p.answered(message, ack, nil)
		case err := <-future.Err():
			p.answered(message, nil, err)
		}
	}()
}

func (p *producer) answered(message *kit.Message, ack *jetstream.PubAck, err error) {
	if err != nil {
		message.Failed(outcomeOf(err), errorText(err))
		return
	}
	position := int64(ack.Sequence)
	if position == 0 {
		position = -1 // a repeat of what has no place yet (nats-server#5827); sequences begin at 1
	}
	message.Stored(p.streams.our(ack.Stream), position)
}

// Close the connection.
func (p *producer) Close() { p.nats.Close() }
