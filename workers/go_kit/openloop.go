package kit

import (
	"sync/atomic"
)

const (
	// How long calls under way are waited for when the capture cannot go on.
	settleNs = 10_000_000_000
	// How long the sending goroutines may take to notice that they shall end, and the client to close.
	endNs = 2_000_000_000
)

// Client is what a client library adds to the open loop.
type Client interface {
	// CallSize is how many messages one call takes.
	CallSize() int
	// Send calls the client once with these messages, whose rows are written. It returns when the client took
	// them or answered; Stored or Failed is called on each, then or later, from any goroutine. Never on one that
	// the client does not answer. With `threads`, several goroutines call it at once.
	Send(messages []*Message)
	// Close the client; nothing is open.
	Close()
	// Exposure is what the client can honestly count for `stats`; nil = nothing.
	Exposure() map[string]any
}

// Flusher is a Client that holds messages back until there are more of them.
type Flusher interface {
	// Flush lets go of what is left. The load is over, and no goroutine sends.
	Flush()
}

// OpenLoop is one producer instance but for the client: its life and its numbers; schedule and rows are those of its
// senders. The client is never helped: nothing is sent twice (unless the application does that: `results: resent`),
// nothing is reordered, every result is written down.
type OpenLoop struct {
	session *Session
	client  Client
	lanes   []Lane
	sizes   sizes
	filling []byte
	// Makes bodies in the user's shape; nil = payloads are filled.
	template *template
	// Values of headers that differ by message, in the order of the spec.
	headerTemplates []*template
	capture         bool
	resends         bool
	senders         []*sender
}

// NewOpenLoop prepares a producer; Run starts it.
func NewOpenLoop(session *Session) (*OpenLoop, error) {
	part := session.Spec.Producer
	lanes, err := lanesOf(part.LaneGroups)
	if err != nil {
		return nil, err
	}
	sizes := sizes{
		least: part.PayloadBytes, most: part.PayloadBytes, instance: part.Instance, table: part.PayloadSizes,
		compressible: -1,
	}
	if part.PayloadCompressible != nil {
		sizes.compressible = *part.PayloadCompressible
	}
	if part.PayloadMaxBytes > 0 {
		sizes.most = part.PayloadMaxBytes
	}
	if sizes.least < MinPayloadBytes || sizes.most < sizes.least {
		return nil, Failuref("", "payload of %d..%d bytes: at least %d are needed", sizes.least, sizes.most, MinPayloadBytes)
	}
	loop := &OpenLoop{
		session: session,
		lanes:   lanes,
		sizes:   sizes,
		filling: filler(sizes.most - MinPayloadBytes),
		capture: part.Capture,
		resends: part.Results == "resent",
	}
	if part.PayloadTemplate != "" {
		loop.template = newTemplate(part.PayloadTemplate, part.Instance, lanes, part.PayloadCharset)
	}
	for _, each := range part.HeaderTemplates {
		loop.headerTemplates = append(loop.headerTemplates, newTemplate(each[1], part.Instance, lanes, ""))
	}
	threads := int(most(1, least(int64(part.Threads), int64(len(lanes)))))
	files, ofTransactions := new(atomic.Uint32), new(atomic.Uint32)
	for thread := 0; thread < threads; thread++ {
		made := newSender(loop, thread, threads, files)
		if part.Transactions != nil {
			made.transactions = newTransactions(made, thread, threads, ofTransactions)
		}
		loop.senders = append(loop.senders, made)
	}
	return loop, nil
}

// Lanes of this producer.
func (l *OpenLoop) Lanes() []Lane { return l.lanes }

// Run says `ready`, follows the schedule and the harness, and returns when every row it will ever complete is
// complete. The client may block the sending goroutines for ever; this one goes on.
func (l *OpenLoop) Run(client Client) error {
	l.client = client
	control := l.session.Control
	l.session.Report.Counts(l.counts)
	l.session.Ready()
	<-control.started
	finished := make(chan error, len(l.senders))
	for _, each := range l.senders {
		each.schedule.t0Ns = control.t0Ns.Load()
		go func(s *sender) { finished <- s.load() }(each)
	}
	if failed := l.awaitLoad(finished); failed != nil {
		l.settle(NowNs() + settleNs)
		return failed
	}
	for !control.draining.Load() {
		sleepNs(slackNs)
	}
	if last, holds := client.(Flusher); holds && l.inCalls() == 0 {
		last.Flush()
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

// awaitLoad waits for the sending goroutines: to their end, to the first that failed, or until the harness will not
// wait for a call that the client holds.
func (l *OpenLoop) awaitLoad(finished <-chan error) error {
	left := len(l.senders)
	wait := func() (done bool, err error) {
		select {
		case err = <-finished:
			left--
			return left == 0 || err != nil, err
		default:
			sleepNs(slackNs)
			return false, nil
		}
	}
	for !l.session.Control.Over() {
		if done, err := wait(); done {
			return err
		}
	}
	// They end by themselves within moments unless they are in a call; a row written now would not be counted.
	for giveUp := NowNs() + endNs; l.inCalls() < left && NowNs() < giveUp; {
		if done, err := wait(); done {
			return err
		}
	}
	return nil
}

// inCalls is how many senders are in a call that blocks.
func (l *OpenLoop) inCalls() int {
	count := 0
	for _, each := range l.senders {
		if each.blockedSinceNs.Load() != 0 {
			count++
		}
	}
	return count
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

// settle waits for every open call, until the deadline or `stop`.
func (l *OpenLoop) settle(deadlineNs int64) {
	for l.open() > 0 && !l.session.Control.Over() && NowNs() < deadlineNs {
		sleepNs(slackNs)
	}
}

func (l *OpenLoop) open() int64 {
	var open int64
	for _, each := range l.senders {
		open += each.open()
	}
	return open
}

// counts of the stats line.
func (l *OpenLoop) counts() map[string]any {
	var attempted, ok, fail, info, aborted, open, blocked, late, resent int64
	for _, each := range l.senders {
		attempted += each.attempted.Load()
		ok += each.ok.Load()
		fail += each.fail.Load()
		info += each.info.Load()
		aborted += each.aborted.Load()
		open += each.open()
		blocked += each.blocked()
		late = most(late, each.late.takeMaxNs())
		resent += each.resends.count.Load()
	}
	fields := map[string]any{
		"attempted": attempted, "ok": ok, "fail": fail, "info": info, "aborted": aborted, "open": open,
		"blocked_ns": blocked, "late_max_ns": late,
	}
	if l.resends {
		fields["resent"] = resent
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

func most[N int | int64](a, b N) N {
	if a > b {
		return a
	}
	return b
}
