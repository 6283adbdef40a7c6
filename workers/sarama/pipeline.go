package main

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

var errNotCommitted = errors.New("the group does not have all positions after the commit")

// piping is a member of a pipeline. A session of the group cannot go back, so to read again is to begin another one,
// and that is a rebalance.
type piping struct {
	*producer
	pipeline *kit.Pipeline
	topics   []string
	name     string // of the group
	admin    sarama.ClusterAdmin
	group    sarama.ConsumerGroup
	current  sarama.ConsumerGroupSession
}

func pipe(session *kit.Session) error {
	config, err := configOf(session.Half("consumer"))
	if err != nil {
		return err
	}
	sending, err := connected(session.Half("producer"))
	if err != nil {
		return err
	}
	spec := session.Spec
	brokers := strings.Split(spec.Bootstrap, ",")
	p := &piping{producer: sending, topics: spec.Consumer.Topics, name: spec.Consumer.Group}
	if p.admin, err = sarama.NewClusterAdmin(brokers, config); err != nil {
		return refused("refused to start", err)
	}
	if p.group, err = sarama.NewConsumerGroup(brokers, p.name, config); err != nil {
		return refused("refused to start", err)
	}
	p.pipeline = kit.NewPipeline(session, sending.loop)
	return p.pipeline.Run(p)
}

// Read in one session of the group.
func (p *piping) Read(leave context.Context) error {
	err := p.group.Consume(leave, p.topics, p)
	if err != nil && leave.Err() == nil {
		noteDeath(p.report, err)
	}
	return err
}

// Leave the group.
func (p *piping) Leave() { _ = p.group.Close() }

// Setup of a session: the group gave partitions.
func (p *piping) Setup(current sarama.ConsumerGroupSession) error {
	p.current = current
	p.pipeline.Assigned(kit.Places(current.Claims()))
	return nil
}

// Cleanup of a session: every claim has ended, and the coordinator waits.
func (p *piping) Cleanup(current sarama.ConsumerGroupSession) error {
	p.pipeline.Revoked(kit.Places(current.Claims()))
	return nil
}

// ConsumeClaim hands over the messages of one partition until the session ends; the first to return ends it.
func (p *piping) ConsumeClaim(current sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	place := kit.TopicPartition{Topic: claim.Topic(), Partition: claim.Partition()}
	p.pipeline.Begins(place, claim.InitialOffset())
	for again := p.pipeline.Again(); ; {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			p.pipeline.HandedOver(place, message.Offset, message.Value)
		case <-again:
			return nil
		case <-current.Context().Done():
			return nil
		}
	}
}

// AddPositions to the open transaction.
func (p *piping) AddPositions(positions map[kit.TopicPartition]int64) error {
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for place, position := range positions {
		at := &sarama.PartitionOffsetMetadata{Partition: place.Partition, Offset: position}
		offsets[place.Topic] = append(offsets[place.Topic], at)
	}
	own := p.own[0]
	if with := reflect.ValueOf(own.async).MethodByName(withMember); with.IsValid() {
		err, _ := with.Call([]reflect.Value{reflect.ValueOf(offsets), p.memberOf(with)})[0].Interface().(error)
		return own.noted(err)
	}
	return own.noted(own.calls.AddOffsetsToTxn(offsets, p.name))
}

// withMember tells the coordinator who adds positions (KIP-447), so that one who is no member any more is refused.
// Releases before 1.50.2 tell the name of the group only, and have no type for more.
const withMember = "AddOffsetsToTxnWithGroupMetadata"

// memberOf the group that this client is, as that call wants it.
func (p *piping) memberOf(call reflect.Value) reflect.Value {
	made := reflect.New(call.Type().In(1).Elem())
	made.Elem().FieldByName("GroupID").SetString(p.name)
	made.Elem().FieldByName("GenerationID").SetInt(int64(p.current.GenerationID()))
	made.Elem().FieldByName("MemberID").SetString(p.current.MemberID())
	return made
}

// CommitPositions apart from what was sent.
func (p *piping) CommitPositions(positions map[kit.TopicPartition]int64) error {
	confirmed, err := committed(p.current, p.admin, p.name, positions)
	if err == nil && len(confirmed) < len(positions) {
		err = errNotCommitted
	}
	return err
}

// ErrorText is the text behind an error id.
func (p *piping) ErrorText(err error) string { return errorText(err) }
