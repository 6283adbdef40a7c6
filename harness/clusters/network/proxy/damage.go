package main

import (
	"encoding/binary"
	"math/rand"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A batch of messages begins with its first position, and with the length of all that follows the length. Its checksum
// covers everything from its attributes on. https://kafka.apache.org/documentation/#recordbatch
const (
	lengthAt    = 8
	lengthEnds  = 12
	checkedFrom = 21
)

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

// checkedIn finds the parts of whole batches that a checksum covers. The last batch of an answer may be cut off.
func checkedIn(batches []byte) [][]byte {
	var found [][]byte
	for len(batches) > checkedFrom {
		size := lengthEnds + int64(binary.BigEndian.Uint32(batches[lengthAt:lengthEnds]))
		if size <= checkedFrom || size > int64(len(batches)) {
			break
		}
		found = append(found, batches[checkedFrom:size])
		batches = batches[size:]
	}
	return found
}

// flipOne flips one bit that a checksum covers; false: there are no messages.
func flipOne(records [][]byte) bool {
	for _, at := range rand.Perm(len(records)) {
		if checked := checkedIn(records[at]); len(checked) > 0 {
			part := checked[rand.Intn(len(checked))]
			part[rand.Intn(len(part))] ^= 1 << rand.Intn(8)
			return true
		}
	}
	return false
}
