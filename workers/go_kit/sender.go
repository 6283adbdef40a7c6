package kit

import (
	"fmt"
	"sync/atomic"
)

const (
	// Messages between two looks at commands.
	chunk = 500
	// A span shorter than this cannot hold a freeze worth a look at the clocks.
	longNs = 50_000_000
	// A call that takes longer held its caller.
	heldNs = 5_000_000
)

// Message of the schedule. Its row is open from the moment the client is called until Stored or Failed.
type Message struct {
	Lane    *Lane
	Payload []byte
	sender  *sender
	header  Header
	row     row

	transaction uint32 // 0 = none
	identity    []byte // of a message from a template, whose Payload is the body; nil = Payload has it
}

// ID of the message, the same in every attempt, for brokers that tell by it what is sent twice.
func (m *Message) ID() string {
	return fmt.Sprintf("%d-%d-%d", m.header.Instance, m.header.Lane, m.header.Seq)
}

// Blocking runs a call in which the client may hold the caller; its time is the client's.
func (m *Message) Blocking(call func()) {
	s, begun := m.sender, NowNs()
	s.blockedSinceNs.Store(begun)
	call()
	s.blockedNs.Add(NowNs() - begun)
	s.blockedSinceNs.Store(0)
}

// Stored: the client reported the message as stored. Position -1: it did not say where. On any goroutine.
func (m *Message) Stored(stream string, position int64) {
	if position < 0 {
		stream = ""
	}
	m.StoredAt(Place{Stream: stream, Position: position})
}

// StoredIn is Stored for a client that names the partition of the message's topic.
func (m *Message) StoredIn(partition int32, position int64) {
	done := completion{doneNs: NowNs(), position: position, outcome: OK}
	if position >= 0 {
		done.stream = m.sender.session.Names.Partition(TopicPartition{Topic: m.Lane.Topic, Partition: partition})
	}
	m.stored(done)
}

// StoredAt is Stored for a client that says more of the place.
func (m *Message) StoredAt(place Place) {
	done := completion{
		doneNs: NowNs(), position: place.Position, ledger: place.Ledger, batch: place.Batch, outcome: OK,
	}
	if place.Stream != "" {
		done.stream = m.sender.session.Names.ID("stream", place.Stream)
	}
	m.stored(done)
}

func (m *Message) stored(done completion) {
	if m.transaction != 0 {
		done.outcome = 0
		m.sender.transactions.told(m, done, "")
		return
	}
	m.sender.complete(m, done)
}

// Failed: the client reported an error; what it means, and its text. On any goroutine.
func (m *Message) Failed(outcome Outcome, text string) {
	session := m.sender.session
	done := completion{doneNs: NowNs(), position: -1, outcome: outcome, errorID: session.Names.ID("error", text)}
	session.Report.Error(text)
	if m.transaction != 0 {
		m.sender.transactions.told(m, done, text)
		return
	}
	m.sender.complete(m, done)
}

// sender is a sending goroutine of a producer: its lanes, its part of the schedule, its rows, its numbers.
type sender struct {
	loop     *OpenLoop
	session  *Session
	turns    turns
	segments *Segments
	schedule schedule
	late     lateness
	resends  resendQueue

	transactions *transactions // nil = none

	attempted, ok, fail, info, aborted atomic.Int64
	blockedNs, blockedSinceNs          atomic.Int64
}

// newSender has of the loop's lanes every threads-th from thread on, and as much of the rate.
func newSender(loop *OpenLoop, thread, threads int, files *atomic.Uint32) *sender {
	spec, part := loop.session.Spec, loop.session.Spec.Producer
	made := &sender{
		loop: loop, session: loop.session,
		segments: &Segments{
			folder: spec.Folder, table: tableSends, owner: part.Instance, runTag: spec.RunTag,
			capacity: defaultCapacity, files: files,
		},
	}
	made.turns = newTurns(loop.lanes, part.Turns, thread, threads)
	rate := part.RatePerS * made.turns.share
	made.schedule = newSchedule(rate, part.WarmUpS, part.LoadS, part.RateProfile)
	made.resends.on = loop.resends
	return made
}

// stopping: no further message shall be offered.
func (s *sender) stopping() bool { return s.session.Control.stopLoad.Load() }

func (s *sender) load() error {
	follow := s.loadAtRate
	if s.schedule.ratePerS == 0 {
		follow = s.loadUnlimited
	}
	err := follow()
	s.transactions.end()
	if err != nil || !s.resends.on {
		return err
	}
	return s.resendRest()
}

func (s *sender) loadAtRate() error {
	size, freeze := int64(s.loop.client.CallSize()), s.session.Report.freeze
	warmUp, total, sent := s.schedule.warmUpCount(), s.schedule.total(), int64(0)
	for sent < total && !s.stopping() {
		blocked, frozen := s.blockedNs.Load(), freeze.total()
		// The clock is read last here and first below: a freeze between two of these lines is not own work.
		begun := NowNs()
		edge, kind := total, uint8(Load)
		if sent < warmUp {
			edge, kind = warmUp, WarmUp
		}
		last := least(sent+size, edge) - 1 // of the next call: it is made when that message is due
		due := least(s.schedule.dueCount(begun), edge)
		if due <= last {
			wake := most(least(s.schedule.dueNs(last), s.transactions.endNs()), begun+slackNs)
			if err := s.sleepUntil(wake); err != nil {
				return err
			}
			s.transactions.endIfDue()
			woke := NowNs()
			s.lookForFreeze(begun, woke)
			s.late.caughtUp(woke - wake - (s.blockedNs.Load() - blocked) - (freeze.total() - frozen))
			continue
		}
		stop := least(due, sent+most(chunk, size))
		if stop < edge {
			stop -= (stop - sent) % size
		}
		first := sent
		var err error
		if sent, err = s.offer(first, stop, kind); err != nil {
			return err
		}
		if err = s.resendDue(); err != nil {
			return err
		}
		ended := NowNs()
		s.lookForFreeze(begun, ended)
		own := ended - begun - (s.blockedNs.Load() - blocked) - (freeze.total() - frozen)
		s.late.worked(own, s.schedule.dueNs(sent)-s.schedule.dueNs(first))
	}
	return nil
}

func (s *sender) loadUnlimited() error {
	size := int64(s.loop.client.CallSize())
	loadNs, endNs, sent := s.schedule.loadNs(), s.schedule.endNs(), int64(0)
	if err := s.sleepUntil(s.schedule.t0Ns); err != nil {
		return err
	}
	for now := NowNs(); now < endNs && !s.stopping(); now = NowNs() {
		kind := uint8(Load)
		if now < loadNs {
			kind = WarmUp
		}
		var err error
		if sent, err = s.offer(sent, sent+size, kind); err != nil {
			return err
		}
		if err = s.resendDue(); err != nil {
			return err
		}
	}
	return nil
}

// offer sends messages first .. stop-1, call by call, a row before each; returns the next one.
func (s *sender) offer(first, stop int64, kind uint8) (int64, error) {
	size := int64(s.loop.client.CallSize())
	for first < stop && !s.stopping() {
		until := least(first+size, stop)
		if err := s.transactions.beforeSend(); err != nil {
			return first, err
		}
		messages, err := s.write(first, until, kind)
		s.call(messages)
		if err != nil {
			return first, err
		}
		s.transactions.endIfDue()
		first = until
	}
	return first, nil
}

func (s *sender) call(messages []*Message) {
	if len(messages) > 0 {
		s.attempted.Add(int64(len(messages)))
		begun, counted := NowNs(), s.blockedNs.Load()
		s.blockedSinceNs.Store(begun)
		s.loop.client.Send(messages)
		s.blockedSinceNs.Store(0)
		// What a client says that it waits for counts already (Blocking).
		if took := NowNs() - begun - (s.blockedNs.Load() - counted); took > heldNs {
			s.blockedNs.Add(took)
		}
	}
}

// write the rows of one call, and make its messages.
func (s *sender) write(first, stop int64, kind uint8) ([]*Message, error) {
	part := s.session.Spec.Producer
	messages := make([]*Message, 0, stop-first)
	for i := first; i < stop; i++ {
		lane, seq := s.turns.of(i)
		now := NowNs()
		header := Header{
			RunTag: s.session.Spec.RunTag, Instance: part.Instance, Lane: lane.Number, Seq: seq,
			DueNs: now, Key: lane.KeyNumber, Kind: kind,
		}
		if part.RatePerS > 0 {
			header.DueNs = s.schedule.dueNs(i)
		}
		message, err := s.written(lane, header, now)
		if err != nil {
			return messages, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}

// written is a message whose row is open.
func (s *sender) written(lane *Lane, header Header, startNs int64) (*Message, error) {
	message := &Message{Lane: lane, sender: s, header: header}
	if s.loop.template != nil {
		message.identity, message.Payload = s.loop.template.message(lane, header)
	} else {
		length := s.loop.sizes.of(lane.Number, header.Seq)
		filling := s.loop.sizes.filling(lane.Number, header.Seq, length, s.loop.filling)
		message.Payload = encode(header, filling)
	}
	s.transactions.offers(message)
	if s.loop.capture {
		row, err := s.segments.next()
		if err != nil {
			return nil, err
		}
		row.openSend(header, startNs, message.transaction)
		message.row = row
	}
	return message, nil
}

// sleepUntil the next message is due; re-sends take their turn.
func (s *sender) sleepUntil(wakeNs int64) error {
	for left := wakeNs - NowNs(); left > 0 && !s.stopping(); left = wakeNs - NowNs() {
		nap := int64(100_000_000)
		if s.resends.on {
			if err := s.resendDue(); err != nil {
				return err
			}
			nap = slackNs
		}
		sleepNs(least(left, nap))
	}
	return nil
}

// lookForFreeze when something took long: the ticker may not have run yet.
func (s *sender) lookForFreeze(sinceNs, nowNs int64) {
	if nowNs-sinceNs > longNs {
		s.session.Report.freeze.check()
	}
}

func (s *sender) complete(m *Message, done completion) {
	if m.row != nil {
		if m.row.outcome() != 0 {
			m.row.lateOutcome(done.outcome)
			return
		}
		m.row.completeSend(done)
	}
	if done.outcome != OK {
		s.resends.failed(m)
	}
	s.count(done.outcome)
}

func (s *sender) count(outcome Outcome) {
	switch outcome {
	case OK:
		s.ok.Add(1)
	case Fail:
		s.fail.Add(1)
	case Aborted:
		s.aborted.Add(1)
	default:
		s.info.Add(1)
	}
}

func (s *sender) open() int64 {
	return most(0, s.attempted.Load()-s.ok.Load()-s.fail.Load()-s.info.Load()-s.aborted.Load())
}

// blocked is the time in calls that held the sender, the one it is in included.
func (s *sender) blocked() int64 {
	blocked := s.blockedNs.Load()
	if since := s.blockedSinceNs.Load(); since > 0 {
		blocked += NowNs() - since
	}
	return blocked
}
