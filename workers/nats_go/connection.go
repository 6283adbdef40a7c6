package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var structOptions = kit.StructOptions{
	Library: "nats.go",
	Hint:    "options are paths: Connection.ReconnectWait, Publish.AsyncTimeout, Consumer.AckWait ...",
	Words: map[string]map[string]int64{
		"DeliverPolicy": {"all": 0, "last": 1, "new": 2},
		"ReplayPolicy":  {"instant": 0, "original": 1},
	},
}

// connection to the servers; what it loses and finds again are marks on the time line.
type connection struct {
	nats       *nats.Conn
	js         jetstream.JetStream
	reconnects atomic.Int64
}

// securing has the options that a secure cluster asks for; the client wants an object of some.
type securing struct {
	CA, Certificate, Key string
	Enable, AnyHost      bool
}

// defaults are those of the client, but for one: an application that runs for long does not give up for good.
func defaults() nats.Options {
	options := nats.GetDefaultOptions()
	options.MaxReconnect = -1
	return options
}

// connect to the servers of the spec. changed is told of connections that were lost, or made again; it may be nil.
func connect(
	session *kit.Session, options nats.Options, tls securing, more []jetstream.JetStreamOpt, changed func(string),
) (*connection, error) {
	c, lines := &connection{}, log.New(os.Stderr, "[nats.go] ", log.LstdFlags|log.Lmicroseconds|log.LUTC)
	told := func(kind, text string) {
		lines.Print(text)
		session.Report.Event(kind, text, nil)
		if changed != nil {
			changed(text)
		}
	}
	if tls.Enable {
		config, err := kit.TLSConfig(tls.CA, tls.Certificate, tls.Key, tls.AnyHost)
		if err != nil {
			return nil, kit.Failuref("check tls and auth of the connection file", "nats.go: TLS: %v", err)
		}
		options.TLSConfig, options.Secure = config, true
	}
	options.Servers, options.Name = strings.Split(session.Spec.Bootstrap, ","), session.Spec.Name
	options.DisconnectedErrCB = func(_ *nats.Conn, err error) {
		if err != nil { // nil: we closed it
			told("disconnect", fmt.Sprintf("the client lost its connection: %v", err))
		}
	}
	options.ReconnectedCB = func(now *nats.Conn) {
		c.reconnects.Add(1)
		told("connect", "the client is connected again, to "+now.ConnectedUrlRedacted())
	}
	options.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
		lines.Print(err)
		session.Report.Error(errorText(err))
	}
	options.ClosedCB = func(closed *nats.Conn) { lines.Printf("closed: %v", closed.LastError()) }
	if err := session.OptionsTaken(); err != nil {
		return nil, err
	}
	var err error
	if c.nats, err = options.Connect(); err != nil {
		return nil, refused("refused to start", err)
	}
	if c.js, err = jetstream.New(c.nats, more...); err != nil {
		return nil, refused("refused its options", err)
	}
	return c, nil
}

func refused(what string, err error) error {
	hint := structOptions.Hint + "; see also the client's log (stderr.log)"
	return kit.Failuref(hint, "nats.go %s: %v", what, err)
}

// streams of the servers by ours, and back: a name of theirs has no dots.
type streams struct{ theirs, ours map[string]string }

func streamsOf(spec *kit.Spec) streams {
	found := streams{map[string]string{}, map[string]string{}}
	for name, topic := range spec.Topics {
		for partition := 0; partition < topic.Partitions; partition++ {
			stream, at := fmt.Sprintf("%s-%d", name, partition), fmt.Sprintf("%s-%d", topic.Address, partition)
			found.theirs[stream], found.ours[at] = at, stream
		}
	}
	return found
}

// their name of a stream.
func (s streams) their(stream string) string {
	if name, known := s.theirs[stream]; known {
		return name
	}
	return stream
}

// our name of a stream.
func (s streams) our(name string) string {
	if stream, known := s.ours[name]; known {
		return stream
	}
	return name
}

// limitOf what the client asks the servers, before it is told that nobody answers.
const asking = 10 * time.Second

// errorText is the text behind an error id: the servers' code, or the client's own words.
func errorText(err error) string {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return fmt.Sprintf("JetStream %d: %s", api.ErrorCode, api.Description)
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "nats: "), "\n")
	return kit.ErrorText(line, err)
}
