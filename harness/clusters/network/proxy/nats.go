package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Kinds of requests of NATS have numbers of our own: the protocol has one verb for all of them.
const (
	natsPublish = 1 // a message with a subject for its acknowledgement
	natsAck     = 2 // of a consumer
	natsNext    = 3 // a consumer asks for messages
)

// Requests to JetStream's API, by the subject after its prefix.
var natsRequests = map[string]int16{
	"CONSUMER.MSG.NEXT": natsNext, "CONSUMER.CREATE": 4, "CONSUMER.DURABLE.CREATE": 5, "CONSUMER.INFO": 6,
	"CONSUMER.DELETE": 7, "STREAM.CREATE": 8, "STREAM.INFO": 9, "STREAM.NAMES": 10, "STREAM.PURGE": 11,
	"STREAM.DELETE": 12, "STREAM.MSG.GET": 13, "DIRECT.GET": 14,
}

// Statuses that a message without a payload says in its header. Their numbers are ours.
var natsStatuses = map[int16]string{
	1: "503", 2: "404 No Messages", 3: "408 Request Timeout", 4: "409 Consumer Deleted", 5: "409 Leadership Change",
	6: "409 Server Shutdown", 7: "409 Exceeded MaxWaiting", 8: "400 Bad Request",
}

// Only this status answers every request: there was no subscription to its subject.
const natsNoResponders = 1

// The codes of errors of JetStream (server/errors.json) that are not 503, by their numbers.
var natsCodes = map[int16]int{
	10002: 400, 10003: 400, 10009: 500, 10014: 404, 10028: 500, 10041: 500, 10047: 500, 10051: 500, 10054: 400,
	10059: 404, 10060: 400, 10070: 400, 10071: 400, 10109: 400, 10118: 500, 10119: 500, 10167: 429,
}

// What a server says before it closes a connection. Their numbers are ours.
var natsClosings = map[int16]string{
	1: "Slow Consumer", 2: "Stale Connection", 3: "maximum connections exceeded", 4: "Authorization Violation",
}

// The number of the closing that names no error: the server is about to be stopped.
const natsLameDuck = 5

var errNotNats = errors.New("these bytes are not of a client of NATS")

// Verbs of clients and of servers, and whether a payload follows.
var natsVerbs = map[string]bool{
	"CONNECT": false, "PUB": true, "HPUB": true, "SUB": false, "UNSUB": false, "PING": false, "PONG": false,
	"INFO": false, "MSG": true, "HMSG": true, "+OK": false, "-ERR": false,
}

// A natsLine is a line of the protocol, and the bytes of the payload that follows it, with its end.
type natsLine struct {
	bytes   []byte
	words   []string
	payload int64
}

// readNats reads a line. Its bytes are valid until the next read.
func readNats(from *bufio.Reader) (*natsLine, error) {
	bytes, err := from.ReadSlice('\n')
	line := &natsLine{bytes: bytes}
	if err == bufio.ErrBufferFull {
		return line, errNotNats
	}
	if err != nil {
		return line, err
	}
	line.words = strings.Fields(string(bytes))
	if len(line.words) == 0 {
		return line, errNotNats
	}
	hasPayload, known := natsVerbs[strings.ToUpper(line.words[0])]
	if !known {
		return line, errNotNats
	}
	if hasPayload {
		size, err := strconv.ParseInt(line.words[len(line.words)-1], 10, 32)
		if err != nil || size < 0 || len(line.words) < 3 {
			return line, errNotNats
		}
		line.payload = size + 2
	}
	return line, nil
}

// whole reads the payload too, and returns all bytes of the message.
func (l *natsLine) whole(from *bufio.Reader) ([]byte, error) {
	bytes := append(make([]byte, 0, int64(len(l.bytes))+l.payload), l.bytes...)
	start := len(bytes)
	bytes = bytes[:int64(start)+l.payload]
	_, err := io.ReadFull(from, bytes[start:])
	return bytes, err
}

// pass writes the message as it is.
func (l *natsLine) pass(to io.Writer, from *bufio.Reader) error {
	_, err := to.Write(l.bytes)
	if err == nil && l.payload > 0 {
		_, err = io.CopyN(to, from, l.payload)
	}
	return err
}

// A natsRequest waits for its answer.
type natsRequest struct {
	kind           int16
	subject, reply string
	sid            string // of the subscription that gets the answer; empty: of another connection
	rules          []*rule
	// The client has an answer already, so the broker's is dropped.
	isAnswered bool
}

// request of a published message; nil: it asks for no answer, and is not an acknowledgement.
func (l *natsLine) request() *natsRequest {
	sizes, published := map[string]int{"PUB": 1, "HPUB": 2}[strings.ToUpper(l.words[0])]
	if !published {
		return nil
	}
	found := &natsRequest{kind: natsPublish, subject: l.words[1]}
	if len(l.words) == 3+sizes {
		found.reply = l.words[2]
	}
	if strings.HasPrefix(found.subject, "$JS.ACK.") {
		found.kind = natsAck
	} else if found.reply == "" {
		return nil
	} else if name, is := strings.CutPrefix(found.subject, "$JS.API."); is {
		found.kind = 0
		for api, kind := range natsRequests {
			if name == api || strings.HasPrefix(name, api+".") {
				found.kind = kind
			}
		}
	}
	return found
}

// key of the answers to a request. What a consumer gets has the subject of the message, and not that of the request.
func (r *natsRequest) key() string {
	if r.kind == natsNext {
		return "sid " + r.sid
	}
	return r.reply
}

func (r *natsRequest) describe(string) string {
	if r.reply == "" {
		return r.subject
	}
	return fmt.Sprintf("%s (reply to %s)", r.subject, r.reply)
}

// refuse makes the answer that says an error; false: an answer to such a request cannot.
func (r *natsRequest) refuse(by *rule, _ []byte) ([]byte, string, bool) {
	if r.sid == "" {
		return nil, "", false
	}
	if status, is := natsStatuses[by.Code]; is {
		if r.kind != natsNext && by.Code != natsNoResponders {
			return nil, "", false
		}
		header := "NATS/1.0 " + status + "\r\n\r\n"
		said := fmt.Sprintf("HMSG %s %s %d %d\r\n%s\r\n", r.reply, r.sid, len(header), len(header), header)
		return []byte(said), "", true
	}
	if r.kind == natsNext || r.kind == natsAck {
		return nil, "", false // it would be taken for a message, or for a confirmation
	}
	code, known := natsCodes[by.Code]
	if !known {
		code = 503
	}
	said := map[string]any{"code": code, "err_code": by.Code, "description": falseErrorText}
	answer := map[string]any{"error": said}
	if r.kind == natsPublish {
		answer["stream"], answer["seq"] = "", 0
	}
	payload, err := json.Marshal(answer)
	if err != nil {
		return nil, "", false
	}
	return fmt.Appendf(nil, "MSG %s %s %d\r\n%s\r\n", r.reply, r.sid, len(payload), payload), "", true
}

// A natsConversation relays one connection of a client of NATS and finds the request of each answer by its subject.
type natsConversation struct {
	*relayed
	waiting       map[string][]*natsRequest // by key
	subscriptions map[string]string         // by sid, their subjects
	info          []byte                    // what the server said last about itself
}

func runNats(relayed *relayed) {
	c := &natsConversation{
		relayed: relayed, waiting: map[string][]*natsRequest{}, subscriptions: map[string]string{},
	}
	c.run(c.requests, c.answers)
}

// greet passes the server's first line on, after which TLS begins. Not a byte more is read.
func greet(client, server link) error {
	for one := make([]byte, 1); one[0] != '\n'; {
		if _, err := server.Read(one); err != nil {
			return err
		}
		if _, err := client.Write(one); err != nil {
			return err
		}
	}
	return nil
}

// requests reads what the client sends and passes it on, until it ends.
func (c *natsConversation) requests() error {
	from := bufio.NewReaderSize(c.client, 64<<10)
	for {
		line, err := readNats(from)
		if err != nil {
			c.sending.Lock()
			c.onward.Write(line.bytes)
			c.sending.Unlock()
			if err == errNotNats {
				return c.copyOnward(from)
			}
			c.flushOnward()
			return err
		}
		request := c.see(line)
		var rules []*rule
		if request != nil {
			rules = c.all.of(c.relay, request.kind)
		}
		var bytes []byte
		if len(rules) > 0 {
			if bytes, err = line.whole(from); err != nil {
				return err
			}
		}
		c.sending.Lock()
		if len(rules) > 0 {
			err = c.send(request, bytes, rules)
		} else {
			err = line.pass(c.onward, from)
		}
		if from.Buffered() == 0 || err != nil {
			c.onward.Flush()
		}
		c.sending.Unlock()
		if err != nil {
			return err
		}
	}
}

// see keeps what is needed later of a line of the client; the request that it is.
func (c *natsConversation) see(line *natsLine) *natsRequest {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch words := line.words; strings.ToUpper(words[0]) {
	case "SUB":
		if len(words) >= 3 {
			c.subscriptions[words[len(words)-1]] = words[1]
		}
	case "UNSUB":
		if len(words) == 2 { // with a number, messages still come
			delete(c.subscriptions, words[1])
		}
	}
	request := line.request()
	if request != nil {
		c.ask(request.kind, nil)
	}
	return request
}

// send passes a request on, unless it is answered here.
func (c *natsConversation) send(request *natsRequest, bytes []byte, rules []*rule) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for sid, subject := range c.subscriptions {
		if isSubject(subject, request.reply) {
			request.sid = sid
		}
	}
	var closing *rule
	for _, each := range rules {
		if !c.chooses(each, nil) {
			continue
		}
		if each.Act == "detach" {
			each.note(request.describe(""))
			closing = each
			continue
		}
		if request.reply == "" {
			each.unfit.Add(1)
			continue
		}
		if each.Act == "drop" && each.Instead {
			each.note(request.describe(""))
			if each.Close {
				return errClosed
			}
			return nil
		}
		if each.Act == "error" && (each.Instead || each.Before) {
			answer, _, fits := request.refuse(each, nil)
			each.count(request.describe(""), fits)
			if !fits {
				continue
			}
			c.toward.Write(answer)
			c.toward.Flush()
			if each.Before {
				c.sendLater(each, func() {
					c.mutex.Lock()
					request.isAnswered = true
					c.waiting[request.key()] = append(c.waiting[request.key()], request)
					c.mutex.Unlock()
					c.onward.Write(bytes)
				})
			}
			return nil
		}
		request.rules = append(request.rules, each)
	}
	if len(request.rules) > 0 {
		c.waiting[request.key()] = append(c.waiting[request.key()], request)
	}
	if _, err := c.onward.Write(bytes); err != nil {
		return err
	}
	if closing != nil {
		return c.close(closing.Code)
	}
	return nil
}

// close says why the connection ends, as a server does, and ends it in good order.
func (c *natsConversation) close(why int16) error {
	said := fmt.Appendf(nil, "-ERR '%s'\r\n", natsClosings[why])
	if why == natsLameDuck {
		about := map[string]any{}
		json.Unmarshal(c.info, &about)
		about["ldm"] = true
		text, err := json.Marshal(about)
		if err != nil {
			return err
		}
		said = fmt.Appendf(nil, "INFO %s\r\n", text)
	}
	c.toward.Write(said)
	c.toward.Flush()
	closeWrite(c.client)
	c.isClosed = true
	return io.EOF
}

// answers reads what the server sends and passes it on, changed where a rule says so, until it ends.
func (c *natsConversation) answers() error {
	from := bufio.NewReaderSize(c.server, 64<<10)
	for {
		line, err := readNats(from)
		if err != nil {
			c.tell(line.bytes, true)
			if err == errNotNats {
				return c.copyToward(from)
			}
			return err
		}
		c.mutex.Lock()
		request := c.take(line)
		if request == nil && !c.isClosed {
			err = line.pass(c.toward, from)
			if err == nil && from.Buffered() == 0 {
				err = c.toward.Flush()
			}
		}
		isClosed := c.isClosed
		c.mutex.Unlock()
		if isClosed {
			_, err = io.CopyN(io.Discard, from, line.payload)
		} else if request != nil {
			err = c.answer(from, line, request)
		}
		if err != nil {
			return err
		}
	}
}

// take removes the request that a line answers, and keeps what the server says of itself. The mutex is held.
func (c *natsConversation) take(line *natsLine) *natsRequest {
	switch verb := strings.ToUpper(line.words[0]); {
	case verb == "INFO":
		c.info = slices.Clone(line.bytes[len("INFO "):])
		return nil
	case line.payload == 0 || len(c.waiting) == 0:
		return nil
	}
	for _, key := range []string{line.words[1], "sid " + line.words[2]} {
		if waiting := c.waiting[key]; len(waiting) > 0 {
			if c.waiting[key] = waiting[1:]; len(waiting) == 1 {
				delete(c.waiting, key)
			}
			return waiting[0]
		}
	}
	return nil
}

func (c *natsConversation) answer(from *bufio.Reader, line *natsLine, request *natsRequest) error {
	bytes, err := line.whole(from)
	if err != nil || request.isAnswered {
		return err
	}
	changed, ended, err := c.change(request.rules, bytes, request.describe, request.refuse)
	if err != nil {
		return err
	}
	return c.tellChanged(changed, ended, from.Buffered() == 0)
}

// isSubject says whether a subscription to a subject gets what is sent to another one.
func isSubject(subscribed, sent string) bool {
	tokens := strings.Split(sent, ".")
	wanted := strings.Split(subscribed, ".")
	for at, each := range wanted {
		if each == ">" {
			return len(tokens) > at
		}
		if at >= len(tokens) || each != "*" && each != tokens[at] {
			return false
		}
	}
	return len(wanted) == len(tokens)
}
