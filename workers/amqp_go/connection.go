package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// Between two tries to connect.
	pause = 250 * time.Millisecond
	guest = "guest"
	// A broker that is frozen answers no connection; the client's own default is 30 s.
	connectWithin = 5 * time.Second
	optionsHint   = "options are Config.Heartbeat and other fields of amqp.Config, and those of worker.toml"
)

// producing and consuming are what an application fills in; the names of options are paths in these. Beside the
// client's Config stand the numbers of an application.
type producing struct {
	Config       amqp.Config
	Transacted   int64 // messages a transaction; 0 = none
	Confirms     confirms
	ConfirmEvery int64 // with confirms: wait for all confirms after so many messages; 0 = never wait
	// With confirms: a publish waits while so many messages have no confirm; 0 = no limit. A broker that gets more than it
	// can store confirms later and later.
	MaxUnconfirmed int64
	Mandatory      bool // a message that no queue takes comes back
	DeliveryMode   uint8
}

type consuming struct {
	Config        amqp.Config
	PrefetchCount int
	AckEvery      int64  // one acknowledgement for so many messages
	Requeue       bool   // a message that is refused goes back to its queue; else it is given up
	StreamOffset  string // the queues are streams, which are read from here: first or next
}

type auditing struct {
	Config amqp.Config
}

// confirms that the application waits for, and how.
type confirms int

const (
	none     confirms = iota
	notify            // NotifyPublish
	deferred          // PublishWithDeferredConfirm
)

var structOptions = kit.StructOptions{
	Library: "amqp091-go",
	Hint:    optionsHint,
	Words:   map[string]map[string]int64{"confirms": {"none": 0, "notify": 1, "deferred": 2}},
}

// connection at a time, to whichever broker serves, and one channel of it.
type connection struct {
	session    *kit.Session
	config     amqp.Config
	brokers    []string // URLs
	connection *amqp.Connection
	channel    *amqp.Channel
	closed     chan *amqp.Error // tells once that the channel is gone
	notBefore  time.Time
	why        error
	reconnects atomic.Int64
	blocked    atomic.Int64
	at         int // of brokers: the one that is connected to, or tried next
}

// newConnection takes the options that the client wants as objects out of the others, and sets the rest.
func newConnection(session *kit.Session, into any, config *amqp.Config) (*connection, error) {
	spec := session.Spec
	options, err := spec.Options()
	if err != nil {
		return nil, err
	}
	c := &connection{session: session, why: errors.New("not connected yet")}
	scheme, user, err := secure(options, config)
	if err != nil {
		return nil, err
	}
	if err = structOptions.Set(into, options); err != nil {
		return nil, err
	}
	brokers, rest, _ := strings.Cut(spec.Bootstrap, "/")
	config.Vhost, _, _ = strings.Cut(rest, "?")
	config.SASL = []amqp.Authentication{user}
	config.Dial = amqp.DefaultDial(connectWithin)
	config.Properties = amqp.Table{
		"product": "amqp091-go", "instance": fmt.Sprintf("%s-%08x", spec.Name, spec.RunTag),
		"qpid.client_pid": fmt.Sprint(os.Getpid()),
	}
	for _, at := range strings.Split(brokers, ",") {
		c.brokers = append(c.brokers, scheme+"://"+at+"/")
	}
	c.config = *config
	c.at = number(spec) % len(c.brokers) // clients of a cluster spread over its nodes
	amqp.SetLogger(log.New(os.Stderr, "[amqp091] ", log.LstdFlags|log.Lmicroseconds|log.LUTC))
	return c, session.OptionsTaken()
}

// number of the client among those of its role.
func number(spec *kit.Spec) int {
	switch {
	case spec.Producer != nil:
		return int(spec.Producer.Instance)
	case spec.Consumer != nil:
		return int(spec.Consumer.Session)
	}
	return 0
}

// open a channel, which prepare makes ready, unless there is one. At most one try to connect a quarter second.
func (c *connection) open(prepare func(*amqp.Channel) error) (*amqp.Channel, error) {
	if c.channel != nil {
		return c.channel, nil
	}
	if time.Now().Before(c.notBefore) {
		return nil, c.why
	}
	err := c.connect()
	if err == nil {
		err = c.openChannel(prepare)
	}
	if err != nil {
		c.why, c.notBefore, c.channel = err, time.Now().Add(pause), nil
		return nil, err
	}
	return c.channel, nil
}

func (c *connection) connect() error {
	if c.connection != nil && !c.connection.IsClosed() {
		return nil
	}
	again := c.connection != nil
	var err error
	for range c.brokers {
		var made *amqp.Connection
		if made, err = amqp.DialConfig(c.brokers[c.at], c.config); err == nil {
			c.connection = made
			go c.listenBlocked(made.NotifyBlocked(make(chan amqp.Blocking, 1)))
			if again {
				c.reconnects.Add(1)
				c.session.Report.Event("connect", "connected again", nil)
			}
			return nil
		}
		c.at = (c.at + 1) % len(c.brokers)
	}
	return err
}

// listenBlocked until the connection ends: a broker with an alarm takes no more messages of it.
func (c *connection) listenBlocked(told <-chan amqp.Blocking) {
	for one := range told {
		if one.Active {
			c.blocked.Add(1)
			c.session.Report.Event("blocked", "the broker blocks the connection: "+one.Reason, nil)
		} else {
			c.session.Report.Event("unblocked", "the broker takes messages again", nil)
		}
	}
}

func (c *connection) openChannel(prepare func(*amqp.Channel) error) error {
	channel, err := c.connection.Channel()
	if err != nil {
		return err
	}
	c.closed = channel.NotifyClose(make(chan *amqp.Error, 1))
	if err = prepare(channel); err != nil {
		_ = channel.Close()
		return err
	}
	c.channel = channel
	return nil
}

// broken: the channel is of no use any more, and perhaps the connection.
func (c *connection) broken(err error) {
	c.session.Report.Error(errorText(err))
	c.session.Report.Event("disconnect", errorText(err), nil)
	c.channel, c.why = nil, err
	if c.connection != nil && !c.connection.IsClosed() {
		go func(old *amqp.Connection) { _ = old.Close() }(c.connection) // it may wait for a broker that is gone
	}
}

func (c *connection) close() {
	if c.connection != nil && !c.connection.IsClosed() {
		_ = c.connection.Close()
	}
}

// errorText is the text behind an error id.
func errorText(err error) string {
	var exception *amqp.Error
	if errors.As(err, &exception) {
		return kit.ErrorText(fmt.Sprintf("Exception %d", exception.Code), errors.New(exception.Reason))
	}
	return kit.ErrorText(strings.TrimPrefix(reflect.TypeOf(err).String(), "*"), err)
}

func refused(what string, err error) error {
	return kit.Failuref(optionsHint+"; see also the client's log (stderr.log)", "amqp091-go %s: %v", what, err)
}
