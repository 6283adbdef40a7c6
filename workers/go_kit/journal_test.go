package kit

import (
	"io"
	"testing"
)

// Whoever has the partition next reads from the last commit, which another one must not move.
func TestWhatIsDoneAfterAPartitionWasTakenIsNotCommitted(t *testing.T) {
	folder := t.TempDir()
	names, err := newNames(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	journal := NewJournal(&Session{
		Spec:   &Spec{Folder: folder, Consumer: &ConsumerSpec{Group: "billing"}},
		Names:  names,
		Report: newReporter(io.Discard),
	})
	journal.segments.capacity = 16
	kept, taken := TopicPartition{Topic: "orders", Partition: 0}, TopicPartition{Topic: "orders", Partition: 1}
	journal.Assigned([]TopicPartition{kept, taken})
	assignments := journal.Assignments()
	journal.Revoked([]TopicPartition{taken})
	journal.Processed(kept, 7)
	journal.Processed(taken, 4)
	if !journal.HasHeld(kept, assignments) || journal.HasHeld(taken, assignments) {
		t.Error("one of two partitions is held")
	}
	journal.Assigned([]TopicPartition{taken})
	if journal.HasHeld(taken, assignments) {
		t.Error("it was not held without a break")
	}
	if found := journal.TakeUncommitted(); len(found) != 1 || found[kept] != 8 {
		t.Errorf("to commit: %v", found)
	}
	if err = journal.Err(); err != nil {
		t.Fatal(err)
	}
}
