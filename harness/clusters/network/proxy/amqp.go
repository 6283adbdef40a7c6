package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
)

// What a client of AMQP 0-9-1 sends first; connections of other versions pass as they are.
var amqpGreeting = []byte("AMQP\x00\x00\x09\x01")

// Types of frames, and methods: the class in the upper byte, the method in the lower one (amqp0-9-1.xml).
const (
	amqpMethod = 1
	amqpHeader = 2
	amqpBody   = 3

	connectionClose     = 10<<8 | 50
	connectionCloseOk   = 10<<8 | 51
	connectionBlocked   = 10<<8 | 60
	connectionUnblocked = 10<<8 | 61
	channelOpen         = 20<<8 | 10
	channelClose        = 20<<8 | 40
	channelCloseOk      = 20<<8 | 41
	basicPublish        = 60<<8 | 40
	basicAck            = 60<<8 | 80
	basicNack           = 60<<8 | 120
	confirmSelect       = 85<<8 | 10
)

// Of a rule's codes, those that are no reply code of the protocol: their numbers are ours.
const (
	amqpRefused = 1 // basic.nack in the place of basic.ack
	amqpBlocked = 2 // connection.blocked, until the rule ends
)

// Methods that the answer of the next number follows: -ok. The others are answered by confirms, or not at all.
var amqpNames = map[int16]string{
	channelOpen: "channel.open", 40<<8 | 10: "exchange.declare", 50<<8 | 10: "queue.declare", 50<<8 | 20: "queue.bind",
	60<<8 | 10: "basic.qos", 60<<8 | 20: "basic.consume", 60<<8 | 30: "basic.cancel", basicPublish: "basic.publish",
	basicAck: "basic.ack", basicNack: "basic.nack", 60<<8 | 90: "basic.reject", confirmSelect: "confirm.select",
	90<<8 | 10: "tx.select", 90<<8 | 20: "tx.commit", 90<<8 | 30: "tx.rollback",
}

var amqpUnanswered = []int16{basicAck, basicNack, 60<<8 | 90}

// Reply codes of errors after which a connection cannot be used; after the others, a channel cannot.
var amqpHard = []int16{320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541}

// An amqpFrame is a frame of a connection. Its bytes are valid until the next one is read.
type amqpFrame struct {
	form    byte
	channel uint16
	method  int16 // 0: it is no method
	bytes   []byte
}

// An amqpReader reads frames into one buffer.
type amqpReader struct {
	from   *bufio.Reader
	buffer []byte
}

func (r *amqpReader) next() (*amqpFrame, error) {
	head, err := r.from.Peek(7)
	if err != nil {
		return nil, err
	}
	found := &amqpFrame{form: head[0], channel: binary.BigEndian.Uint16(head[1:])}
	length := int64(binary.BigEndian.Uint32(head[3:])) + 8 // and its last byte
	if length > longestFrame {
		return nil, fmt.Errorf("a frame of %d bytes", length)
	}
	if int64(cap(r.buffer)) < length {
		r.buffer = make([]byte, 2*length)
	}
	found.bytes = r.buffer[:length]
	if _, err := io.ReadFull(r.from, found.bytes); err != nil {
		return nil, err
	}
	if found.form == amqpMethod && length >= 12 {
		found.method = int16(found.bytes[8])<<8 | int16(found.bytes[10])
	}
	return found, nil
}

func (f *amqpFrame) arguments() []byte { return f.bytes[11 : len(f.bytes)-1] }

// packMethod makes a frame of a method without a content.
func packMethod(channel uint16, method int16, arguments []byte) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{amqpMethod}, channel)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(arguments)+4))
	frame = append(frame, 0, byte(method>>8), 0, byte(method))
	return append(append(frame, arguments...), 0xCE)
}

// packConfirm makes the confirm of one message: its tag, and that it is about no other one.
func packConfirm(channel uint16, method int16, tag uint64) []byte {
	return packMethod(channel, method, append(binary.BigEndian.AppendUint64(nil, tag), 0))
}

func packClose(channel uint16, method int16, code int16, cause int16) []byte {
	arguments := binary.BigEndian.AppendUint16(nil, uint16(code))
	arguments = append(append(arguments, byte(len(falseErrorText))), falseErrorText...)
	return packMethod(channel, method, append(arguments, 0, byte(cause>>8), 0, byte(cause)))
}

// An amqpRequest is a method that waits for its answer.
type amqpRequest struct {
	method  int16
	channel uint16
	tag     uint64 // of a published message, as the client counts it
	rules   []*rule
}

func (r *amqpRequest) describe(string) string {
	if r.tag == 0 {
		return fmt.Sprintf("%s on channel %d", amqpNames[r.method], r.channel)
	}
	return fmt.Sprintf("%s on channel %d (delivery tag %d)", amqpNames[r.method], r.channel, r.tag)
}

// An amqpChannel is what a conversation knows of a channel.
type amqpChannel struct {
	confirms bool
	// Published messages, as the client and as the broker count them: the broker does not get some.
	sent, passed uint64
	unconfirmed  map[uint64]*amqpRequest // by the broker's tag
	oldest       uint64                  // every tag below was confirmed
	// A rule has met a message of it, so each confirm is about one message: one that is about several would be about
	// that one too.
	single  bool
	waiting *amqpRequest // another method
	// Of a message that the broker does not get, what is called after its last byte, and the bytes to come; below 0:
	// its header comes first.
	skipped   func()
	left      int64
	isSkipped bool
	// The relay has closed it: what it still waits for.
	client, broker bool
}

// An amqpConversation relays one connection of a client of AMQP 0-9-1.
type amqpConversation struct {
	*relayed
	channels map[uint16]*amqpChannel
	isOther  atomic.Bool // another version
}

func runAmqp(relayed *relayed) {
	c := &amqpConversation{relayed: relayed, channels: map[uint16]*amqpChannel{}}
	c.run(c.requests, c.answers)
}

// channel finds a channel of a number. The mutex is held.
func (c *amqpConversation) channel(number uint16) *amqpChannel {
	found, is := c.channels[number]
	if !is {
		found = &amqpChannel{unconfirmed: map[uint64]*amqpRequest{}, oldest: 1}
		c.channels[number] = found
	}
	return found
}

// requests reads what the client sends and passes it on, until it ends.
func (c *amqpConversation) requests() error {
	from := bufio.NewReaderSize(c.client, 64<<10)
	greeting, err := from.Peek(len(amqpGreeting))
	if err != nil {
		return err
	}
	if !bytes.Equal(greeting, amqpGreeting) {
		c.isOther.Store(true)
		return c.copyOnward(from)
	}
	if _, err := io.CopyN(c.server, from, int64(len(amqpGreeting))); err != nil {
		return err
	}
	for frames := (amqpReader{from: from}); ; {
		frame, err := frames.next()
		if err != nil {
			c.flushOnward()
			return err
		}
		c.sending.Lock()
		err = c.send(frame)
		if from.Buffered() == 0 || err != nil {
			c.onward.Flush()
		}
		c.sending.Unlock()
		if err != nil {
			return err
		}
	}
}

// send passes a frame on, unless it is answered here. What is written to the broker is locked.
func (c *amqpConversation) send(frame *amqpFrame) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		if frame.method == connectionCloseOk {
			return io.EOF
		}
		return nil
	}
	channel := c.channel(frame.channel)
	if channel.client {
		channel.client = frame.method != channelCloseOk
		return nil
	}
	if channel.isSkipped && frame.method == 0 {
		channel.skip(frame)
		c.toward.Flush()
		return nil
	}
	passes := true
	if frame.method != 0 {
		c.ask(frame.method, nil)
		var err error
		if passes, err = c.note(channel, frame); err != nil {
			return err
		}
	}
	if !passes {
		return nil
	}
	_, err := c.onward.Write(frame.bytes)
	return err
}

// skip drops a part of the content of a message that the broker does not get.
func (c *amqpChannel) skip(frame *amqpFrame) {
	if frame.form == amqpHeader && len(frame.bytes) >= 19 {
		c.left = int64(binary.BigEndian.Uint64(frame.bytes[11:]))
	} else if frame.form == amqpBody {
		c.left -= int64(len(frame.bytes) - 8)
	}
	if c.left == 0 {
		c.isSkipped = false
		c.skipped()
	}
}

// note remembers a method whose answer may be changed. passes: the broker gets it.
func (c *amqpConversation) note(channel *amqpChannel, frame *amqpFrame) (passes bool, err error) {
	request := &amqpRequest{method: frame.method, channel: frame.channel}
	switch frame.method {
	case channelOpen:
		*channel = amqpChannel{unconfirmed: map[uint64]*amqpRequest{}, oldest: 1, broker: channel.broker}
	case confirmSelect:
		channel.confirms = true
	case basicPublish:
		if channel.confirms {
			channel.sent++
			request.tag = channel.sent
		}
	}
	isAnswered := request.tag != 0 || frame.method != basicPublish && !slices.Contains(amqpUnanswered, frame.method)
	skipped, after := false, func() {}
	for _, each := range c.all.of(c.relay, frame.method) {
		if !c.chooses(each, nil) {
			continue
		}
		isError := each.Act == "error"
		switch {
		case each.Act == "detach" || isError && each.Code != amqpRefused && each.Instead:
			each.note(request.describe(""))
			if err := c.close(request, each); err != nil || each.Code != amqpBlocked {
				return false, err
			}
		case !isAnswered || isError && each.Code == amqpRefused && frame.method != basicPublish:
			each.unfit.Add(1)
		case each.Act == "drop" && each.Instead:
			each.note(request.describe(""))
			if each.Close {
				return false, errClosed
			}
			skipped = true
		case isError && each.Instead:
			each.note(request.describe(""))
			skipped = true
			after = func() { c.toward.Write(packConfirm(frame.channel, basicNack, request.tag)) }
		default:
			request.rules = append(request.rules, each)
		}
		if skipped {
			break
		}
	}
	channel.single = channel.single || skipped || len(request.rules) > 0
	if skipped && frame.method == basicPublish {
		channel.skipped, channel.left, channel.isSkipped = after, -1, true
	} else if request.tag != 0 {
		channel.passed++
		channel.unconfirmed[channel.passed] = request
	} else if len(request.rules) > 0 {
		channel.waiting = request
	}
	return !skipped, nil
}

// close says that the broker has an error, and lets the broker hear as much: it closes the channel or the connection of
// a request, or says that the connection is blocked. Both locks are held.
func (c *amqpConversation) close(request *amqpRequest, by *rule) error {
	defer c.toward.Flush()
	switch {
	case by.Code == amqpBlocked:
		reason := append([]byte{byte(len(falseErrorText))}, falseErrorText...)
		c.toward.Write(packMethod(0, connectionBlocked, reason))
		go func() {
			<-by.over
			c.tell(packMethod(0, connectionUnblocked, nil), true)
		}()
	case slices.Contains(amqpHard, by.Code):
		c.toward.Write(packClose(0, connectionClose, by.Code, request.method))
		c.isClosed = true
		c.onward.Flush()
		closeWrite(c.server)
	default:
		channel := c.channel(request.channel)
		channel.client, channel.broker = true, true
		c.toward.Write(packClose(request.channel, channelClose, by.Code, request.method))
		c.onward.Write(packClose(request.channel, channelClose, 200, 0))
		return c.onward.Flush()
	}
	return nil
}

// A piece is an answer to one request.
type amqpPiece struct {
	bytes   []byte
	request *amqpRequest
}

// answers reads what the broker sends and passes it on, changed where a rule says so, until it ends.
func (c *amqpConversation) answers() error {
	from := bufio.NewReaderSize(c.server, 64<<10)
	if _, err := from.Peek(1); err != nil {
		return err
	}
	if c.isOther.Load() {
		return c.copyToward(from)
	}
	if first, _ := from.Peek(1); first[0] == amqpGreeting[0] { // the version that it would speak
		return c.copyToward(from)
	}
	for frames := (amqpReader{from: from}); ; {
		frame, err := frames.next()
		if err != nil {
			c.tell(nil, true)
			return err
		}
		for _, each := range c.take(frame) {
			changed, ended, err := each.bytes, false, error(nil)
			if each.request != nil && len(each.request.rules) > 0 {
				changed, ended, err = c.change(each.request.rules, each.bytes, each.request.describe, c.refuser(each))
			}
			if err != nil {
				return err
			}
			if err := c.tellChanged(changed, ended, from.Buffered() == 0); err != nil {
				return err
			}
		}
		if from.Buffered() == 0 {
			c.tell(nil, true)
		}
	}
}

// refuser makes the answer that says an error; false: an answer of this kind cannot.
func (c *amqpConversation) refuser(one amqpPiece) func(by *rule, answer []byte) ([]byte, string, bool) {
	return func(by *rule, answer []byte) ([]byte, string, bool) {
		if by.Code == amqpRefused {
			return packConfirm(one.request.channel, basicNack, one.request.tag), "", true
		}
		c.sending.Lock()
		defer c.sending.Unlock()
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return nil, "", c.close(one.request, by) == nil
	}
}

// take splits a frame into the answers to single requests, and removes these; none: the client does not get it.
func (c *amqpConversation) take(frame *amqpFrame) []amqpPiece {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		return nil
	}
	channel, known := c.channels[frame.channel]
	whole := []amqpPiece{{bytes: frame.bytes}}
	if !known {
		return whole
	}
	if channel.broker {
		channel.broker = frame.method != channelCloseOk
		return nil
	}
	if waiting := channel.waiting; waiting != nil && frame.method == waiting.method+1 {
		channel.waiting = nil
		whole[0].request = waiting
		return whole
	}
	isConfirm := (frame.method == basicAck || frame.method == basicNack) && channel.confirms
	if !isConfirm || len(frame.arguments()) < 9 {
		return whole
	}
	last := binary.BigEndian.Uint64(frame.arguments())
	first, isMultiple := last, frame.arguments()[8]&1 != 0
	if isMultiple {
		first = channel.oldest
	}
	var single []amqpPiece
	for tag := first; tag <= last; tag++ {
		if request, is := channel.unconfirmed[tag]; is {
			delete(channel.unconfirmed, tag)
			single = append(single, amqpPiece{packConfirm(frame.channel, frame.method, request.tag), request})
		}
	}
	for channel.oldest <= channel.passed && channel.unconfirmed[channel.oldest] == nil {
		channel.oldest++
	}
	if !channel.single {
		return whole
	}
	return single
}
