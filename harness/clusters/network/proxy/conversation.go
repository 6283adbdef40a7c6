package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A frame that is longer belongs to no message of Kafka, whose brokers refuse more than 100 MiB by default.
const longestFrame = 200 << 20

var (
	errNotKafka = errors.New("these bytes are no request")
	errClosed   = errors.New("a rule closes the connection")
)

// A sent request is one that the client waits for an answer to.
type sent struct {
	number int32
	// The request as it came; nil where no rule is about its answer.
	frame *frame
	// What its answer will be changed by.
	rules []*rule
	// The answer in place of the broker's, which is not asked; nil where the broker is asked.
	instead []byte
	// The client has an answer already, so the broker's is dropped.
	isAnswered bool
}

// A conversation relays one connection of a client of Kafka and knows which answer belongs to which request: brokers
// answer in the order of the requests.
type conversation struct {
	*relayed
	waiting []*sent
}

func runKafka(relayed *relayed) {
	c := &conversation{relayed: relayed}
	c.run(c.requests, c.answers)
}

// requests reads what the client sends and passes it on, until it ends.
func (c *conversation) requests() error {
	from := bufio.NewReaderSize(c.client, 64<<10)
	for {
		bytes, err := readFrame(from)
		if err == errNotKafka { // of another protocol: it passes as it is
			return c.copyOnward(from)
		}
		if err != nil {
			c.flushOnward()
			return err
		}
		if err := c.send(bytes, from.Buffered() == 0); err != nil {
			return err
		}
	}
}

// send passes a request on, unless it is answered here. isLast: no other one waits.
func (c *conversation) send(bytes []byte, isLast bool) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	request, err := parseRequest(bytes)
	passed, ended := true, false
	if err == nil {
		passed, ended = c.note(request, bytes)
	}
	if ended {
		c.onward.Flush()
		return errClosed
	}
	if passed {
		if _, err := c.onward.Write(bytes); err != nil {
			return err
		}
	}
	if isLast {
		return c.onward.Flush()
	}
	return nil
}

// note remembers a request whose answer will come. passed: the broker gets it now. ended: the connection is closed
// where it is.
func (c *conversation) note(request *frame, bytes []byte) (passed, ended bool) {
	if !request.isAnswered() {
		return true, false
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	waiting := &sent{number: request.number}
	for _, each := range c.all.of(c.relay, request.kind) {
		if each.Act == "flip" && request.kind == int16(kmsg.Produce) {
			if c.chooses(each, &request.client) {
				each.count(request.describe(""), request.read() && flipOne(recordsOf(request.request)))
			}
			continue
		}
		if !c.chooses(each, &request.client) {
			continue
		}
		if each.Act == "drop" && each.Instead {
			each.note(request.describe(""))
			return false, each.Close
		}
		if each.Act == "error" && (each.Instead || each.Before) {
			answer, changed := request.refuse(each.Code)
			if !changed {
				each.unfit.Add(1)
				continue
			}
			each.note(request.describe(""))
			waiting.instead = answer
			if each.Before {
				c.sendLater(each, func() {
					c.mutex.Lock()
					c.waiting = append(c.waiting, &sent{number: request.number, isAnswered: true})
					c.mutex.Unlock()
					c.onward.Write(bytes)
				})
			}
			break
		}
		waiting.frame, waiting.rules = request, append(waiting.rules, each)
	}
	c.ask(request.kind, &request.client)
	c.waiting = append(c.waiting, waiting)
	c.answerHere()
	return waiting.instead == nil, false
}

// answerHere writes the answers whose turn it is and that need no broker. The mutex is held.
func (c *conversation) answerHere() {
	for len(c.waiting) > 0 && c.waiting[0].instead != nil {
		c.toward.Write(c.waiting[0].instead)
		c.waiting = c.waiting[1:]
	}
	c.toward.Flush()
}

// answers reads what the broker sends and passes it on, changed where a rule says so, until it ends.
func (c *conversation) answers() error {
	from := bufio.NewReaderSize(c.server, 64<<10)
	for {
		head, err := from.Peek(8)
		if err != nil {
			return err
		}
		length := int64(binary.BigEndian.Uint32(head)) + 4
		request := c.take(int32(binary.BigEndian.Uint32(head[4:])))
		if length < 8 || length > longestFrame {
			return c.copyToward(from)
		}
		if request != nil && request.isAnswered {
			err = c.discard(from, length)
		} else if request == nil || len(request.rules) == 0 {
			err = c.pass(from, length)
		} else {
			err = c.change(from, length, request)
		}
		if err != nil {
			return err
		}
	}
}

// take removes the request that an answer is of, and those before it, which got none; nil: it is of no request.
func (c *conversation) take(number int32) *sent {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for at, each := range c.waiting {
		if each.instead != nil || each.number != number {
			continue
		}
		for _, before := range c.waiting[:at] {
			c.toward.Write(before.instead)
		}
		c.waiting = c.waiting[at+1:]
		return each
	}
	return nil
}

func (c *conversation) pass(from *bufio.Reader, length int64) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, err := io.CopyN(c.toward, from, length); err != nil {
		return err
	}
	c.answerHere()
	return c.flush(from)
}

// discard drops an answer of which the client has another one.
func (c *conversation) discard(from *bufio.Reader, length int64) error {
	if _, err := from.Discard(int(length)); err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.answerHere()
	return nil
}

func (c *conversation) change(from *bufio.Reader, length int64, request *sent) error {
	answer := make([]byte, length)
	if _, err := io.ReadFull(from, answer); err != nil {
		return err
	}
	answer, ended, err := c.relayed.change(request.rules, answer, request.frame.describe, request.frame.change)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, err := c.toward.Write(answer); err != nil {
		return err
	}
	if ended { // an orderly end: the client gets what was written
		c.toward.Flush()
		return io.EOF
	}
	c.answerHere()
	return c.flush(from)
}

func (c *conversation) flush(from *bufio.Reader) error {
	if from.Buffered() > 0 {
		return nil
	}
	return c.toward.Flush()
}

// readFrame reads a request with its length in front.
func readFrame(from *bufio.Reader) ([]byte, error) {
	head, err := from.Peek(4)
	if err != nil {
		return nil, err
	}
	length := int64(binary.BigEndian.Uint32(head)) + 4
	if length < 12 || length > longestFrame {
		return nil, errNotKafka
	}
	bytes := make([]byte, length)
	_, err = io.ReadFull(from, bytes)
	return bytes, err
}
