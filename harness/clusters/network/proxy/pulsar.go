package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Commands of PulsarApi.proto that have a meaning here: BaseCommand.Type.
const (
	pulsarProducer      = 5
	pulsarSubscribe     = 4
	pulsarSend          = 6
	pulsarSendReceipt   = 7
	pulsarSendError     = 8
	pulsarAck           = 10
	pulsarFlow          = 11
	pulsarSuccess       = 13
	pulsarError         = 14
	pulsarCloseProducer = 15
	pulsarCloseConsumer = 16
)

// Number of the field that holds the request's id, by command; commands without one are answered by producer and
// sequence id, or not at all.
var pulsarIDField = map[int16]protowire.Number{
	4: 5, 5: 3, 10: 8, 12: 2, 15: 2, 16: 2, 21: 2, 23: 2, 28: 2, 29: 2, // of clients
	50: 1, 52: 1, 54: 1, 56: 1, 58: 1, 60: 1,
	13: 1, 14: 1, 17: 1, 22: 2, 24: 4, 30: 2, 38: 6, // of brokers
	51: 1, 53: 1, 55: 1, 57: 1, 59: 1, 61: 1,
}

// A refusal says how an answer says an error: its command, and the numbers of its fields.
type refusal struct {
	kind                 int16
	id, code, text       protowire.Number
	failed, failedIsWhat protowire.Number // a field that says that it failed, and its value; 0: none
	copied               protowire.Number // a field that repeats the first one of the request; 0: none
}

// Where an error is not said by CommandError, the answer to a request has fields for it.
var pulsarRefusals = map[int16]refusal{
	10: {kind: 38, id: 6, code: 4, text: 5, copied: 1},
	21: {kind: 22, id: 2, code: 4, text: 5, failed: 3, failedIsWhat: 1},
	23: {kind: 24, id: 4, code: 6, text: 7, failed: 3, failedIsWhat: 2},
	50: {kind: 51, id: 1, code: 4, text: 5},
	52: {kind: 53, id: 1, code: 4, text: 5},
	54: {kind: 55, id: 1, code: 4, text: 5},
	56: {kind: 57, id: 1, code: 4, text: 5},
	58: {kind: 59, id: 1, code: 4, text: 5},
	60: {kind: 61, id: 1, code: 4, text: 5},
}

var pulsarNames = map[int16]string{
	4: "SUBSCRIBE", 5: "PRODUCER", 6: "SEND", 10: "ACK", 11: "FLOW", 12: "UNSUBSCRIBE", 15: "CLOSE_PRODUCER",
	16: "CLOSE_CONSUMER", 18: "PING", 20: "REDELIVER_UNACKNOWLEDGED_MESSAGES", 21: "PARTITIONED_METADATA", 23: "LOOKUP",
	28: "SEEK", 29: "GET_LAST_MESSAGE_ID", 50: "NEW_TXN", 52: "ADD_PARTITION_TO_TXN", 54: "ADD_SUBSCRIPTION_TO_TXN",
	56: "END_TXN", 58: "END_TXN_ON_PARTITION", 60: "END_TXN_ON_SUBSCRIPTION",
}

// The text of a false error, as clients log it.
const falseErrorText = "said by brokerstorm"

// Ids of requests that the relay sends itself begin here; clients count from 0.
const ownRequests = uint64(1) << 62

// A command is what is read of a frame: its kind, and its fields that are numbers.
type command struct {
	kind    int16
	numbers map[protowire.Number]uint64
}

// A call names a request, so that its answer is found.
type call struct{ producer, id uint64 }

const noProducer = math.MaxUint64

// call of a command; false: it is not answered, or answers nothing.
func (c *command) call() (call, bool) {
	switch c.kind {
	case pulsarSend, pulsarSendReceipt, pulsarSendError:
		return call{c.numbers[1], c.numbers[2]}, true
	}
	number, known := pulsarIDField[c.kind]
	id, has := c.numbers[number]
	return call{noProducer, id}, known && has
}

func (c *command) describe(string) string {
	name := pulsarNames[c.kind]
	switch c.kind {
	case pulsarSend:
		return fmt.Sprintf("%s of producer %d (sequence id %d)", name, c.numbers[1], c.numbers[2])
	case pulsarAck, pulsarFlow:
		return fmt.Sprintf("%s of consumer %d", name, c.numbers[1])
	}
	if called, has := c.call(); has {
		return fmt.Sprintf("%s (request id %d)", name, called.id)
	}
	return name
}

// readCommand reads a command. Its message is the only one in it.
func readCommand(bytes []byte) (*command, bool) {
	found := &command{numbers: map[protowire.Number]uint64{}}
	for len(bytes) > 0 {
		number, form, n := protowire.ConsumeTag(bytes)
		if n < 0 {
			return nil, false
		}
		bytes = bytes[n:]
		if number == 1 && form == protowire.VarintType {
			kind, n := protowire.ConsumeVarint(bytes)
			if n < 0 || kind > math.MaxInt16 {
				return nil, false
			}
			found.kind, bytes = int16(kind), bytes[n:]
			continue
		}
		if form == protowire.BytesType {
			message, n := protowire.ConsumeBytes(bytes)
			if n < 0 || !found.readNumbers(message) {
				return nil, false
			}
			bytes = bytes[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, form, bytes); n < 0 {
			return nil, false
		}
		bytes = bytes[n:]
	}
	return found, found.kind != 0
}

func (c *command) readNumbers(message []byte) bool {
	for len(message) > 0 {
		number, form, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		if form == protowire.VarintType {
			value, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return false
			}
			c.numbers[number], message = value, message[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, form, message); n < 0 {
			return false
		}
		message = message[n:]
	}
	return true
}

// A field of a command that is made here: a number, or a text.
type field struct {
	number protowire.Number
	value  uint64
	text   string
}

// packCommand makes a frame. Each command is in the field of BaseCommand that has the number of its type.
func packCommand(kind int16, fields ...field) []byte {
	var message []byte
	for _, each := range fields {
		if each.text != "" {
			message = protowire.AppendTag(message, each.number, protowire.BytesType)
			message = protowire.AppendString(message, each.text)
			continue
		}
		message = protowire.AppendTag(message, each.number, protowire.VarintType)
		message = protowire.AppendVarint(message, each.value)
	}
	whole := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(kind))
	whole = protowire.AppendTag(whole, protowire.Number(kind), protowire.BytesType)
	whole = protowire.AppendBytes(whole, message)
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(whole)+4))
	return append(binary.BigEndian.AppendUint32(frame, uint32(len(whole))), whole...)
}

// refuse makes the answer that says an error; false: a request of this kind is not answered.
func (c *command) refuse(code int16) ([]byte, bool) {
	called, is := c.call()
	if !is {
		return nil, false
	}
	if c.kind == pulsarSend {
		return packCommand(pulsarSendError, field{number: 1, value: called.producer}, field{number: 2, value: called.id},
			field{number: 3, value: uint64(code)}, field{number: 4, text: falseErrorText}), true
	}
	how, special := pulsarRefusals[c.kind]
	if !special {
		how = refusal{kind: pulsarError, id: 1, code: 2, text: 3}
	}
	fields := []field{{number: how.id, value: called.id}, {number: how.code, value: uint64(code)},
		{number: how.text, text: falseErrorText}}
	if how.failed != 0 {
		fields = append(fields, field{number: how.failed, value: uint64(how.failedIsWhat)})
	}
	if how.copied != 0 {
		fields = append(fields, field{number: how.copied, value: c.numbers[how.copied]})
	}
	return packCommand(how.kind, fields...), true
}

// A pulsarRequest waits for its answer.
type pulsarRequest struct {
	command *command
	rules   []*rule
	// The client has an answer already, so the broker's is dropped.
	isAnswered bool
}

// An owned object is a producer or a consumer of a connection.
type owned struct {
	closing int16 // the command that closes it
	id      uint64
}

// A pulsarConversation relays one connection of a client of Pulsar and finds the request of each answer by its ids.
type pulsarConversation struct {
	*relayed
	waiting map[call]*pulsarRequest
	closing map[uint64]owned
	own     uint64 // requests that were sent by the relay itself
}

func runPulsar(relayed *relayed) {
	c := &pulsarConversation{relayed: relayed, waiting: map[call]*pulsarRequest{}, closing: map[uint64]owned{}}
	c.run(c.requests, c.answers)
}

// nextFrame says how long the next frame is and what kind of command it begins with; false: it is of another protocol.
func nextFrame(from *bufio.Reader) (length int64, kind int16, known bool, err error) {
	head, err := from.Peek(headBytes)
	if err != nil {
		return 0, 0, false, err
	}
	length = int64(binary.BigEndian.Uint32(head)) + 4
	commandLength := int64(binary.BigEndian.Uint32(head[4:]))
	known = length >= headBytes && length <= longestFrame && commandLength >= 2 && commandLength+8 <= length &&
		head[8] == 8 // the first field is the type, a varint
	return length, int16(head[9]), known, nil
}

// takeFrame reads a frame, and its command.
func takeFrame(from *bufio.Reader, length int64) ([]byte, *command, error) {
	bytes := make([]byte, length)
	if _, err := io.ReadFull(from, bytes); err != nil {
		return nil, nil, err
	}
	found, is := readCommand(bytes[8 : 8+binary.BigEndian.Uint32(bytes[4:])])
	if !is {
		found = nil
	}
	return bytes, found, nil
}

// requests reads what the client sends and passes it on, until it ends.
func (c *pulsarConversation) requests() error {
	from := bufio.NewReaderSize(c.client, 64<<10)
	for {
		length, kind, known, err := nextFrame(from)
		if err != nil || !known {
			if err == nil {
				return c.copyOnward(from)
			}
			c.flushOnward()
			return err
		}
		c.mutex.Lock()
		c.ask(kind, nil)
		c.mutex.Unlock()
		rules := c.all.of(c.relay, kind)
		if len(rules) == 0 {
			c.sending.Lock()
			_, err = io.CopyN(c.onward, from, length)
		} else {
			var bytes []byte
			var request *command
			if bytes, request, err = takeFrame(from, length); err != nil {
				return err
			}
			c.sending.Lock()
			err = c.send(request, bytes, rules)
		}
		if err == nil && from.Buffered() == 0 {
			err = c.onward.Flush()
		}
		c.sending.Unlock()
		if err != nil {
			return err
		}
	}
}

// send passes a request on, unless it is answered here. What is written to the broker is locked.
func (c *pulsarConversation) send(request *command, bytes []byte, rules []*rule) error {
	passed, ended, closing := true, false, []byte(nil)
	if request != nil {
		passed, ended, closing = c.note(request, bytes, rules)
	}
	if passed {
		if _, err := c.onward.Write(bytes); err != nil {
			return err
		}
	}
	c.onward.Write(closing)
	if ended {
		c.onward.Flush()
		return errClosed
	}
	return nil
}

// note remembers a request whose answer will be changed. passed: the broker gets it now. ended: the connection is
// closed where it is. closing: a request of the relay that follows it.
func (c *pulsarConversation) note(request *command, bytes []byte, rules []*rule) (passed, ended bool, closing []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	called, answered := request.call()
	waiting := &pulsarRequest{command: request}
	for _, each := range rules {
		if !c.chooses(each, nil) {
			continue
		}
		if each.Act == "detach" {
			if closing = c.close(request); closing == nil {
				each.unfit.Add(1)
				continue
			}
			each.note(request.describe(""))
			continue
		}
		if !answered {
			each.unfit.Add(1)
			continue
		}
		if each.Act == "drop" && each.Instead {
			each.note(request.describe(""))
			return false, each.Close, closing
		}
		if each.Act == "error" && (each.Instead || each.Before) {
			answer, _ := request.refuse(each.Code)
			each.note(request.describe(""))
			c.toward.Write(answer)
			c.toward.Flush()
			if each.Before {
				c.sendLater(each, func() {
					c.mutex.Lock()
					c.waiting[called] = &pulsarRequest{command: request, isAnswered: true}
					c.mutex.Unlock()
					c.onward.Write(bytes)
				})
			}
			return false, false, closing
		}
		waiting.rules = append(waiting.rules, each)
	}
	if len(waiting.rules) > 0 {
		c.waiting[called] = waiting
	}
	return true, false, closing
}

// close makes a request that closes the producer or the consumer of another request at the broker; nil: there is none,
// or it is being closed. The client hears of it when the broker did it: otherwise it would open the same one again
// before. The mutex is held.
func (c *pulsarConversation) close(request *command) []byte {
	one := owned{pulsarCloseConsumer, request.numbers[1]}
	switch request.kind {
	case pulsarSend:
		one.closing = pulsarCloseProducer
	case pulsarAck, pulsarFlow:
	default:
		return nil
	}
	for _, each := range c.closing {
		if each == one {
			return nil
		}
	}
	c.own++
	number := ownRequests + c.own
	c.closing[number] = one
	return packCommand(one.closing, field{number: 1, value: one.id}, field{number: 2, value: number})
}

// answers reads what the broker sends and passes it on, changed where a rule says so, until it ends.
func (c *pulsarConversation) answers() error {
	from := bufio.NewReaderSize(c.server, 64<<10)
	for {
		length, _, known, err := nextFrame(from)
		if err != nil {
			c.tell(nil, true)
			return err
		}
		if !known {
			return c.copyToward(from)
		}
		c.mutex.Lock()
		isAsked := len(c.waiting)+len(c.closing) > 0
		if !isAsked {
			_, err = io.CopyN(c.toward, from, length)
			if err == nil && from.Buffered() == 0 {
				err = c.toward.Flush()
			}
		}
		c.mutex.Unlock()
		if isAsked {
			err = c.change(from, length)
		}
		if err != nil {
			return err
		}
	}
}

// take removes the request that an answer is of, and the producer or consumer that the broker has closed for the
// relay.
func (c *pulsarConversation) take(answer *command) (*pulsarRequest, *owned) {
	called, is := answer.call()
	if !is {
		return nil, nil
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if one, is := c.closing[called.id]; is && called.producer == noProducer {
		delete(c.closing, called.id)
		return nil, &one
	}
	found := c.waiting[called]
	delete(c.waiting, called)
	return found, nil
}

func (c *pulsarConversation) change(from *bufio.Reader, length int64) error {
	bytes, answer, err := takeFrame(from, length)
	if err != nil {
		return err
	}
	var request *pulsarRequest
	var closed *owned
	if answer != nil {
		request, closed = c.take(answer)
	}
	ended := false
	if closed != nil {
		bytes = nil
		if answer.kind == pulsarSuccess {
			bytes = packCommand(closed.closing, field{number: 1, value: closed.id},
				field{number: 2, value: math.MaxUint64}) // as a broker does, which asks for no answer
		}
	} else if request != nil && request.isAnswered {
		bytes = nil
	} else if request != nil {
		refuse := func(by *rule, _ []byte) ([]byte, string, bool) {
			refused, can := request.command.refuse(by.Code)
			return refused, "", can
		}
		if bytes, ended, err = c.relayed.change(request.rules, bytes, request.command.describe, refuse); err != nil {
			return err
		}
	}
	return c.tellChanged(bytes, ended, from.Buffered() == 0)
}
