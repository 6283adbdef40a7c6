package kit

import (
	"fmt"
	"sync"
)

// TopicPartition is a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Places lists the partitions of each topic.
func Places(partitions map[string][]int32) []TopicPartition {
	var found []TopicPartition
	for topic, numbers := range partitions {
		for _, number := range numbers {
			found = append(found, TopicPartition{Topic: topic, Partition: number})
		}
	}
	return found
}

func (p TopicPartition) stream() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// Place of a message, as its client shows it; Stream "" = unknown. Ledger and batch are Pulsar's.
type Place struct {
	Stream           string
	Position, Ledger int64
	Batch            int32
}

// Journal of one consumer session, in the order in which the application saw things. Clients call from several
// goroutines; one row after the other is written all the same.
type Journal struct {
	lock        sync.Mutex
	session     *Session
	segments    *Segments
	epoch       uint32
	handedOver  int64 // everything, and the probes among it
	probes      int64
	positions   map[TopicPartition]int64
	uncommitted map[TopicPartition]int64
	assigned    map[TopicPartition]uint32 // the epoch in which each was given
	exposure    map[string]any
	fails       error
}

// NewJournal of the session in the spec; its numbers go into `stats`.
func NewJournal(session *Session) *Journal {
	part := session.Spec.Consumer
	journal := &Journal{
		session:     session,
		positions:   map[TopicPartition]int64{},
		uncommitted: map[TopicPartition]int64{},
		assigned:    map[TopicPartition]uint32{},
		segments: &Segments{
			folder: session.Spec.Folder, table: tableDeliveries, owner: part.Session, runTag: session.Spec.RunTag,
			subscription: uint32(session.Names.ID("subscription", part.Group)), capacity: defaultCapacity,
		},
	}
	session.Report.Counts(journal.counts)
	return journal
}

func (j *Journal) counts() map[string]any {
	j.lock.Lock()
	defer j.lock.Unlock()
	positions := map[string]int64{}
	for place, next := range j.positions {
		positions[place.stream()] = next
	}
	found := map[string]any{"delivered": j.handedOver - j.probes, "epoch": j.epoch, "positions": positions}
	if j.exposure != nil {
		found["exposure"] = j.exposure
	}
	return found
}

// Exposed counts one more of a chance that a bug had; a name of [exposure].
func (j *Journal) Exposed(counter string) {
	j.lock.Lock()
	defer j.lock.Unlock()
	counts := map[string]any{} // what was told is read elsewhere
	for name, count := range j.exposure {
		counts[name] = count
	}
	before, _ := counts[counter].(int64)
	counts[counter] = before + 1
	j.exposure = counts
}

// Err is why the journal cannot go on (disk full); nil while it can.
func (j *Journal) Err() error {
	j.lock.Lock()
	defer j.lock.Unlock()
	return j.fails
}

func (j *Journal) write(place TopicPartition, d delivery) {
	d.stream = j.session.Names.Partition(place)
	j.writeRow(d)
}

// writeAt a stream; "" = the whole session.
func (j *Journal) writeAt(stream string, d delivery) {
	if stream != "" {
		d.stream = j.session.Names.ID("stream", stream)
	}
	j.writeRow(d)
}

func (j *Journal) writeRow(d delivery) {
	if j.fails != nil {
		return
	}
	row, err := j.segments.next()
	if err != nil {
		j.fails = err
		return
	}
	d.tNs, d.epoch = NowNs(), j.epoch
	row.writeDelivery(d)
}

// Handed over by a client of subscriptions or queues; redelivered: count or flag, as it shows it. transaction: ordinal
// of the session's, from 1; 0 = none. Returns the number of the hand-over, from 1.
func (j *Journal) Handed(place Place, redelivered uint32, transaction int64, value []byte) int64 {
	found := check(value, j.session.Spec.RunTag)
	j.lock.Lock()
	defer j.lock.Unlock()
	if len(value) > headerBytes {
		value = value[:headerBytes]
	}
	j.writeAt(place.Stream, delivery{
		event: Deliver, position: place.Position, ledger: place.Ledger, batch: place.Batch, check: found,
		redelivered: redelivered + 1, transaction: transaction, value: value,
	})
	j.count(value, found)
	return j.handedOver
}

// count a message that was handed over, under the lock.
func (j *Journal) count(value []byte, found Check) {
	j.handedOver++
	if isProbe(value, found) {
		j.probes++
	}
}

// Note what the application did, or was told, of a message or (Place{}) of its transaction.
func (j *Journal) Note(event Event, place Place, transaction int64) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.writeAt(place.Stream, delivery{
		event: event, position: place.Position, ledger: place.Ledger, batch: place.Batch, transaction: transaction,
	})
}

// Connected, and what was prefetched before comes again: a new epoch begins. The client does not say of which streams.
func (j *Journal) Connected(text string) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.epoch++
	j.writeAt("", delivery{event: Assign, position: -1, ledger: -1})
	j.session.Report.Event("assign", text, map[string]any{"epoch": j.epoch})
}

// Delivered: the client handed a message over; what its payload is.
func (j *Journal) Delivered(place TopicPartition, position int64, value []byte) Check {
	found := check(value, j.session.Spec.RunTag)
	j.lock.Lock()
	defer j.lock.Unlock()
	if len(value) > headerBytes {
		value = value[:headerBytes]
	}
	j.write(place, delivery{event: Deliver, position: position, check: found, value: value})
	j.count(value, found)
	j.positions[place] = position + 1
	return found
}

// Processed: the application is done with it, and the next commit covers it, unless the group took the partition
// meanwhile: whoever has it now reads from the last commit.
func (j *Journal) Processed(place TopicPartition, position int64) {
	j.lock.Lock()
	defer j.lock.Unlock()
	if _, held := j.assigned[place]; held {
		j.uncommitted[place] = position + 1
	}
}

// HasHeld tells whether the member has had this partition, without a break, since so many Assignments.
func (j *Journal) HasHeld(place TopicPartition, assignments int) bool {
	j.lock.Lock()
	defer j.lock.Unlock()
	given, held := j.assigned[place]
	return held && int(given) <= assignments
}

// Assigned: the group gave these partitions, and a new epoch begins.
func (j *Journal) Assigned(places []TopicPartition) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.epoch++
	for _, place := range places {
		j.assigned[place] = j.epoch
		j.write(place, delivery{event: Assign, position: -1})
	}
	text := fmt.Sprintf("%d partitions", len(places))
	j.session.Report.Event("assign", text, map[string]any{"epoch": j.epoch})
}

// Revoked: these are for somebody else to read on; what was not committed too.
func (j *Journal) Revoked(places []TopicPartition) {
	j.lock.Lock()
	defer j.lock.Unlock()
	for _, place := range places {
		position, read := j.positions[place]
		if !read {
			position = -1
		}
		delete(j.assigned, place)
		delete(j.uncommitted, place)
		j.write(place, delivery{event: Revoke, position: position})
	}
	text := fmt.Sprintf("%d partitions", len(places))
	j.session.Report.Event("revoke", text, map[string]any{"epoch": j.epoch})
}

// Assignments so far, the current one included.
func (j *Journal) Assignments() int {
	j.lock.Lock()
	defer j.lock.Unlock()
	return int(j.epoch)
}

// TakeUncommitted is what to commit now, with a row for each.
func (j *Journal) TakeUncommitted() map[TopicPartition]int64 {
	j.lock.Lock()
	defer j.lock.Unlock()
	taken := j.uncommitted
	j.uncommitted = map[TopicPartition]int64{}
	for place, position := range taken {
		j.write(place, delivery{event: CommitCalled, position: position})
	}
	return taken
}

// Uncommitted: something was processed that no commit covers yet.
func (j *Journal) Uncommitted() bool {
	j.lock.Lock()
	defer j.lock.Unlock()
	return len(j.uncommitted) > 0
}

// Sought: reading goes on from this position.
func (j *Journal) Sought(place TopicPartition, position int64) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.write(place, delivery{event: Seek, position: most(0, position)})
}

// Committed: the group's position is confirmed.
func (j *Journal) Committed(place TopicPartition, position int64) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.write(place, delivery{event: Commit, position: position})
}
