package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"brokerstorm/kit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type auditing struct {
	Connection nats.Options
	TLS        securing
}

// One of three servers is given none of so many consumers once in 100,000 times.
const tries = 30

const lookAgain = 3

// logReader reads whole streams, one after the other.
type logReader struct {
	*connection
	streams streams
	report  *kit.Reporter
	// The streams remove what was acknowledged, and take no consumer besides that of their group.
	remaining bool
}

func audit(session *kit.Session) error {
	options, err := session.Spec.Options()
	if err != nil {
		return err
	}
	config, r := &auditing{Connection: defaults()}, &logReader{streams: streamsOf(session.Spec), report: session.Report}
	r.remaining = session.Spec.Audit.Isolation == "remaining"
	if err = structOptions.Set(config, options); err != nil {
		return err
	}
	if r.connection, err = connect(session, config.Connection, config.TLS, nil, nil); err != nil {
		return err
	}
	return kit.RunAudit(session, r, errorText)
}

// Bounds as the leader of the stream tells them. That there is none only the leader of the meta group says.
func (r *logReader) Bounds(stream string) (int64, int64, error) {
	within, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	found, err := r.js.Stream(within, r.streams.their(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, 0, fmt.Errorf("%w: %v", kit.ErrGone, err)
	}
	if err != nil {
		return 0, 0, err
	}
	state := found.CachedInfo().State
	begin := int64(state.FirstSeq)
	// Sequences are counted from 1: nothing was removed. A queue begins at its first message, whatever remains of it.
	if begin <= 1 || r.remaining {
		begin = 0
	}
	return begin, int64(state.LastSeq) + 1, nil
}

// Read the leader's copy: only the leader is sure to have all. It may be another one meanwhile, and servers that
// have just come back may let a request go unanswered: then it is read again.
func (r *logReader) Read(leave context.Context, stream string, begin, end int64, row func(kit.LogRow) bool) error {
	for again := 0; ; again++ {
		err := r.readOnce(leave, r.streams.their(stream), begin, row)
		if err == nil || leave.Err() != nil || again == lookAgain {
			return err
		}
		r.report.Error(errorText(err))
		pause(leave)
	}
}

func (r *logReader) readOnce(leave context.Context, name string, begin int64, row func(kit.LogRow) bool) error {
	if r.remaining {
		return r.readRemaining(leave, name, begin, row)
	}
	leader, err := r.leader(leave, name)
	if err != nil {
		return err
	}
	reader, err := r.readerOn(leave, name, leader, begin)
	if err != nil {
		return err
	}
	defer r.remove(name, reader)
	// A pull that comes before the consumer listens is lost; the client notices by the heartbeats that do not come.
	messages, err := reader.Messages(
		jetstream.PullMaxMessages(5000), jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second),
		jetstream.WithMessagesErrOnMissingHeartbeat(false),
	)
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(leave, messages.Stop)()
	for {
		message, err := messages.Next()
		if leave.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		about, err := message.Metadata()
		if err != nil {
			return err
		}
		found := kit.LogRow{
			Position: int64(about.Sequence.Stream), BrokerTimeMs: about.Timestamp.UnixNano() / int64(time.Millisecond),
			Value: payloadOf(message.Data(), message.Headers()),
		}
		if !row(found) {
			return nil
		}
		// Behind the last one there may be positions without a message.
		if about.NumPending == 0 {
			return r.stillLeads(leave, name, leader)
		}
	}
}

// JetStream's code of an answer that there is no such message.
const noMessage = 10037

// stored is the answer to a request for one message.
type stored struct {
	Error *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Message struct {
		Sequence int64     `json:"seq"`
		Data     []byte    `json:"data"`
		Headers  []byte    `json:"hdrs"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

// readRemaining asks the leader for one message after the other: the next one of the subject at or after a sequence.
func (r *logReader) readRemaining(leave context.Context, name string, begin int64, row func(kit.LogRow) bool) error {
	for at := max(begin, 1); leave.Err() == nil; {
		asked := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, at, name)
		within, cancel := context.WithTimeout(leave, asking)
		answer, err := r.nats.RequestWithContext(within, "$JS.API.STREAM.MSG.GET."+name, []byte(asked))
		cancel()
		if err != nil {
			return err
		}
		var found stored
		if err = json.Unmarshal(answer.Data, &found); err != nil {
			return err
		}
		if found.Error != nil && found.Error.Code == noMessage {
			return nil
		}
		if found.Error != nil {
			return fmt.Errorf("JetStream %d: %s", found.Error.Code, found.Error.Description)
		}
		headers, _ := nats.DecodeHeadersMsg(found.Message.Headers) // none, or of another program
		if !row(kit.LogRow{
			Position: found.Message.Sequence, Value: payloadOf(found.Message.Data, headers),
			BrokerTimeMs: found.Message.Time.UnixNano() / int64(time.Millisecond),
		}) {
			return nil
		}
		at = found.Message.Sequence + 1
	}
	return nil
}

// leader of a stream; empty where there is one server alone.
func (r *logReader) leader(within context.Context, name string) (string, error) {
	found, err := r.js.Stream(within, name)
	if err != nil || found.CachedInfo().Cluster == nil {
		return "", err
	}
	return found.CachedInfo().Cluster.Leader, nil
}

func (r *logReader) stillLeads(within context.Context, name, leader string) error {
	now, err := r.leader(within, name)
	if err == nil && now != leader {
		err = fmt.Errorf("the leader is %s, and was %s when reading began", now, leader)
	}
	return err
}

// readerOn is a consumer on one server. A consumer without replicas reads the copy of the server that it is on, and
// servers choose that at random: so some are made, until one is where it should be.
func (r *logReader) readerOn(within context.Context, name, server string, begin int64) (jetstream.Consumer, error) {
	for try := 0; try < tries; try++ {
		made, err := r.js.CreateConsumer(within, name, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, Replicas: 1, MemoryStorage: true, InactiveThreshold: time.Minute,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(begin, 1)),
		})
		if err != nil {
			return nil, err
		}
		if on := made.CachedInfo().Cluster; on == nil || on.Leader == server {
			return made, nil
		}
		r.remove(name, made)
	}
	return nil, fmt.Errorf("no consumer was made on the leader %s", server)
}

func (r *logReader) remove(name string, made jetstream.Consumer) {
	within, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	_ = r.js.DeleteConsumer(within, name, made.CachedInfo().Name) // else the servers do, when it is idle
}

func (r *logReader) Close() { r.nats.Close() }
