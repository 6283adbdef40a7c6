package main

import (
	"fmt"
	"strings"

	"brokerstorm/kit"
	"github.com/apache/pulsar-client-go/pulsar"
)

const partitionOf = "-partition-"

// address of the topic that a lane is sent to: a topic of one partition is no partitioned topic.
func address(spec *kit.Spec, lane *kit.Lane) string {
	topic := spec.Topics[lane.Topic]
	if topic.Partitions > 1 && lane.Partition >= 0 {
		return fmt.Sprintf("%s%s%d", topic.Address, partitionOf, lane.Partition)
	}
	return topic.Address
}

// streams of the spec by the address of the topic that holds each, and (partitioned) by address and partition.
type streams map[string]string

func streamsOf(spec *kit.Spec) streams {
	found := streams{}
	for name, topic := range spec.Topics {
		found[topic.Address] = name + "-0"
		for partition := 0; partition < topic.Partitions && topic.Partitions > 1; partition++ {
			found[fmt.Sprintf("%s%s%d", topic.Address, partitionOf, partition)] = fmt.Sprintf("%s-%d", name, partition)
		}
	}
	return found
}

// place of a message of a topic, whose address may be that of all its partitions: then the id has the partition.
func (s streams) place(address string, id pulsar.MessageID) kit.Place {
	if partition := id.PartitionIdx(); partition >= 0 && !strings.Contains(address, partitionOf) {
		if _, is := s[fmt.Sprintf("%s%s%d", address, partitionOf, partition)]; is {
			address = fmt.Sprintf("%s%s%d", address, partitionOf, partition)
		}
	}
	stream, known := s[address]
	if !known {
		stream = address
	}
	return kit.Place{Stream: stream, Position: id.EntryID(), Ledger: id.LedgerID(), Batch: id.BatchIdx()}
}
