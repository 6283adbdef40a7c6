package kit

import (
	"context"
	"sync"
	"time"
)

const (
	// What a header has room for.
	mostOffset = 1<<32 - 1
	// What was sent apart from positions is waited for as long when the worker is to end.
	lastAnswersNs = 5_000_000_000
)

// PipelineClient is what a client library adds to a pipeline: a Client that sends, a Reader, and its positions.
type PipelineClient interface {
	Client
	// Read as a member of the group until the context is done, or Pipeline.Again says that what was read is to be
	// read again: then it returns, and the next call goes on from the positions that the group has committed.
	Read(context.Context) error
	// Leave the group; Read has returned.
	Leave()
	// AddPositions to the open transaction.
	AddPositions(map[TopicPartition]int64) error
	// CommitPositions apart from what was sent; it returns when the group has them.
	CommitPositions(map[TopicPartition]int64) error
	// ErrorText is the text behind an error id.
	ErrorText(error) string
}

// Pipeline is one member: of each message read one is made, and both sides are settled together. Clients hand over from
// several goroutines; one message after the other is taken all the same.
type Pipeline struct {
	session *Session
	client  PipelineClient
	journal *Journal
	loop    *OpenLoop
	sender  *sender

	lock     sync.Mutex
	seqs     []uint64
	again    chan struct{} // closed: what was read is to be read again
	returns  bool          // the next positions are those of reading again
	nextNs   int64         // of a settlement without transactions
	everyNs  int64
	failures int64
	fails    error

	settledLock sync.Mutex // the other one is held while the client settles
	settled     map[TopicPartition]int64
}

// NewPipeline of a session that has both halves. The loop is that of the half that sends.
func NewPipeline(session *Session, loop *OpenLoop) *Pipeline {
	everyNs := int64(session.Spec.Consumer.CommitEveryS * 1e9)
	p := &Pipeline{
		session: session, loop: loop, sender: loop.senders[0], journal: NewJournal(session),
		seqs: make([]uint64, len(loop.lanes)), settled: map[TopicPartition]int64{}, again: make(chan struct{}),
		everyNs: everyNs, nextNs: NowNs() + everyNs,
	}
	return p
}

// Run says `ready` with the first assignment and settles until the harness says `stop`.
func (p *Pipeline) Run(client PipelineClient) error {
	p.client, p.loop.client = client, client
	p.session.Report.Counts(p.counts)
	leave, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := make(chan struct{})
	go func() {
		defer close(left)
		for leave.Err() == nil && !p.session.Report.Died() {
			if err := client.Read(leave); err != nil && leave.Err() == nil {
				p.session.Report.Error(client.ErrorText(err))
				time.Sleep(readAgain)
			}
		}
	}()
	if err := awaitAssignment(p.session, p.journal); err != nil {
		return err
	}
	p.session.Ready()
	control, report := p.session.Control, p.session.Report
	for !control.Over() && !report.Died() && p.err() == nil {
		p.settleIfDue()
		sleepNs(slackNs)
	}
	cancel()
	select {
	case <-left:
		client.Leave() // others go on with what it had, if its client died, too
	case <-time.After(leaveWithin): // it hangs in leaving; the process ends all the same
	}
	for !control.Over() && p.err() == nil {
		sleepNs(slackNs)
	}
	p.loop.close()
	return p.err()
}

func (p *Pipeline) err() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.fails != nil {
		return p.fails
	}
	return p.journal.Err()
}

// Again is closed when what was read is to be read again.
func (p *Pipeline) Again() <-chan struct{} {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.again
}

func (p *Pipeline) readsAgain() bool {
	select {
	case <-p.again:
		return true
	default:
		return false
	}
}

// HandedOver: the client handed a message over, and one is made of it. Of probes, and of what is damaged, nothing is.
func (p *Pipeline) HandedOver(place TopicPartition, position int64, value []byte) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.fails != nil {
		return
	}
	if p.readsAgain() { // what lies before it was not settled
		p.journal.Delivered(place, position, value)
		return
	}
	t := p.sender.transactions
	if p.fails = t.beforeSend(); p.fails != nil {
		return
	}
	if t != nil && t.number == 0 { // the client began none
		close(p.again)
		p.journal.Delivered(place, position, value)
		return
	}
	found := p.journal.Delivered(place, position, value)
	p.journal.Processed(place, position)
	if found == CheckOK && !isProbe(value, found) {
		p.fails = p.make(place, position, value[3])
	}
	if t != nil && t.isDue() {
		p.settle()
	}
}

func (p *Pipeline) make(place TopicPartition, position int64, kind uint8) error {
	if position > mostOffset {
		return Failuref(
			"a shorter load, or more partitions", "%s is at offset %d: outputs name their input up to %d",
			place.stream(), position, int64(mostOffset),
		)
	}
	index, now := int(place.Partition)%len(p.loop.lanes), NowNs()
	lane := &p.loop.lanes[index]
	header := Header{
		RunTag: p.session.Spec.RunTag, Instance: p.session.Spec.Producer.Instance, Lane: lane.Number,
		Seq: p.seqs[index], DueNs: now, Kind: kind,
		SourcePartition: uint16(place.Partition), SourcePosition: uint32(position),
	}
	p.seqs[index]++
	message, err := p.sender.written(lane, header, now)
	if err == nil {
		p.sender.call([]*Message{message})
	}
	return err
}

// Assigned: the group gave these partitions, to be read from the positions that it has committed.
func (p *Pipeline) Assigned(places []TopicPartition) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.returns = p.readsAgain(); p.returns {
		p.again = make(chan struct{})
	}
	p.journal.Assigned(places)
}

// Begins: a partition is read from this position on, negative = from the earliest message.
func (p *Pipeline) Begins(place TopicPartition, position int64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.returns {
		p.journal.Sought(place, position)
	}
}

// Revoked: partitions are to be given back; what was made of their messages is settled before they go.
func (p *Pipeline) Revoked(places []TopicPartition) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if !p.session.Report.Died() {
		p.settle()
	}
	p.journal.Revoked(places)
}

func (p *Pipeline) settleIfDue() {
	p.lock.Lock()
	defer p.lock.Unlock()
	isDue := NowNs() >= p.nextNs
	if t := p.sender.transactions; t != nil {
		isDue = t.isDue()
	}
	if isDue {
		p.settle()
	}
}

// settle what was sent, and the positions behind what it was made of.
func (p *Pipeline) settle() {
	p.nextNs = NowNs() + p.everyNs
	if !p.journal.Uncommitted() || p.readsAgain() {
		return
	}
	positions := p.journal.TakeUncommitted()
	if t := p.sender.transactions; t != nil {
		t.alongside = func() error { return p.client.AddPositions(positions) }
		if t.end() != OK {
			close(p.again)
			return
		}
	} else if !p.acknowledged() {
		close(p.again)
		return
	} else if err := p.client.CommitPositions(positions); err != nil {
		p.session.Report.Error("commit: " + p.client.ErrorText(err))
		for place, position := range positions { // repeated with the next, unless a rebalance gives them away
			p.journal.Processed(place, position-1)
		}
		return
	}
	p.settledLock.Lock()
	defer p.settledLock.Unlock()
	for place, position := range positions {
		p.journal.Committed(place, position)
		p.settled[place] = position
	}
}

// acknowledged waits for every answer; whether all of them since the last time are good ones.
func (p *Pipeline) acknowledged() bool {
	giveUpNs := NowNs() + lastAnswersNs
	for p.sender.open() > 0 && !p.session.Report.Died() && !(p.session.Control.Stopped() && NowNs() > giveUpNs) {
		sleepNs(slackNs)
	}
	before := p.failures
	p.failures = p.sender.fail.Load() + p.sender.info.Load()
	return p.sender.open() == 0 && p.failures == before
}

// counts of the stats line, of both halves; positions are those that are settled.
func (p *Pipeline) counts() map[string]any {
	fields := p.loop.counts()
	for name, value := range p.journal.counts() {
		fields[name] = value
	}
	p.settledLock.Lock()
	defer p.settledLock.Unlock()
	positions := map[string]int64{}
	for place, next := range p.settled {
		positions[place.stream()] = next
	}
	fields["positions"] = positions
	return fields
}
