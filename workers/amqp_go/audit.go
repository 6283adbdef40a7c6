package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	notFound  = 404
	lookAgain = 3
	// Messages that a consumer is given without an acknowledgement: the largest number that AMQP has. Without one, a
	// quorum queue gives a consumer 2,000.
	mostGiven = 65535
	// The argument of a consumer, and the header of a message.
	streamOffset = "x-stream-offset"
	// Messages of a stream that are given without an acknowledgement.
	streamPrefetch = 2000
	markWithin     = 20 * time.Second
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
	if err = made.connect(); err != nil {
		return refused("refused to start", err)
	}
	if session.Spec.Audit.Isolation != "remaining" {
		return kit.RunAudit(session, &streams{made}, errorText)
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

func (r *remains) Close() { r.close() }

// channelOf the connection, which is made if there is none.
func (c *connection) channelOf() (*amqp.Channel, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	return c.connection.Channel()
}

// streams are read whole, by offsets.
type streams struct {
	*connection
}

// Bounds of a stream. AMQP has no question for its end. So a probe is stored after the last message, and the end is the
// offset of the probe. A replica that lags gives out the probe later, and never without the messages before it.
func (s *streams) Bounds(stream string) (int64, int64, error) {
	within, cancel := context.WithTimeout(context.Background(), markWithin)
	defer cancel()
	probe := kit.ProbePayload(s.session)
	if err := s.store(within, stream, probe); err != nil {
		return 0, 0, err
	}
	begin, end := int64(-1), int64(-1)
	if err := s.readFrom(within, stream, "first", func(row kit.LogRow) bool {
		begin = row.Position
		return false
	}); err != nil {
		return 0, 0, err
	}
	if err := s.readFrom(within, stream, "last", func(row kit.LogRow) bool {
		if bytes.Equal(row.Value, probe) {
			end = row.Position
		}
		return end < 0
	}); err != nil {
		return 0, 0, err
	}
	if begin < 0 || end < 0 {
		return 0, 0, fmt.Errorf("%s: the probe after its last message did not come within %s", stream, markWithin)
	}
	return begin, end, nil
}

// store a message, and wait for its confirm.
func (s *streams) store(within context.Context, stream string, body []byte) error {
	channel, err := s.channelOf()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	if _, err = channel.QueueDeclarePassive(stream, true, false, false, false, nil); err != nil {
		if exception, is := err.(*amqp.Error); is && exception.Code == notFound {
			return fmt.Errorf("%w: %v", kit.ErrGone, err)
		}
		return err
	}
	if err = channel.Confirm(false); err != nil {
		return err
	}
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 1))
	made := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}
	if err = channel.Publish("", stream, false, false, made); err != nil {
		return err
	}
	select {
	case <-within.Done():
		return within.Err()
	case one, open := <-confirms:
		if !open || !one.Ack {
			return errors.New("the broker did not confirm the probe after the last message")
		}
	}
	return nil
}

// Read continues on another channel where one breaks: an offset that was read before is skipped by the kit.
func (s *streams) Read(leave context.Context, stream string, begin, _ int64, row func(kit.LogRow) bool) error {
	next := begin
	for again := 0; ; again++ {
		err := s.readFrom(leave, stream, next, func(found kit.LogRow) bool {
			next = found.Position + 1
			return row(found)
		})
		if err == nil || leave.Err() != nil || again == lookAgain {
			return err
		}
		s.session.Report.Error(errorText(err))
		wait(leave, pause)
	}
}

// readFrom an offset, first or last, until row returns false or the context is done.
func (s *streams) readFrom(leave context.Context, stream string, from any, row func(kit.LogRow) bool) error {
	channel, err := s.channelOf()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	if err = channel.Qos(streamPrefetch, 0, false); err != nil {
		return err
	}
	given, err := channel.Consume(stream, "", false, false, false, false, amqp.Table{streamOffset: from})
	if err != nil {
		return err
	}
	for count := 1; ; count++ {
		select {
		case <-leave.Done():
			return nil
		case each, open := <-given:
			if !open {
				return amqp.ErrClosed
			}
			offset, known := each.Headers[streamOffset].(int64)
			if !known {
				return fmt.Errorf("a message of %s has no offset: it is not a stream", stream)
			}
			if !row(kit.LogRow{Position: offset, Value: each.Body}) {
				return nil
			}
			if count%(streamPrefetch/2) == 0 { // lets the broker send more
				if err = each.Ack(true); err != nil {
					return err
				}
			}
		}
	}
}

func (s *streams) Close() { s.close() }
