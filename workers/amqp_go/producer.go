package main

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

// producer on one channel. A message has its outcome with the commit of its transaction, with the broker's confirm,
// or (neither was asked for) when it was written to the socket, and nobody knows whether a broker has it.
type producer struct {
	*connection
	asked   producing
	headers amqp.Table

	nacks       atomic.Int64   // of the broker, on channels that are open
	uncommitted []*kit.Message // of the open transaction
	awaiting    *awaiting
}

// awaiting has the messages of one channel that a confirm is awaited for, by delivery tag.
type awaiting struct {
	lock      sync.Mutex
	changed   *sync.Cond
	messages  map[uint64]*kit.Message
	published uint64
	ended     bool
	gone      chan struct{}            // closed when the channel is
	told      chan<- amqp.Confirmation // deferred confirms, for the listener
}

func newAwaiting() *awaiting {
	a := &awaiting{messages: map[uint64]*kit.Message{}, gone: make(chan struct{})}
	a.changed = sync.NewCond(&a.lock)
	return a
}

// add a message, unless the channel is closed; its delivery tag. While there are as many as most (0 = no limit), it
// waits.
func (a *awaiting) add(message *kit.Message, most int64) (uint64, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for most > 0 && int64(len(a.messages)) >= most && !a.ended {
		a.changed.Wait()
	}
	if a.ended {
		return 0, false
	}
	a.published++
	a.messages[a.published] = message
	return a.published, true
}

// wait until every message has its confirm, or the channel is closed.
func (a *awaiting) wait() {
	a.lock.Lock()
	defer a.lock.Unlock()
	for len(a.messages) > 0 && !a.ended {
		a.changed.Wait()
	}
}

func (a *awaiting) take(tag uint64) *kit.Message {
	a.lock.Lock()
	defer a.lock.Unlock()
	message := a.messages[tag]
	delete(a.messages, tag)
	a.changed.Broadcast()
	return message
}

func (a *awaiting) end() map[uint64]*kit.Message {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.ended = true
	close(a.gone)
	a.changed.Broadcast()
	left := a.messages
	a.messages = map[uint64]*kit.Message{}
	return left
}

func produce(session *kit.Session) error {
	loop, err := kit.NewOpenLoop(session)
	if err != nil {
		return err
	}
	p := &producer{asked: producing{DeliveryMode: amqp.Persistent}}
	for _, header := range session.Spec.Producer.Headers {
		if p.headers == nil {
			p.headers = amqp.Table{}
		}
		p.headers[header[0]] = header[1]
	}
	if p.connection, err = newConnection(session, &p.asked, &p.asked.Config); err != nil {
		return err
	}
	if p.asked.Transacted > 0 && p.asked.Confirms != none {
		return kit.Failuref(
			"Transacted=0 with Confirms", "amqp091-go: Transacted=%d and Confirms: a channel has one of them",
			p.asked.Transacted,
		)
	}
	if p.asked.Confirms == none && (p.asked.Mandatory || p.asked.ConfirmEvery > 0) {
		return kit.Failuref(
			"Confirms=deferred, or leave them out", "amqp091-go: Mandatory and ConfirmEvery require Confirms",
		)
	}
	lanes := loop.Lanes()
	for i := range lanes {
		if lanes[i].Key != nil {
			return kit.Failuref("", "a queue has no keys: lanes of mode key cannot be sent")
		}
	}
	if _, err = p.open(func(channel *amqp.Channel) error {
		for i := range lanes { // it must be there
			if _, err := channel.QueueDeclarePassive(queue(&lanes[i]), true, false, false, false, nil); err != nil {
				return fmt.Errorf("queue %s: %w", queue(&lanes[i]), err)
			}
		}
		return p.prepare(channel)
	}); err != nil {
		return refused("refused to start", err)
	}
	return loop.Run(p)
}

func queue(lane *kit.Lane) string { return lane.Topic + "-0" }

func (p *producer) prepare(channel *amqp.Channel) error {
	switch {
	case p.asked.Transacted > 0:
		return channel.Tx()
	case p.asked.Confirms == none:
		return nil
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	p.awaiting = newAwaiting()
	told := make(chan amqp.Confirmation, 1000)
	if p.asked.Confirms == notify {
		channel.NotifyPublish(told)
	} else {
		p.awaiting.told = told
	}
	// The client hands a returned message over before it reads the confirm that follows it: without a buffer, it is known
	// to be returned by then.
	returned := channel.NotifyReturn(make(chan amqp.Return))
	go p.listen(channel, told, returned, p.awaiting)
	return nil
}

// listen to the confirms and returned messages of one channel, until it is closed.
func (p *producer) listen(
	channel *amqp.Channel, told <-chan amqp.Confirmation, returned <-chan amqp.Return, of *awaiting,
) {
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	for open := true; open; {
		select {
		case one, more := <-told:
			if open = more; !more {
				break
			}
			if !one.Ack && !channel.IsClosed() {
				p.nacks.Add(1)
			}
			if message := of.take(one.DeliveryTag); message != nil {
				p.confirmed(message, one.Ack)
			}
		case one, more := <-returned:
			if !more {
				returned = nil
				break
			}
			p.returned(one, of)
		case <-closed:
			// NotifyPublish tells what it still knows, and then closes its channel.
			if closed = nil; p.asked.Confirms == deferred {
				open = false
			}
		}
	}
	for _, message := range of.end() {
		message.Failed(kit.Info, closedText)
	}
}

// returned: no queue takes the message, so it is certainly not stored.
func (p *producer) returned(one amqp.Return, of *awaiting) {
	tag, err := strconv.ParseUint(one.MessageId, 10, 64)
	if err != nil {
		return
	}
	if message := of.take(tag); message != nil {
		text := fmt.Sprintf("returned: %d %s", one.ReplyCode, one.ReplyText)
		p.session.Report.Error(text)
		message.Failed(kit.Fail, text)
	}
}

const closedText = "closed: the channel was closed before the confirm"

// confirmed by the broker, or not: a nack and the end of a channel look alike.
func (p *producer) confirmed(message *kit.Message, ack bool) {
	if ack {
		message.StoredAt(kit.Place{Stream: message.Lane.Topic + "-0", Position: -1})
	} else {
		message.Failed(kit.Info, "nack: the broker or the end of the channel refused the message")
	}
}

func (p *producer) CallSize() int { return 1 }

func (p *producer) Exposure() map[string]any {
	return map[string]any{
		"reconnects":       p.reconnects.Load(),
		"blocked":          p.blocked.Load(),
		"refused_confirms": p.nacks.Load(),
	}
}

// Send publishes one message, and commits when there are enough.
func (p *producer) Send(messages []*kit.Message) {
	message := messages[0]
	channel, err := p.open(p.prepare)
	if err != nil { // nothing was sent
		message.Failed(kit.Fail, errorText(err))
		return
	}
	value, identity := message.Parts()
	made := amqp.Publishing{Headers: p.headersOf(identity), DeliveryMode: p.asked.DeliveryMode, Body: value}
	for _, each := range message.MadeHeaders() {
		made.Headers[each[0]] = each[1] // a table of its own: it has an identity
	}
	switch {
	case p.asked.Transacted > 0:
		p.uncommitted = append(p.uncommitted, message)
		err = channel.Publish("", queue(message.Lane), false, false, made)
		if err == nil && int64(len(p.uncommitted)) >= p.asked.Transacted {
			err = channel.TxCommit()
			if err == nil {
				p.stored()
			}
		}
	default:
		err = p.publish(channel, message, made)
	}
	if err != nil {
		p.lost(err)
	}
}

// headersOf a message: the same for all, and the identity of one whose value does not have it.
func (p *producer) headersOf(identity []byte) amqp.Table {
	if identity == nil {
		return p.headers
	}
	own := amqp.Table{kit.IdentityHeader: kit.IdentityText(identity)}
	for name, value := range p.headers {
		own[name] = value
	}
	return own
}

func (p *producer) publish(channel *amqp.Channel, message *kit.Message, made amqp.Publishing) error {
	if p.asked.Confirms != none {
		return p.publishConfirmed(channel, message, made)
	}
	err := channel.Publish("", queue(message.Lane), false, false, made)
	if err == nil {
		p.confirmed(message, true)
	} else {
		message.Failed(kit.Info, errorText(err))
	}
	return err
}

// publishConfirmed publishes a message whose outcome the listener tells.
func (p *producer) publishConfirmed(channel *amqp.Channel, message *kit.Message, made amqp.Publishing) error {
	waits := p.awaiting
	tag, open := waits.add(message, p.asked.MaxUnconfirmed)
	if !open {
		message.Failed(kit.Info, closedText)
		return amqp.ErrClosed
	}
	if p.asked.Mandatory {
		made.MessageId = strconv.FormatUint(tag, 10)
	}
	var err error
	if p.asked.Confirms == notify {
		err = channel.Publish("", queue(message.Lane), p.asked.Mandatory, false, made)
	} else {
		err = p.publishDeferred(channel, tag, queue(message.Lane), made)
	}
	if err != nil {
		if waits.take(tag) != nil {
			message.Failed(kit.Info, errorText(err))
		}
		return err
	}
	if every := uint64(p.asked.ConfirmEvery); every > 0 && tag%every == 0 {
		waits.wait()
	}
	return nil
}

func (p *producer) publishDeferred(channel *amqp.Channel, tag uint64, to string, made amqp.Publishing) error {
	confirm, err := channel.PublishWithDeferredConfirm("", to, p.asked.Mandatory, false, made)
	if err != nil {
		return err
	}
	go func(waits *awaiting) {
		ack := confirm.Wait()
		select {
		case waits.told <- amqp.Confirmation{DeliveryTag: tag, Ack: ack}:
		case <-waits.gone:
		}
	}(p.awaiting)
	return nil
}

// stored: the transaction is committed.
func (p *producer) stored() {
	for _, message := range p.uncommitted {
		p.confirmed(message, true)
	}
	p.uncommitted = nil
}

// lost: the channel is broken, and nobody knows what became of its transaction.
func (p *producer) lost(err error) {
	for _, message := range p.uncommitted {
		message.Failed(kit.Info, errorText(err))
	}
	p.uncommitted = nil
	p.broken(err)
}

// Flush commits the last transaction, which may be a small one.
func (p *producer) Flush() {
	if len(p.uncommitted) == 0 || p.channel == nil {
		return
	}
	if err := p.channel.TxCommit(); err != nil {
		p.lost(err)
		return
	}
	p.stored()
}

// Close the connection.
func (p *producer) Close() { p.close() }
