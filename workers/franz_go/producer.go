package main

import (
	"context"
	"strconv"
	"sync/atomic"

	"brokerstorm/kit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// calls of franz-go, as a scenario names them.
const (
	async = "async" // Produce, outcomes by a callback
	sync1 = "sync"  // ProduceSync of one record
	batch = "batch" // ProduceSync of n records
)

// The client's default of MaxBufferedRecords.
const bufferedByDefault = 50_000

type producer struct {
	session *kit.Session
	loop    *kit.OpenLoop
	size    int
	sync    bool
	noAck   bool
	retries bool
	wait    bool // when the client's buffer is full, as a patient application
	records int64
	bytes   int64 // 0 = no limit
	headers []kgo.RecordHeader
	client  *kgo.Client
	own     []*transactional // with transactions: one for each goroutine that sends, and not the one above
	held    atomic.Int64     // sends that wait for room in the client's buffer
	crowded atomic.Int64     // sends that began to, while another did
}

func produce(session *kit.Session) error {
	loop, err := kit.NewOpenLoop(session)
	if err != nil {
		return err
	}
	asked := session.Spec.Producer
	p := &producer{session: session, loop: loop, size: 1, wait: asked.WhenFull != "fail"}
	for _, header := range asked.Headers {
		p.headers = append(p.headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
	}
	if err = p.calls(asked); err != nil {
		return err
	}
	options, err := session.Spec.Options()
	if err != nil {
		return err
	}
	p.told(options)
	if asked.Transactions == nil {
		p.client, err = p.connected(options)
	} else {
		err = p.connectTransactional(options)
	}
	if err != nil {
		return err
	}
	return loop.Run(p)
}

func (p *producer) calls(asked *kit.ProducerSpec) error {
	switch asked.Calls {
	case "", async:
	case sync1:
		p.sync = true
	case batch:
		if p.sync, p.size = true, asked.Batch; p.size < 1 {
			return kit.Failuref("", "calls: batch needs batch, the messages of a call, at least 1; got %d", p.size)
		}
	default:
		return kit.Failuref("", "calls %q: franz-go has %s, %s, %s", asked.Calls, async, sync1, batch)
	}
	return nil
}

// told by options what the client's answers mean, and when its buffer is full. The client refuses what is no number.
func (p *producer) told(options map[string]string) {
	count := func(name string, unset int64) int64 {
		if value, err := strconv.ParseInt(options[name], 10, 64); err == nil {
			return value
		}
		return unset
	}
	p.records, p.bytes = count("MaxBufferedRecords", bufferedByDefault), count("MaxBufferedBytes", 0)
	p.retries = count("RecordRetries", 1) > 0
	chosen, err := words(acks)(options["RequiredAcks"])
	p.noAck = err == nil && chosen == kgo.NoAck()
}

// connected is a client that knows the topics.
func (p *producer) connected(options map[string]string, own ...kgo.Opt) (*kgo.Client, error) {
	lanes := p.loop.Lanes()
	if lanes[0].Partition >= 0 { // a producer has lanes of one mode
		own = append(own, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	taken, err := clientOptions(p.session, options, own...)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(taken...)
	if err != nil {
		return nil, refused("refused to start", err)
	}
	return client, knowsTopics(client, lanes)
}

// knowsTopics asks the brokers for the topics of the lanes.
func knowsTopics(client *kgo.Client, lanes []kit.Lane) error {
	request, known := kmsg.NewPtrMetadataRequest(), map[string]bool{}
	for _, lane := range lanes {
		if !known[lane.Topic] {
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = kmsg.StringPtr(lane.Topic)
			request.Topics = append(request.Topics, topic)
		}
		known[lane.Topic] = true
	}
	answer, err := request.RequestWith(context.Background(), client)
	if err != nil {
		return refused("refused to start", err)
	}
	for _, topic := range answer.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			return refused("knows no topic "+*topic.Topic, err)
		}
	}
	return nil
}

func (p *producer) CallSize() int { return p.size }

func (p *producer) Exposure() map[string]any {
	return map[string]any{"held_together": p.crowded.Load(), "retriable_errors": retriableErrors.Load()}
}

// Send calls the client once.
func (p *producer) Send(messages []*kit.Message) {
	client := p.client
	var own *transactional
	if p.own != nil {
		own = messages[0].Client().(*transactional)
		client = own.client
	}
	made := make([]*kgo.Record, len(messages))
	for i, message := range messages {
		made[i] = p.recordOf(message)
	}
	if p.sync {
		messages[0].Blocking(func() {
			for i, result := range inOrderOf(made, client.ProduceSync(context.Background(), made...)) {
				p.answered(own, messages[i], result.Record, result.Err)
			}
		})
		return
	}
	message, record := messages[0], made[0]
	promise := func(record *kgo.Record, err error) { p.answered(own, message, record, err) }
	switch {
	case !p.wait:
		client.TryProduce(context.Background(), record, promise)
	case p.isFull(client, len(message.Payload)):
		if p.held.Add(1) > 1 {
			p.crowded.Add(1)
		}
		message.Blocking(func() { client.Produce(context.Background(), record, promise) })
		p.held.Add(-1)
	default:
		client.Produce(context.Background(), record, promise)
	}
}

// inOrderOf returns results in the order of the records of the call. ProduceSync has them in the order in which they
// ended: the result of a record for a slow broker comes last.
func inOrderOf(records []*kgo.Record, results kgo.ProduceResults) kgo.ProduceResults {
	at := make(map[*kgo.Record]int, len(records))
	for i, record := range records {
		at[record] = i
	}
	ordered := make(kgo.ProduceResults, len(records))
	for _, result := range results {
		ordered[at[result.Record]] = result
	}
	return ordered
}

// isFull: the client will hold the caller, unless room is made this very moment.
func (p *producer) isFull(client *kgo.Client, bytes int) bool {
	return client.BufferedProduceRecords() >= p.records ||
		p.bytes > 0 && client.BufferedProduceBytes()+int64(bytes) > p.bytes
}

func (p *producer) recordOf(message *kit.Message) *kgo.Record {
	value, identity := message.Parts()
	record := &kgo.Record{Topic: message.Lane.Topic, Key: message.Lane.Key, Value: value, Headers: p.headers}
	if identity != nil {
		header := kgo.RecordHeader{Key: kit.IdentityHeader, Value: identity}
		record.Headers = append(p.headers[:len(p.headers):len(p.headers)], header)
		for _, each := range message.MadeHeaders() {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: each[0], Value: []byte(each[1])})
		}
	}
	if message.Lane.Partition >= 0 {
		record.Partition = message.Lane.Partition
	}
	return record
}

func (p *producer) answered(own *transactional, message *kit.Message, record *kgo.Record, err error) {
	if err != nil {
		if own != nil {
			own.failed(err)
		}
		message.Failed(outcomeOf(err, p.retries), errorText(err))
		return
	}
	position := record.Offset
	if p.noAck {
		position = -1
	}
	message.StoredIn(record.Partition, position)
}

// Close ends the producer and its connections.
func (p *producer) Close() {
	for _, own := range p.own {
		own.client.Close()
	}
	if p.client != nil {
		p.client.Close()
	}
}
