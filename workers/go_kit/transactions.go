package kit

import (
	"fmt"
	"sync/atomic"
)

const (
	transactionsCapacity = 1024
	// Until an end that timed out is asked for again.
	againNs = 100_000_000
)

// Reaction of the application to an error of Commit or Abort.
type Reaction int

const (
	AskAgain     Reaction = iota
	AbortIt               // it was certainly not committed
	AbortUnknown          // nobody knows whether it was committed, and the client goes on behind an abort
	GiveUp
)

// TransactionalClient are the calls that a transaction takes, of a client with a transactional id. One sending
// goroutine uses it.
type TransactionalClient interface {
	Begin() error
	Commit() error
	Abort() error
	// Reaction to an error, as the client's documentation has it.
	Reaction(error) Reaction
	// ErrorText is the text behind an error id; what it says of a client that is dead is written down.
	ErrorText(error) string
	// IsDead: the client takes nothing any more.
	IsDead() bool
}

// transactions of one sending goroutine, one after the other: their journal, and the sends of the one that is open.
// Every intent is written before the client is called, and every answer after it. The rows of sends get their outcome
// when their transaction has one, which is the same for all of them.
type transactions struct {
	client   TransactionalClient
	sender   *sender
	segments *Segments
	asked    TransactionsSpec
	thread   int
	threads  int

	number  uint32 // of the open one; 0 = none is open
	row     row
	count   int64
	sent    int64
	beganNs int64
	ends    byte
	sends   []*Message
	awaited atomic.Int64
	// alongside what was sent goes into the transaction before its commit; nil = nothing.
	alongside func() error
	refused   atomic.Pointer[string] // why a message of the open one was not stored
	givesUp   func() bool
}

func newTransactions(s *sender, thread, threads int, files *atomic.Uint32) *transactions {
	spec, part := s.session.Spec, s.session.Spec.Producer
	return &transactions{
		sender: s, asked: *part.Transactions, thread: thread, threads: threads,
		segments: &Segments{
			folder: spec.Folder, table: tableTransactions, owner: part.Instance, runTag: spec.RunTag,
			capacity: transactionsCapacity, files: files,
		},
		givesUp: s.session.Control.Over,
	}
}

// Transactional has a sending goroutine use this client, whose transactional id is TransactionalID.
func (l *OpenLoop) Transactional(thread int, client TransactionalClient) {
	l.senders[thread].transactions.client = client
}

// Threads is how many goroutines send.
func (l *OpenLoop) Threads() int { return len(l.senders) }

// TransactionalID of the client of a sending goroutine.
func (l *OpenLoop) TransactionalID(thread int) string {
	return fmt.Sprintf("%s-%d", l.session.Spec.Producer.Transactions.ID, thread)
}

// Client of the goroutine that sends the message, where each has one with a transactional id.
func (m *Message) Client() TransactionalClient { return m.sender.transactions.client }

// endNs is when the open one is to end by time.
func (t *transactions) endNs() int64 {
	if t == nil || t.number == 0 || t.asked.EveryS == 0 {
		return neverNs
	}
	return t.beganNs + int64(t.asked.EveryS*1e9)
}

// beforeSend begins one when none is open.
func (t *transactions) beforeSend() error {
	if t == nil || t.number != 0 || t.client.IsDead() {
		return nil
	}
	row, err := t.segments.next()
	if err != nil {
		return err
	}
	t.row, t.beganNs, t.sent, t.ends = row, NowNs(), 0, 0
	t.number = uint32(t.count*int64(t.threads)) + uint32(t.thread) + 1
	t.count++
	t.refused.Store(nil)
	row.beginTransaction(t.number, uint32(t.thread), t.beganNs)
	if err := t.client.Begin(); err != nil {
		t.done(Fail, t.errorID(err))
	}
	return nil
}

// sends it: the message is one of the open transaction.
func (t *transactions) offers(m *Message) {
	if t != nil && t.number != 0 {
		m.transaction = t.number
		t.sent++
		t.awaited.Add(1)
		t.sends = append(t.sends, m)
	}
}

// endIfDue ends the open one by number or time.
func (t *transactions) endIfDue() {
	if t != nil && t.isDue() {
		t.end()
	}
}

// end the open one as the application wants it, and complete the rows of its sends. It counts as blocked. 0: none was
// open.
func (t *transactions) end() Outcome {
	if t == nil || t.number == 0 {
		return 0
	}
	begun := NowNs()
	t.sender.blockedSinceNs.Store(begun)
	outcome, errorID := t.outcome()
	t.sender.blockedNs.Add(NowNs() - begun)
	t.sender.blockedSinceNs.Store(0)
	ofRow := outcome
	if outcome == Fail {
		ofRow = Aborted
	}
	t.done(ofRow, errorID)
	for _, message := range t.sends {
		if message.row != nil {
			message.row.endSend(NowNs(), errorID, outcome)
		}
		t.sender.count(outcome)
	}
	t.sends = nil
	return outcome
}

// commit with what goes alongside.
func (t *transactions) commit() error {
	if t.alongside != nil {
		if err := t.alongside(); err != nil {
			return err
		}
	}
	return t.client.Commit()
}

// isDue to end, by number or time.
func (t *transactions) isDue() bool {
	return t.number != 0 && (t.asked.Messages > 0 && t.sent >= int64(t.asked.Messages) || NowNs() >= t.endNs())
}

func (t *transactions) outcome() (Outcome, int32) {
	if t.asked.AbortEvery > 0 && t.count%int64(t.asked.AbortEvery) == 0 {
		for t.awaited.Load() > 0 && !t.givesUp() { // an abort of what was never stored would hide nothing
			sleepNs(slackNs)
		}
		if err := t.ask(abortAsked, t.client.Abort); err != nil {
			return Info, t.errorID(err)
		}
		return Aborted, 0
	}
	err := t.ask(commitAsked, t.commit)
	if err == nil {
		return OK, 0
	}
	why := t.errorID(err)
	reaction := t.client.Reaction(err)
	if reaction != AbortIt && reaction != AbortUnknown {
		return Info, why
	}
	if t.ask(abortAsked, t.client.Abort) != nil || reaction == AbortUnknown {
		return Info, why
	}
	if refused := t.refused.Load(); refused != nil {
		why = t.sender.session.Names.ID("error", *refused)
	}
	return Fail, why
}

// ask for an end until the client answers, or nobody waits any more.
func (t *transactions) ask(what byte, call func() error) error {
	t.ends |= what
	t.row.askTransaction(NowNs(), t.ends)
	for {
		err := call()
		if err == nil || t.client.Reaction(err) != AskAgain || t.givesUp() {
			return err
		}
		t.sender.session.Report.Error(t.client.ErrorText(err))
		sleepNs(againNs)
	}
}

func (t *transactions) done(outcome Outcome, errorID int32) {
	t.row.endTransaction(NowNs(), errorID, outcome)
	t.number = 0
}

func (t *transactions) errorID(err error) int32 {
	text := t.client.ErrorText(err)
	t.sender.session.Report.Error(text)
	return t.sender.session.Names.ID("error", text)
}

// told: the client answered a send; its outcome comes with that of the transaction.
func (t *transactions) told(m *Message, done completion, text string) {
	if text != "" {
		t.refused.CompareAndSwap(nil, &text)
	} else if m.row != nil && m.row.outcome() == 0 {
		m.row.completeSend(done)
	}
	t.awaited.Add(-1)
}
