package main

import (
	"bufio"
	"io"
	"slices"
	"sync"
	"time"
)

// A relayed connection of a client has what the conversations of all protocols need: both ends, what is written to
// them, and which requests the rules chose.
type relayed struct {
	all            *answers
	relay          string
	client, server link

	// Of the order in which requests are noted and written to the broker. It is locked before the other one.
	sending sync.Mutex
	onward  *bufio.Writer
	late    sync.WaitGroup // requests that the broker gets later

	mutex  sync.Mutex // of what follows, and of what is written to the client
	toward *bufio.Writer
	met    map[*rule]bool
	asked  map[int16]int64 // by kind of request: when it last came on this connection
	since  map[*rule]int64 // when a request was last met that follows another one
	// The relay has closed the connection, and the client knows: nothing passes any more.
	isClosed bool
}

func newRelayed(all *answers, relay string, client, server link) *relayed {
	return &relayed{
		all: all, relay: relay, client: client, server: server,
		onward: bufio.NewWriterSize(server, 64<<10), toward: bufio.NewWriterSize(client, 64<<10),
		met: map[*rule]bool{}, asked: map[int16]int64{}, since: map[*rule]int64{},
	}
}

// run relays both directions until they end.
func (c *relayed) run(requests, answers func() error) {
	var both sync.WaitGroup
	both.Add(2)
	go func() {
		defer both.Done()
		err := requests()
		c.late.Wait() // they arrive although their sender may have left
		end(c.server, c.client, err)
	}()
	go func() { defer both.Done(); end(c.client, c.server, c.ended(answers())) }()
	both.Wait()
}

// ended is how the client's side ends: what the relay said before it closed must arrive, whatever the broker does.
func (c *relayed) ended(err error) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		return io.EOF
	}
	return err
}

// ask notes that a request of a kind came, for the rules that wait for one. client is nil where the protocol has no
// name of it: such a rule knows the requests of its own connection only. A client may choose the empty name. The mutex
// is held.
func (c *relayed) ask(kind int16, client *string) {
	if client == nil {
		c.asked[kind] = c.all.asked.count.Add(1)
		return
	}
	c.asked[kind] = c.all.asked.add(*client, kind)
}

// chooses decides whether a rule meets a request of a client, and counts it. The mutex is held.
func (c *relayed) chooses(by *rule, client *string) bool {
	first := !c.met[by]
	c.met[by] = true
	return by.chooses(first, c.isNext(by, client))
}

// isNext says whether a request is the first that a rule is about since the one that the rule waits for: on this
// connection, or of this client if none was on this connection.
func (c *relayed) isNext(by *rule, client *string) bool {
	if by.After < 0 {
		return false
	}
	last, here := c.asked[by.After]
	if !here && client != nil {
		last = c.all.asked.of(*client, by.After)
	}
	if last <= c.since[by] {
		return false
	}
	c.since[by] = last
	return true
}

// sendLater calls send after the time of a rule, or when it ends. The client has an answer to that request.
func (c *relayed) sendLater(by *rule, send func()) {
	c.late.Add(1)
	go func() {
		defer c.late.Done()
		by.wait()
		c.sending.Lock()
		defer c.sending.Unlock()
		send()
		c.onward.Flush()
	}()
}

// copyOnward and copyToward pass everything on as it is: bytes of another protocol, or longer than any message.
func (c *relayed) copyOnward(from io.Reader) error {
	if err := c.flushOnward(); err != nil {
		return err
	}
	_, err := io.Copy(c.server, from)
	return err
}

func (c *relayed) copyToward(from io.Reader) error {
	c.mutex.Lock()
	err := c.toward.Flush()
	c.mutex.Unlock()
	if err != nil {
		return err
	}
	_, err = io.Copy(c.client, from)
	return err
}

func (c *relayed) flushOnward() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.onward.Flush()
}

// tell writes to the client. isLast: nothing else waits, or the connection ends.
func (c *relayed) tell(bytes []byte, isLast bool) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, err := c.toward.Write(bytes); err != nil || !isLast {
		return err
	}
	return c.toward.Flush()
}

// tellChanged writes an answer to the client. If the connection ends after it, it ends in good order, and the client
// gets what was written.
func (c *relayed) tellChanged(answer []byte, ended, isLast bool) error {
	if err := c.tell(answer, ended || isLast); err != nil {
		return err
	}
	if ended {
		return io.EOF
	}
	return nil
}

// plainActs need to know nothing of an answer but where it begins and ends.
var plainActs = []string{"close", "drop", "delay", "twice", "reorder"}

// change makes another answer of the broker's by the rules that met its request; empty: none. ended: the connection
// ends after it. alter makes what depends on the protocol, and says more of it; false where that cannot be.
func (c *relayed) change(rules []*rule, answer []byte, describe func(more string) string,
	alter func(by *rule, answer []byte) ([]byte, string, bool)) (changed []byte, ended bool, err error) {
	for _, each := range rules {
		if each.isOver() { // since the request came
			continue
		}
		if !slices.Contains(plainActs, each.Act) {
			altered, more, fits := alter(each, answer)
			if each.count(describe(more), fits); fits {
				answer = altered
			}
			continue
		}
		each.note(describe(""))
		switch each.Act {
		case "close":
			ended = true
		case "drop":
			if each.Close {
				return nil, false, errClosed
			}
			return nil, ended, nil
		case "delay":
			each.wait()
		case "twice":
			answer = append(slices.Clone(answer), answer...)
		case "reorder":
			held := slices.Clone(answer)
			go func() {
				each.wait()
				c.tell(held, true)
			}()
			return nil, ended, nil
		}
	}
	return answer, ended, nil
}

// wait waits as long as the rule says, or until it ends.
func (r *rule) wait() {
	select {
	case <-time.After(time.Duration(r.DelayMs) * time.Millisecond):
	case <-r.over:
	}
}
