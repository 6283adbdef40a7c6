package kit

import (
	"sync/atomic"
)

const (
	// Messages between two looks at commands.
	chunk = 500
	// A span shorter than this cannot hold a freeze worth a look at the clocks.
	longNs = 50_000_000
	// How long calls under way are waited for when the capture cannot go on.
	settleNs = 10_000_000_000
	// How long the sending goroutine may take to notice that it shall end, and the client to close.
	endNs = 2_000_000_000
)

// Message of the schedule. Its row is open from the moment the client is called until Complete.
type Message struct {
	Lane    *Lane
	Payload []byte
	header  Header
	row     row
}

// Client is what a client library adds to the open loop.
type Client interface {
	// CallSize is how many messages one call takes.
	CallSize() int
	// Send calls the client once with these messages, whose rows are written. It returns when the client took
	// them or answered; Complete is called for each, then or later, from any goroutine. Never for one that the
	// client does not answer.
	Send(messages []*Message)
	// Close the client; nothing is open.
	Close()
	// Exposure is what the client can honestly count for `stats`; nil = nothing.
	Exposure() map[string]any
}

// OpenLoop is one producer instance but for the client: life, schedule, rows, numbers. The client is never helped:
// nothing is sent twice (unless the application does that: `results: resent`), nothing is reordered, every result is
// written down.
type OpenLoop struct {
	session  *Session
	client   Client
	lanes    []Lane
	filling  []byte
	capture  bool
	segments *Segments
	schedule schedule
	late     lateness
	resends  resends

	attempted, ok, fail, info atomic.Int64
	blockedNs, blockedSinceNs atomic.Int64
}

// NewOpenLoop prepares a producer; Run starts it.
func NewOpenLoop(session *Session) (*OpenLoop, error) {
	part := session.Spec.Producer
	lanes, err := lanesOf(part.LaneGroups)
	if err != nil {
		return nil, err
	}
	if part.PayloadBytes < MinPayloadBytes {
		return nil, Failuref("", "payload of %d bytes: at least %d are needed", part.PayloadBytes, MinPayloadBytes)
	}
	loop := &OpenLoop{
		session: session,
		lanes:   lanes,
		filling: filler(part.PayloadBytes - MinPayloadBytes),
		capture: part.Capture == nil || *part.Capture,
		segments: &Segments{
			folder: session.Spec.Folder, table: tableSends, owner: part.Instance,
			runTag: session.Spec.RunTag, capacity: defaultCapacity,
		},
		schedule: schedule{ratePerS: part.RatePerS, warmUpS: part.WarmUpS, loadS: part.LoadS},
	}
	loop.late.periodNs = loop.schedule.periodNs()
	loop.resends.on = part.Results == "resent"
	return loop, nil
}

// Lanes of this producer.
func (l *OpenLoop) Lanes() []Lane { return l.lanes }

// Stopping: no further message shall be offered.
func (l *OpenLoop) Stopping() bool { return l.session.Control.stopLoad.Load() }

// Run says `ready`, follows the schedule and the harness, and returns when every row it will ever complete is
// complete. The client may block its goroutine for ever; this one goes on.
func (l *OpenLoop) Run(client Client) error {
	l.client = client
	control := l.session.Control
	l.session.Report.Counts(l.counts)
	l.session.Ready()
	<-control.started
	l.schedule.t0Ns = control.t0Ns.Load()
	finished := make(chan error, 1)
	go func() { finished <- l.load() }()
	failed := l.awaitLoad(finished)
	if failed != nil {
		l.settle(NowNs() + settleNs)
		return failed
	}
	for !control.draining.Load() {
		sleepNs(slackNs)
	}
	l.settle(neverNs)
	if err := l.session.Names.Err(); err != nil {
		return err
	}
	if l.open() == 0 {
		l.close()
	}
	return nil
}

// awaitLoad waits for the sending goroutine: to its end, or until the harness will not wait for a call that the
// client holds.
func (l *OpenLoop) awaitLoad(finished <-chan error) error {
	for !l.session.Control.Over() {
		select {
		case err := <-finished:
			return err
		default:
			sleepNs(slackNs)
		}
	}
	// It ends by itself within moments unless it is in a call; a row it writes now would not be counted.
	for giveUp := NowNs() + endNs; l.blockedSinceNs.Load() == 0 && NowNs() < giveUp; {
		select {
		case err := <-finished:
			return err
		default:
			sleepNs(slackNs)
		}
	}
	return nil
}

func (l *OpenLoop) close() {
	closed := make(chan struct{})
	go func() {
		l.client.Close()
		close(closed)
	}()
	for giveUp := NowNs() + endNs; NowNs() < giveUp; sleepNs(slackNs) {
		select {
		case <-closed:
			return
		default:
		}
	}
}

func (l *OpenLoop) load() error {
	follow := l.loadAtRate
	if l.schedule.ratePerS == 0 {
		follow = l.loadUnlimited
	}
	if err := follow(); err != nil || !l.resends.on {
		return err
	}
	return l.resendRest()
}

func (l *OpenLoop) loadAtRate() error {
	size, freeze := int64(l.client.CallSize()), l.session.Report.freeze
	warmUp, total, sent := l.schedule.warmUpCount(), l.schedule.total(), int64(0)
	for sent < total && !l.Stopping() {
		begun, blocked, frozen := NowNs(), l.blockedNs.Load(), freeze.total()
		edge, kind := total, uint8(Load)
		if sent < warmUp {
			edge, kind = warmUp, WarmUp
		}
		last := least(sent+size, edge) - 1 // of the next call: it is made when that message is due
		due := least(l.schedule.dueCount(begun), edge)
		if due <= last {
			wake := most(l.schedule.dueNs(last), begun+slackNs)
			if err := l.sleepUntil(wake); err != nil {
				return err
			}
			l.lookForFreeze(begun)
			l.late.caughtUp(NowNs() - wake - (l.blockedNs.Load() - blocked) - (freeze.total() - frozen))
			continue
		}
		stop := least(due, sent+most(chunk, size))
		if stop < edge {
			stop -= (stop - sent) % size
		}
		first := sent
		var err error
		if sent, err = l.offer(first, stop, kind); err != nil {
			return err
		}
		if err = l.resendDue(); err != nil {
			return err
		}
		l.lookForFreeze(begun)
		own := NowNs() - begun - (l.blockedNs.Load() - blocked) - (freeze.total() - frozen)
		l.late.worked(own, sent-first)
	}
	return nil
}

func (l *OpenLoop) loadUnlimited() error {
	size := int64(l.client.CallSize())
	loadNs, endNs, sent := l.schedule.loadNs(), l.schedule.endNs(), int64(0)
	if err := l.sleepUntil(l.schedule.t0Ns); err != nil {
		return err
	}
	for now := NowNs(); now < endNs && !l.Stopping(); now = NowNs() {
		kind := uint8(Load)
		if now < loadNs {
			kind = WarmUp
		}
		var err error
		if sent, err = l.offer(sent, sent+size, kind); err != nil {
			return err
		}
		if err = l.resendDue(); err != nil {
			return err
		}
	}
	return nil
}

// offer sends messages first .. stop-1, call by call, a row before each; returns the next one.
func (l *OpenLoop) offer(first, stop int64, kind uint8) (int64, error) {
	size := int64(l.client.CallSize())
	for first < stop && !l.Stopping() {
		until := least(first+size, stop)
		messages, err := l.write(first, until, kind)
		l.call(messages)
		if err != nil {
			return first, err
		}
		first = until
	}
	return first, nil
}

func (l *OpenLoop) call(messages []*Message) {
	if len(messages) > 0 {
		l.attempted.Add(int64(len(messages)))
		l.client.Send(messages)
	}
}

// write the rows of one call, and make its messages.
func (l *OpenLoop) write(first, stop int64, kind uint8) ([]*Message, error) {
	part, count := l.session.Spec.Producer, int64(len(l.lanes))
	messages := make([]*Message, 0, stop-first)
	for i := first; i < stop; i++ {
		lane, now := &l.lanes[i%count], NowNs()
		header := Header{
			RunTag: l.session.Spec.RunTag, Instance: part.Instance, Lane: lane.Number, Seq: uint64(i / count),
			DueNs: now, Key: lane.KeyNumber, Kind: kind,
		}
		if part.RatePerS > 0 {
			header.DueNs = l.schedule.dueNs(i)
		}
		message, err := l.written(lane, header, now)
		if err != nil {
			return messages, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}

// written is a message whose row is open.
func (l *OpenLoop) written(lane *Lane, header Header, startNs int64) (*Message, error) {
	message := &Message{Lane: lane, Payload: encode(header, l.filling), header: header}
	if l.capture {
		row, err := l.segments.next()
		if err != nil {
			return nil, err
		}
		row.openSend(header, startNs)
		message.row = row
	}
	return message, nil
}

// sleepUntil the next message is due; re-sends take their turn.
func (l *OpenLoop) sleepUntil(wakeNs int64) error {
	for left := wakeNs - NowNs(); left > 0 && !l.Stopping(); left = wakeNs - NowNs() {
		nap := int64(100_000_000)
		if l.resends.on {
			if err := l.resendDue(); err != nil {
				return err
			}
			nap = slackNs
		}
		sleepNs(least(left, nap))
	}
	return nil
}

// lookForFreeze when something took long: the ticker may not have run yet.
func (l *OpenLoop) lookForFreeze(sinceNs int64) {
	if NowNs()-sinceNs > longNs {
		l.session.Report.freeze.look()
	}
}

// settle waits for every open call, until the deadline or `stop`.
func (l *OpenLoop) settle(deadlineNs int64) {
	for l.open() > 0 && !l.session.Control.Over() && NowNs() < deadlineNs {
		sleepNs(slackNs)
	}
}

// Blocking runs a call in which the client may hold the caller; its time is the client's.
func (l *OpenLoop) Blocking(call func()) {
	begun := NowNs()
	l.blockedSinceNs.Store(begun)
	call()
	l.blockedNs.Add(NowNs() - begun)
	l.blockedSinceNs.Store(0)
}

// Stored completes a send that the client reported as stored. Position -1: it did not say where.
func (l *OpenLoop) Stored(m *Message, stream string, position int64) {
	done := completion{doneNs: NowNs(), position: position, outcome: OK}
	if position >= 0 {
		done.stream = l.session.Names.ID("stream", stream)
	}
	l.complete(m, done)
}

// Failed completes a send with an error of the client and what it means.
func (l *OpenLoop) Failed(m *Message, outcome Outcome, text string) {
	done := completion{doneNs: NowNs(), position: -1, outcome: outcome, errorID: l.session.Names.ID("error", text)}
	l.session.Report.Error(text)
	l.complete(m, done)
}

func (l *OpenLoop) complete(m *Message, done completion) {
	if m.row != nil {
		if m.row.outcome() != 0 {
			m.row.lateOutcome(done.outcome)
			return
		}
		m.row.completeSend(done)
	}
	if done.outcome != OK {
		l.resends.failed(m)
	}
	switch done.outcome {
	case OK:
		l.ok.Add(1)
	case Fail:
		l.fail.Add(1)
	default:
		l.info.Add(1)
	}
}

func (l *OpenLoop) open() int64 {
	return most(0, l.attempted.Load()-l.ok.Load()-l.fail.Load()-l.info.Load())
}

// counts of the stats line.
func (l *OpenLoop) counts() map[string]any {
	blocked := l.blockedNs.Load()
	if since := l.blockedSinceNs.Load(); since > 0 {
		blocked += NowNs() - since
	}
	fields := map[string]any{
		"attempted": l.attempted.Load(), "ok": l.ok.Load(), "fail": l.fail.Load(), "info": l.info.Load(),
		"open": l.open(), "blocked_ns": blocked, "late_max_ns": l.late.takeMaxNs(),
	}
	if l.resends.on {
		fields["resent"] = l.resends.count.Load()
	}
	if exposure := l.client.Exposure(); exposure != nil {
		fields["exposure"] = exposure
	}
	return fields
}

func least[N int | int64](a, b N) N {
	if a < b {
		return a
	}
	return b
}

func most(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}
