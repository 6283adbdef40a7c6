package main

import (
	"context"
	"log"
	"strings"
	"sync"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

// member of a consumer group. sarama calls Setup, ConsumeClaim (a goroutine a partition) and Cleanup.
//
// A commit of sarama's session says nothing back: an error that passes by itself (the coordinator moved) is neither
// returned nor logged. So after each commit the group's position is asked of the broker, and what it answers is what
// the journal calls confirmed.
type member struct {
	session *kit.Session
	journal *kit.Journal
	config  *sarama.Config
	admin   sarama.ClusterAdmin
	group   sarama.ConsumerGroup

	lock    sync.Mutex // one commit at a time, of the session that is in force
	current sarama.ConsumerGroupSession
}

func consume(session *kit.Session) error {
	spec := session.Spec
	sarama.Logger = log.New(clientLog{}, "[sarama] ", log.LstdFlags|log.Lmicroseconds)
	config, err := configOf(session)
	if err != nil {
		return err
	}
	brokers := strings.Split(spec.Bootstrap, ",")
	admin, err := sarama.NewClusterAdmin(brokers, config)
	if err != nil {
		return refused("refused to start", err)
	}
	group, err := sarama.NewConsumerGroup(brokers, spec.Consumer.Group, config)
	if err != nil {
		return refused("refused to start", err)
	}
	journal := kit.NewJournal(session)
	m := &member{session: session, journal: journal, config: config, admin: admin, group: group}
	return kit.RunMember(session, journal, m, errorText)
}

// Read as a member of the group until the context is done; returns at every rebalance.
func (m *member) Read(leave context.Context) error {
	err := m.group.Consume(leave, m.session.Spec.Consumer.Topics, m)
	if err != nil && leave.Err() == nil {
		noteDeath(m.session.Report, err)
	}
	return err
}

// Close leaves the group.
func (m *member) Close() { _ = m.group.Close() }

// Setup of a session: the group gave partitions.
func (m *member) Setup(current sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.current = current
	m.journal.Assigned(kit.Places(current.Claims()))
	return nil
}

// Cleanup of a session: every claim has ended.
func (m *member) Cleanup(current sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.current = nil
	m.journal.Revoked(kit.Places(current.Claims()))
	return nil
}

// payloadOf a message: its value, or a body with the identity of its header.
func payloadOf(message *sarama.ConsumerMessage) []byte {
	for _, header := range message.Headers {
		if string(header.Key) == kit.IdentityHeader {
			return kit.Joined(message.Value, header.Value)
		}
	}
	return message.Value
}

// ConsumeClaim hands over the messages of one partition until the session ends.
func (m *member) ConsumeClaim(current sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	place := kit.TopicPartition{Topic: claim.Topic(), Partition: claim.Partition()}
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			m.journal.Delivered(place, message.Offset, payloadOf(message))
			m.session.Spec.Consumer.Work()
			m.journal.Processed(place, message.Offset)
			if m.config.Consumer.Offsets.AutoCommit.Enable {
				current.MarkMessage(message, "")
			}
		case <-current.Context().Done():
			return nil
		}
	}
}

// Commit what was processed, unless the scenario left it to the client.
func (m *member) Commit() {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.current == nil || m.config.Consumer.Offsets.AutoCommit.Enable {
		return
	}
	taken := m.journal.TakeUncommitted()
	if len(taken) == 0 {
		return
	}
	confirmed, err := committed(m.current, m.admin, m.session.Spec.Consumer.Group, taken)
	if err != nil {
		m.session.Report.Error(errorText(err))
	}
	for _, place := range confirmed {
		m.journal.Committed(place, taken[place])
	}
}

// committed positions of a session: of which the broker says that the group has them.
func committed(
	current sarama.ConsumerGroupSession, admin sarama.ClusterAdmin, group string, positions map[kit.TopicPartition]int64,
) (confirmed []kit.TopicPartition, err error) {
	asked := map[string][]int32{}
	for place, position := range positions {
		current.MarkOffset(place.Topic, place.Partition, position, "")
		asked[place.Topic] = append(asked[place.Topic], place.Partition)
	}
	current.Commit()
	answer, err := admin.ListConsumerGroupOffsets(group, asked)
	if err != nil {
		return nil, err
	}
	for place, position := range positions {
		block := answer.GetBlock(place.Topic, place.Partition)
		if block != nil && block.Err == sarama.ErrNoError && block.Offset == position {
			confirmed = append(confirmed, place)
		}
	}
	return confirmed, nil
}
