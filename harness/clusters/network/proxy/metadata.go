package main

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaders are what a rule says of partitions: the first that a broker said of each since the rule began.
type leaders struct {
	mutex sync.Mutex
	known map[place]leader
}

type place struct {
	topic     string
	id        [16]byte
	partition int32
}

type leader struct{ broker, epoch int32 }

// keep lets an answer about topics name the leaders of before, or a broker that is gone. false: it names no leader.
func (l *leaders) keep(answer *kmsg.MetadataResponse, gone bool) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.known == nil {
		l.known = map[place]leader{}
	}
	absent := int32(-1)
	if gone {
		absent = addAbsent(answer)
	}
	changed := false
	for i := range answer.Topics {
		topic := &answer.Topics[i]
		name := ""
		if topic.Topic != nil {
			name = *topic.Topic
		}
		for j := range topic.Partitions {
			partition := &topic.Partitions[j]
			if gone {
				partition.Leader = absent
				changed = true
				continue
			}
			at := place{name, topic.TopicID, partition.Partition}
			before, found := l.known[at]
			if !found {
				before = leader{partition.Leader, partition.LeaderEpoch}
				l.known[at] = before
			}
			changed = changed || before.broker != partition.Leader
			partition.Leader, partition.LeaderEpoch = before.broker, before.epoch
		}
	}
	return changed
}

// addAbsent adds a broker with a port that refuses connections, and returns its id.
func addAbsent(answer *kmsg.MetadataResponse) int32 {
	absent := kmsg.NewMetadataResponseBroker()
	absent.Port = 1
	for _, each := range answer.Brokers {
		absent.NodeID, absent.Host = max(absent.NodeID, each.NodeID+1), each.Host
	}
	answer.Brokers = append(answer.Brokers, absent)
	return absent.NodeID
}
