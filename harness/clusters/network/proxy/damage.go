package main

import (
	"math/rand"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The checksum of a batch of messages covers everything from its attributes on.
// https://kafka.apache.org/documentation/#recordbatch
const checkedFrom = 21

// recordsOf finds the messages of a Produce request or of a Fetch answer, as the bytes that came.
func recordsOf(message any) [][]byte {
	var found [][]byte
	switch known := message.(type) {
	case *kmsg.ProduceRequest:
		for _, topic := range known.Topics {
			for _, partition := range topic.Partitions {
				found = append(found, partition.Records)
			}
		}
	case *kmsg.FetchResponse:
		for _, topic := range known.Topics {
			for _, partition := range topic.Partitions {
				found = append(found, partition.RecordBatches)
			}
		}
	}
	return found
}

// flipOne flips one bit that a checksum covers; false: there are no messages.
func flipOne(records [][]byte) bool {
	for _, at := range rand.Perm(len(records)) {
		if batch := records[at]; len(batch) > checkedFrom {
			batch[checkedFrom+rand.Intn(len(batch)-checkedFrom)] ^= 1 << rand.Intn(8)
			return true
		}
	}
	return false
}
