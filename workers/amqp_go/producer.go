package main

import (
	"fmt"
	"sync"

	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

// producer on one channel. A message has its outcome with the commit of its transaction, with the broker's confirm,
// or (neither was asked for) when it was written to the socket, and nobody knows whether a broker has it.
type producer struct {
	*connection
	asked   producing
	headers amqp.Table

	uncommitted []*kit.Message // of the open transaction
	awaiting    *awaiting
}

// awaiting has the messages of one channel that a confirm is awaited for, by delivery tag.
type awaiting struct {
	lock      sync.Mutex
	messages  map[uint64]*kit.Message
	published uint64
	ended     bool
}

// add a message, unless the channel is closed.
func (a *awaiting) add(message *kit.Message) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.ended {
		return false
	}
	a.published++
	a.messages[a.published] = message
	return true
}

func (a *awaiting) take(tag uint64) *kit.Message {
	a.lock.Lock()
	defer a.lock.Unlock()
	message := a.messages[tag]
	delete(a.messages, tag)
	return message
}

func (a *awaiting) end() map[uint64]*kit.Message {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.ended = true
	return a.messages
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
	p.awaiting = &awaiting{messages: map[uint64]*kit.Message{}}
	if p.asked.Confirms == notify {
		go p.listen(channel.NotifyPublish(make(chan amqp.Confirmation, 1000)), p.awaiting)
	}
	return nil
}

// listen to the confirms of one channel, until it is closed.
func (p *producer) listen(told <-chan amqp.Confirmation, of *awaiting) {
	for one := range told {
		if message := of.take(one.DeliveryTag); message != nil {
			p.confirmed(message, one.Ack)
		}
	}
	for _, message := range of.end() {
		message.Failed(kit.Info, closedText)
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
	return map[string]any{"reconnects": p.reconnects.Load()}
}

// Send publishes one message, and commits when there are enough.
func (p *producer) Send(messages []*kit.Message) {
	message := messages[0]
	channel, err := p.open(p.prepare)
	if err != nil { // nothing was sent
		message.Failed(kit.Fail, errorText(err))
		return
	}
	made := amqp.Publishing{Headers: p.headers, DeliveryMode: p.asked.DeliveryMode, Body: message.Payload}
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
	case p.asked.Confirms == deferred:
		err = p.publishDeferred(channel, message, made)
	default:
		err = p.publish(channel, message, made)
	}
	if err != nil {
		p.lost(err)
	}
}

func (p *producer) publish(channel *amqp.Channel, message *kit.Message, made amqp.Publishing) error {
	if p.asked.Confirms == notify && !p.awaiting.add(message) {
		message.Failed(kit.Info, closedText)
		return amqp.ErrClosed
	}
	err := channel.Publish("", queue(message.Lane), false, false, made)
	if p.asked.Confirms == notify {
		return err // the listener ends what is awaited
	}
	if err == nil {
		p.confirmed(message, true)
	} else {
		message.Failed(kit.Info, errorText(err))
	}
	return err
}

func (p *producer) publishDeferred(channel *amqp.Channel, message *kit.Message, made amqp.Publishing) error {
	confirm, err := channel.PublishWithDeferredConfirm("", queue(message.Lane), false, false, made)
	if err != nil {
		message.Failed(kit.Info, errorText(err))
		return err
	}
	go func() { p.confirmed(message, confirm.Wait()) }()
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
