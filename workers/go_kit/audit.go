package kit

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// ErrGone: the brokers, all of them up, say that there is no such stream any more. It is empty then, which is not the
// same as one that cannot be read.
var ErrGone = errors.New("the stream is gone")

const lookEvery = 200 * time.Millisecond

// LogReader is what a client library adds to the audit of logs with dense positions.
type LogReader interface {
	// Bounds of a stream now: its first position, and the one behind its last. An error that is ErrGone ends in an
	// empty stream.
	Bounds(stream string) (begin, end int64, err error)
	// Read calls row for each message from begin on, in the order of positions, until it returns false, the context is
	// done, or there is none before end any more (nil).
	Read(leave context.Context, stream string, begin, end int64, row func(LogRow) bool) error
	Close()
}

// LogRow is a message as it is stored.
type LogRow struct {
	Position     int64
	BrokerTimeMs int64
	Value        []byte
}

// progress of one stream: a line of log_bounds.jsonl.
type progress struct {
	Stream    string `json:"stream"`
	StreamID  int32  `json:"stream_id"`
	Begin     int64  `json:"begin"`
	End       int64  `json:"end"`
	ReadTo    int64  `json:"read_to"`
	Why       string `json:"why"`
	Isolation string `json:"isolation"`
}

type audit struct {
	session  *Session
	reader   LogReader
	segments *Segments
	streams  []*progress
	read     atomic.Int64
	open     atomic.Int64
	fails    error
}

// RunAudit fixes the ends of all streams at `start`, reads one after the other, and writes down how far it came.
// errorText makes the text behind an error id.
func RunAudit(session *Session, reader LogReader, errorText func(error) string) error {
	part := session.Spec.Audit
	a := &audit{session: session, reader: reader, segments: &Segments{
		folder: session.Spec.Folder, table: tableLog, owner: part.Reader, runTag: session.Spec.RunTag,
		capacity: defaultCapacity,
	}}
	for _, name := range part.Streams {
		id := session.Names.ID("stream", name)
		a.streams = append(a.streams, &progress{Stream: name, StreamID: id, Isolation: part.Isolation})
	}
	a.open.Store(int64(len(a.streams)))
	session.Report.Counts(func() map[string]any {
		return map[string]any{"read": a.read.Load(), "streams_open": a.open.Load()}
	})
	session.Ready()
	<-session.Control.started
	for _, stream := range a.streams {
		a.fix(stream, errorText)
	}
	for _, stream := range a.streams {
		a.readStream(stream, errorText)
		a.open.Add(-1)
	}
	reader.Close()
	if err := a.writeBounds(); err != nil {
		return err
	}
	return a.fails
}

// fix where a stream begins and ends.
func (a *audit) fix(stream *progress, errorText func(error) string) {
	begin, end, err := a.reader.Bounds(stream.Stream)
	switch {
	case errors.Is(err, ErrGone):
		stream.Why = "end"
		a.session.Report.Event("gone", stream.Stream+": "+err.Error(), nil)
	case err != nil:
		stream.Why, stream.End = "error", 1 // at least one message that nobody read
		a.session.Report.Error(errorText(err))
	default:
		stream.Begin, stream.ReadTo, stream.End = begin, begin, end
		if begin >= end {
			stream.Why = "end"
		}
	}
}

func (a *audit) readStream(stream *progress, errorText func(error) string) {
	if stream.Why != "" || a.fails != nil {
		return
	}
	leave, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := atomic.Int64{}
	seen.Store(stream.ReadTo)
	done := make(chan error, 1)
	go func() {
		done <- a.reader.Read(leave, stream.Stream, stream.Begin, stream.End, func(found LogRow) bool {
			if found.Position < stream.ReadTo { // a second look at what was read
				return leave.Err() == nil
			}
			if found.Position >= stream.End || !a.row(stream, found) {
				return false
			}
			stream.ReadTo = found.Position + 1
			seen.Store(stream.ReadTo)
			return stream.ReadTo < stream.End && leave.Err() == nil
		})
	}()
	err, why := a.await(done, &seen, cancel)
	switch {
	case why != "":
		stream.Why = why
	case err != nil:
		stream.Why = "error"
		a.session.Report.Error(errorText(err))
	case a.fails != nil:
		stream.Why = "error"
	default: // positions without a message count: the reader came to the end
		stream.Why, stream.ReadTo = "end", stream.End
	}
}

// await the end of a reading; why it was ended before that: no progress for too long, or no more time.
func (a *audit) await(done <-chan error, seen *atomic.Int64, cancel func()) (error, string) {
	stall := time.Duration(a.session.Spec.Audit.StallS * float64(time.Second))
	last, since := seen.Load(), time.Now()
	for {
		select {
		case err := <-done:
			return err, ""
		case <-time.After(lookEvery):
		}
		now, why := seen.Load(), ""
		if now != last {
			last, since = now, time.Now()
		}
		if a.session.Control.Over() {
			why = "deadline"
		} else if time.Since(since) > stall {
			why = "stall"
			a.session.Report.Event("stall", "no message for too long", nil)
		}
		if why != "" {
			cancel()
			<-done
			return nil, why
		}
	}
}

func (a *audit) row(stream *progress, found LogRow) bool {
	row, err := a.segments.next()
	if err != nil {
		a.fails = err
		return false
	}
	value := found.Value
	if len(value) > headerBytes {
		value = value[:headerBytes]
	}
	row.writeLog(logRow{
		position: found.Position, brokerTimeMs: found.BrokerTimeMs, stream: stream.StreamID,
		check: check(found.Value, a.session.Spec.RunTag), value: value,
	})
	a.read.Add(1)
	return true
}

func (a *audit) writeBounds() error {
	var text []byte
	for _, stream := range a.streams {
		if stream.Why == "" {
			stream.Why = "deadline"
		}
		line, err := json.Marshal(stream)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	path := filepath.Join(a.session.Spec.Folder, "log_bounds.jsonl")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return Failuref("", "cannot write %s: %s", path, reason(err))
	}
	return nil
}
