package main

import (
	"context"
	"time"

	"brokerstorm/kit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// Records of a poll: the group may not rebalance before they are processed.
	pollRecords = 500
	// A commit waits for a rebalance that goes on, and for the coordinator.
	commitWithin = 5 * time.Second
)

// member of a consumer group. The client calls back about partitions from a goroutine of its own, with
// BlockRebalanceOnPoll between polls only.
type member struct {
	session *kit.Session
	journal *kit.Journal
	client  *kgo.Client
}

func consume(session *kit.Session) error {
	spec := session.Spec
	options, err := spec.Options()
	if err != nil {
		return err
	}
	m := &member{session: session}
	taken, err := clientOptions(
		session, options,
		kgo.ConsumerGroup(spec.Consumer.Group), kgo.ConsumeTopics(spec.Consumer.Topics...), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			m.journal.Assigned(kit.Places(given))
		}),
		kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.revoked),
	)
	if err != nil {
		return err
	}
	m.journal = kit.NewJournal(session)
	if m.client, err = kgo.NewClient(taken...); err != nil {
		return refused("refused to start", err)
	}
	if err = m.client.Ping(context.Background()); err != nil {
		return refused("refused to start", err)
	}
	return kit.RunMember(session, m.journal, m, errorText)
}

func (m *member) revoked(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	m.journal.Revoked(kit.Places(taken))
}

// Read as a member of the group until the context is done.
func (m *member) Read(leave context.Context) error {
	for leave.Err() == nil && !m.session.Report.Died() {
		polled := m.client.PollRecords(leave, pollRecords)
		assignments := m.journal.Assignments()
		polled.EachError(func(_ string, _ int32, err error) { m.noteError(leave, err) })
		polled.EachRecord(func(record *kgo.Record) {
			place := kit.TopicPartition{Topic: record.Topic, Partition: record.Partition}
			// Without BlockRebalanceOnPoll a partition may go meanwhile, and what is left of it comes again.
			if leave.Err() == nil && m.journal.HasHeld(place, assignments) {
				m.handOver(place, record)
			}
		})
		m.client.AllowRebalance()
	}
	return nil
}

func (m *member) noteError(leave context.Context, err error) {
	if leave.Err() != nil {
		return
	}
	if fenced(err) {
		m.session.Report.ClientDied(className(err)+": "+err.Error(), "fenced")
	}
	m.session.Report.Error(errorText(err))
}

// payloadOf a record: its value, or a body with the identity of its header.
func payloadOf(record *kgo.Record) []byte {
	for _, header := range record.Headers {
		if header.Key == kit.IdentityHeader {
			return kit.Joined(record.Value, header.Value)
		}
	}
	return record.Value
}

func (m *member) handOver(place kit.TopicPartition, record *kgo.Record) {
	m.journal.Delivered(place, record.Offset, payloadOf(record))
	m.session.Spec.Consumer.Work()
	m.journal.Processed(place, record.Offset)
}

// Commit what was processed.
func (m *member) Commit() {
	taken := m.journal.TakeUncommitted()
	if len(taken) == 0 {
		return
	}
	asked := map[string]map[int32]kgo.EpochOffset{}
	for place, position := range taken {
		if asked[place.Topic] == nil {
			asked[place.Topic] = map[int32]kgo.EpochOffset{}
		}
		asked[place.Topic][place.Partition] = kgo.EpochOffset{Epoch: -1, Offset: position}
	}
	within, cancel := context.WithTimeout(context.Background(), commitWithin)
	defer cancel()
	m.client.CommitOffsetsSync(within, asked, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		if err != nil {
			m.session.Report.Error("commit: " + errorText(err))
			return
		}
		m.confirmed(taken, answer)
	})
}

func (m *member) confirmed(asked map[kit.TopicPartition]int64, answer *kmsg.OffsetCommitResponse) {
	for _, topic := range answer.Topics {
		for _, partition := range topic.Partitions {
			place := kit.TopicPartition{Topic: topic.Topic, Partition: partition.Partition}
			err := kerr.ErrorForCode(partition.ErrorCode)
			if position, is := asked[place]; is && err == nil {
				m.journal.Committed(place, position)
			} else if err != nil {
				m.noteError(context.Background(), err)
			}
		}
	}
}

// Close leaves the group.
func (m *member) Close() { m.client.CloseAllowingRebalance() }
