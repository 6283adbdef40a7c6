package main

import (
	"context"
	"fmt"
	"time"

	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

// A transaction that does not fill up is committed when nothing came for so long.
const idle = 300 * time.Millisecond

// member takes from every queue of its topics, on one channel. Transactions cover acknowledgements. After a rollback
// the channel is closed and another one opened: tx.rollback alone leaves the messages with the channel (AMQP 0-9-1,
// class tx), closing it gives them back.
type member struct {
	*connection
	asked   consuming
	journal *kit.Journal
	handed  chan handed
	gone    chan struct{} // closed with the channel whose messages are handed over
	// The broker ended a consumer by itself: its queue was deleted, or the node of a classic queue is down.
	cancelled chan string
	unsettled int64 // messages since the last acknowledgement
	last      amqp.Delivery
	// Delivery tags of the open transaction. Tags count over all queues of the channel, and each queue has a goroutine
	// of its own: one acknowledgement up to the newest tag would cover messages that the application was not given yet.
	open        []uint64
	transaction int64
	// Of streams: the offset after the last message that the application was given, by queue.
	next map[string]int64
}

// handed over by the client, and the application has not yet asked for it.
type handed struct {
	stream string
	amqp.Delivery
}

func consume(session *kit.Session) error {
	switch settle := session.Spec.Consumer.Settle; settle {
	case "", "auto", "ack", "transacted", "none":
	default:
		return kit.Failuref("", "settle %q: amqp091-go has transacted, ack, auto, none", settle)
	}
	m := &member{transaction: 1, asked: consuming{AckEvery: 1, Requeue: true}, next: map[string]int64{}}
	var err error
	if m.connection, err = newConnection(session, &m.asked, &m.asked.Config); err != nil {
		return err
	}
	if m.asked.AckEvery < 1 || (m.asked.AckEvery > 1 && len(session.Spec.Consumer.Topics) > 1) {
		// Messages of several queues are given side by side: one acknowledgement would cover some that were not given.
		return kit.Failuref("AckEvery=1, or one topic", "amqp091-go: AckEvery=%d requires one topic, and 1 or more",
			m.asked.AckEvery)
	}
	switch m.asked.StreamOffset {
	case "none":
		m.asked.StreamOffset = ""
	case "", "first", "next":
	default:
		return kit.Failuref("", "amqp091-go: StreamOffset=%s must be first or next", m.asked.StreamOffset)
	}
	m.journal = kit.NewJournal(session)
	if _, err = m.connection.open(m.prepare); err != nil {
		return refused("refused to start", err)
	}
	return kit.RunMember(session, m.journal, m, errorText)
}

func (m *member) prepare(channel *amqp.Channel) error {
	if m.gone != nil {
		close(m.gone)
	}
	m.handed, m.gone = make(chan handed), make(chan struct{})
	m.unsettled, m.cancelled = 0, channel.NotifyCancel(make(chan string, 1))
	spec := m.session.Spec.Consumer
	if spec.Settle == "transacted" {
		if err := channel.Tx(); err != nil {
			return err
		}
	}
	if err := channel.Qos(m.asked.PrefetchCount, 0, false); err != nil {
		return err
	}
	for _, topic := range spec.Topics {
		auto := spec.Settle == "auto" || spec.Settle == ""
		given, err := channel.Consume(topic+"-0", "", auto, false, false, false, m.from(topic+"-0"))
		if err != nil {
			return err
		}
		go pass(topic+"-0", given, m.handed, m.gone)
	}
	m.journal.Connected("a channel that consumes")
	return nil
}

// from where a stream is read: after the last message that the application was given. nil: it is a queue.
func (m *member) from(queue string) amqp.Table {
	switch next, given := m.next[queue]; {
	case m.asked.StreamOffset == "":
		return nil
	case given:
		return amqp.Table{streamOffset: next}
	default:
		return amqp.Table{streamOffset: m.asked.StreamOffset}
	}
}

// pass on what comes of one queue.
func pass(stream string, given <-chan amqp.Delivery, to chan<- handed, gone <-chan struct{}) {
	for each := range given {
		select {
		case to <- handed{stream, each}:
		case <-gone:
			return
		}
	}
}

// Read until the context is done; what is open is committed then.
func (m *member) Read(leave context.Context) error {
	before := m.reconnects.Load()
	for leave.Err() == nil {
		if _, err := m.connection.open(m.prepare); err != nil {
			wait(leave, pause)
			continue
		}
		for ; before < m.reconnects.Load(); before++ {
			m.journal.Exposed("reconnects")
		}
		if err := m.turn(leave); err != nil {
			m.lost(err)
			wait(leave, pause)
		}
	}
	if len(m.open) > 0 && m.channel != nil {
		if err := m.end(false); err != nil {
			m.lost(err)
		}
	}
	if m.unsettled > 0 && m.channel != nil {
		if err := m.settle(m.last); err != nil {
			m.lost(err)
		}
	}
	return nil
}

func wait(leave context.Context, long time.Duration) {
	select {
	case <-leave.Done():
	case <-time.After(long):
	}
}

// turn takes one message, or waits for one.
func (m *member) turn(leave context.Context) error {
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	select {
	case <-leave.Done():
	case err := <-m.closed:
		if err == nil {
			err = amqp.ErrClosed
		}
		return err
	case tag, open := <-m.cancelled:
		if !open {
			m.cancelled = nil // the channel is closed, which `closed` tells
			return nil
		}
		return fmt.Errorf("the broker cancelled the consumer %s", tag)
	case given := <-m.handed:
		return m.take(given)
	case <-quiet.C:
		if len(m.open) > 0 {
			return m.end(false)
		}
		if m.unsettled > 0 {
			return m.settle(m.last)
		}
	}
	return nil
}

// take is the application: note it, work, settle.
func (m *member) take(given handed) error {
	spec, redelivered := m.session.Spec.Consumer, uint32(0)
	if given.Redelivered {
		redelivered = 1
	}
	if m.asked.StreamOffset != "" {
		return m.takeOfStream(given)
	}
	place := kit.Place{Stream: given.stream, Position: -1}
	if spec.Settle != "transacted" {
		number := m.journal.Handed(place, redelivered, 0, payloadOf(given.Delivery))
		spec.Work()
		if spec.Settle == "ack" {
			return m.acknowledge(given.Delivery, number)
		}
		return nil
	}
	m.journal.Handed(place, redelivered, m.transaction, payloadOf(given.Delivery))
	spec.Work()
	m.open = append(m.open, given.DeliveryTag)
	if len(m.open) < m.asked.atMost(spec.PerTransaction) {
		return nil
	}
	return m.end(spec.RollbackEvery > 0 && m.transaction%int64(spec.RollbackEvery) == 0)
}

// atMost is n, or PrefetchCount if it is less: the broker hands over no more messages that are not settled, so to wait
// for n of them would be in vain.
func (c consuming) atMost(n int) int {
	if c.PrefetchCount > 0 && c.PrefetchCount < n {
		return c.PrefetchCount
	}
	return n
}

// payloadOf a message: its value, or a body with the identity of its headers.
func payloadOf(given amqp.Delivery) []byte {
	text, is := given.Headers[kit.IdentityHeader].(string)
	if !is || kit.IsWhole(given.Body) {
		return given.Body
	}
	return kit.JoinedText(given.Body, text)
}

// takeOfStream: the application keeps its offset itself. An acknowledgement lets the broker send more, and settles
// nothing.
func (m *member) takeOfStream(given handed) error {
	offset, known := given.Headers[streamOffset].(int64)
	if !known {
		return fmt.Errorf("a message of %s has no offset: it is not a stream", given.stream)
	}
	m.journal.Handed(kit.Place{Stream: given.stream, Position: offset}, 0, 0, payloadOf(given.Delivery))
	m.next[given.stream] = offset + 1
	m.session.Spec.Consumer.Work()
	return given.Ack(false)
}

// acknowledge one message by itself. The broker does not answer, so no row says that it confirmed it.
func (m *member) acknowledge(given amqp.Delivery, number int64) error {
	nowhere := kit.Place{Position: -1}
	if every := int64(m.session.Spec.Consumer.NackEvery); every > 0 && number%every == 0 {
		if m.unsettled > 0 { // those before it are settled, not refused with it
			if err := m.settle(m.last); err != nil {
				return err
			}
		}
		m.journal.Note(kit.Nack, nowhere, 0)
		return given.Nack(false, m.asked.Requeue)
	}
	if m.unsettled++; m.unsettled < int64(m.asked.atMost(int(m.asked.AckEvery))) {
		m.last = given
		return nil
	}
	return m.settle(given)
}

// settle a message, and with AckEvery those before it.
func (m *member) settle(given amqp.Delivery) error {
	m.unsettled = 0
	m.journal.Note(kit.AckCalled, kit.Place{Position: -1}, 0)
	return given.Ack(m.asked.AckEvery > 1)
}

// end the transaction.
func (m *member) end(rollsBack bool) error {
	begin, ended := kit.CommitCalled, kit.Commit
	if rollsBack {
		begin, ended = kit.RollbackBegin, kit.RollbackEnd
	}
	nowhere := kit.Place{Position: -1}
	m.journal.Note(begin, nowhere, m.transaction)
	if rollsBack {
		if err := m.channel.TxRollback(); err != nil {
			return err
		}
		old := m.channel
		m.channel = nil
		if err := old.Close(); err != nil {
			return err
		}
	} else {
		for _, tag := range m.open {
			if err := m.channel.Ack(tag, false); err != nil {
				return err
			}
		}
		if err := m.channel.TxCommit(); err != nil {
			return err
		}
	}
	m.journal.Note(ended, nowhere, m.transaction)
	m.open, m.transaction = m.open[:0], m.transaction+1
	return nil
}

// lost: what was handed over and not committed is for the next who asks.
func (m *member) lost(err error) {
	if len(m.open) > 0 {
		m.transaction++
	}
	m.open = m.open[:0]
	m.broken(err)
}

// Commit: transactions end by the number of their messages, on the goroutine that reads.
func (m *member) Commit() {}

// Close the connection.
func (m *member) Close() { m.close() }
