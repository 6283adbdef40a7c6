package main

import (
	"context"
	"fmt"

	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	notFound  = 404
	lookAgain = 3
	// Messages that a consumer is given without an acknowledgement: the largest number that AMQP has. Without one, a
	// quorum queue gives a consumer 2,000.
	mostGiven = 65535
)

// remains reads what is left in queues when nobody else uses them. Nothing is acknowledged, so all of it goes back when
// the channel is closed. Positions are the order in which messages are given.
type remains struct {
	*connection
}

func audit(session *kit.Session) error {
	asked := &auditing{}
	made, err := newConnection(session, asked, &asked.Config)
	if err != nil {
		return err
	}
	if session.Spec.Audit.Isolation != "remaining" {
		return kit.Failuref("", "amqp091-go reads what remains in queues, and no log")
	}
	if err = made.connect(); err != nil {
		return refused("refused to start", err)
	}
	return kit.RunAudit(session, &remains{made}, errorText)
}

// Bounds of a queue: as many messages as it has ready. The broker closes the channel where there is no such queue.
func (r *remains) Bounds(stream string) (int64, int64, error) {
	channel, err := r.channelOf()
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = channel.Close() }()
	found, err := channel.QueueDeclarePassive(stream, true, false, false, false, nil)
	if exception, is := err.(*amqp.Error); is && exception.Code == notFound {
		return 0, 0, fmt.Errorf("%w: %v", kit.ErrGone, err)
	}
	return 0, int64(found.Messages), err
}

// Read begins anew on another channel where one breaks.
func (r *remains) Read(leave context.Context, stream string, _, _ int64, row func(kit.LogRow) bool) error {
	for again := 0; ; again++ {
		err := r.readOnce(leave, stream, row)
		if err == nil || leave.Err() != nil || again == lookAgain {
			return err
		}
		r.session.Report.Error(errorText(err))
		wait(leave, pause)
	}
}

func (r *remains) readOnce(leave context.Context, stream string, row func(kit.LogRow) bool) error {
	channel, err := r.channelOf()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	if err := channel.Qos(mostGiven, 0, false); err != nil {
		return err
	}
	var given <-chan amqp.Delivery
	for position := int64(0); ; position++ {
		if position%mostGiven == 0 { // the consumer of before is given no more
			if given, err = channel.Consume(stream, "", false, false, false, false, nil); err != nil {
				return err
			}
		}
		select {
		case <-leave.Done():
			return nil
		case each, open := <-given:
			if !open {
				return amqp.ErrClosed
			}
			if !row(kit.LogRow{Position: position, Value: payloadOf(each)}) {
				return nil
			}
		}
	}
}

func (r *remains) channelOf() (*amqp.Channel, error) {
	if err := r.connect(); err != nil {
		return nil, err
	}
	return r.connection.connection.Channel()
}

func (r *remains) Close() { r.close() }
