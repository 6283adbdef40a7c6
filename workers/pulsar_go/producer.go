package main

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	"github.com/apache/pulsar-client-go/pulsar"
)

// calls of the client, as a scenario names them.
const (
	async = "async" // SendAsync
	sync1 = "sync"  // Send
)

const (
	// The client's default of OperationTimeout; it may ask for longer than that.
	operationTimeout = 30 * time.Second
	patience         = 5 * time.Second
)

type producer struct {
	session    *kit.Session
	streams    streams
	sync       bool
	batches    bool
	chunks     bool
	headers    map[string]string
	client     pulsar.Client
	byAddress  map[string]pulsar.Producer
	byLane     map[*kit.Lane]pulsar.Producer
	reconnects atomic.Int64
}

func produce(session *kit.Session) error {
	loop, err := kit.NewOpenLoop(session)
	if err != nil {
		return err
	}
	asked := session.Spec.Producer
	p := &producer{
		session: session, streams: streamsOf(session.Spec), byAddress: map[string]pulsar.Producer{},
		byLane: map[*kit.Lane]pulsar.Producer{},
	}
	switch asked.Calls {
	case "", async:
	case sync1:
		p.sync = true
	default:
		return kit.Failuref("", "calls %q: pulsar-client-go has %s, %s", asked.Calls, async, sync1)
	}
	for _, header := range asked.Headers {
		if p.headers == nil {
			p.headers = map[string]string{}
		}
		p.headers[header[0]] = header[1]
	}
	if err = p.connect(loop.Lanes()); err != nil {
		return err
	}
	return loop.Run(p)
}

func (p *producer) connect(lanes []kit.Lane) error {
	spec := p.session.Spec
	options, err := spec.Options()
	if err != nil {
		return err
	}
	token := take(options, "Auth.Token")
	config := &producing{}
	config.Producer.DisableBlockIfQueueFull = spec.Producer.WhenFull == "fail"
	if err = structOptions.Set(config, options); err != nil {
		return err
	}
	p.batches, p.chunks = !config.Producer.DisableBatching, config.Producer.EnableChunking
	if err = p.session.OptionsTaken(); err != nil {
		return err
	}
	if p.client, err = newClient(p.session, config.Client, token, p.seen); err != nil {
		return err
	}
	limit := limitOf(config.Client)
	for i := range lanes {
		lane := &lanes[i]
		at := address(spec, lane)
		if p.byAddress[at] == nil {
			one := config.Producer
			one.Topic = at
			made, err := within(limit, "a producer of "+at, func() (pulsar.Producer, error) {
				return p.client.CreateProducer(one)
			})
			if err != nil {
				return err
			}
			p.byAddress[at] = made
		}
		p.byLane[lane] = p.byAddress[at]
	}
	return nil
}

func limitOf(options pulsar.ClientOptions) time.Duration {
	if options.OperationTimeout > 0 {
		return options.OperationTimeout + patience
	}
	return operationTimeout + patience
}

// seen is a line of the client's log.
func (p *producer) seen(line string) {
	if strings.HasPrefix(line, "Reconnected producer to broker") {
		p.reconnects.Add(1)
		p.session.Report.Event("disconnect", "a producer lost its connection and has another one", nil)
	}
}

func (p *producer) CallSize() int { return 1 }

func (p *producer) Exposure() map[string]any {
	return map[string]any{"reconnects": p.reconnects.Load()}
}

// Send calls the client once.
func (p *producer) Send(messages []*kit.Message) {
	message := messages[0]
	to := p.byLane[message.Lane]
	value, identity := message.Parts()
	made := &pulsar.ProducerMessage{Payload: value, Key: string(message.Lane.Key), Properties: p.properties(identity)}
	for _, each := range message.MadeHeaders() {
		made.Properties[each[0]] = each[1] // a map of its own: it has an identity
	}
	if p.sync {
		message.Blocking(func() {
			id, err := to.Send(context.Background(), made)
			p.answered(message, to, id, err, true)
		})
		return
	}
	var returned atomic.Bool
	to.SendAsync(context.Background(), made, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		p.answered(message, to, id, err, !returned.Load())
	})
	returned.Store(true)
}

// properties of a message: the same for all, and the identity of one whose value does not have it.
func (p *producer) properties(identity []byte) map[string]string {
	if identity == nil {
		return p.headers
	}
	own := make(map[string]string, len(p.headers)+1)
	maps.Copy(own, p.headers)
	own[kit.IdentityHeader] = kit.IdentityText(identity)
	return own
}

// answered, on a goroutine of the client's, or within the call. inCall is not known of an answer to Send.
func (p *producer) answered(message *kit.Message, by pulsar.Producer, id pulsar.MessageID, err error, inCall bool) {
	if err != nil {
		if why, died := diedOf(err); died {
			p.session.Report.ClientDied(errorText(err), why)
		}
		message.Failed(outcomeOf(err, p.chunks, inCall && !p.sync), errorText(err))
		return
	}
	place := p.streams.place(by.Topic(), id)
	if !p.batches { // it numbers the messages of an entry from 0 even where there is no batch
		place.Batch = -1
	}
	message.StoredAt(place)
}

// Close ends the producers and the client.
func (p *producer) Close() {
	for _, each := range p.byAddress {
		each.Close()
	}
	p.client.Close()
}
