package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The results of a call over several partitions come in the order in which their brokers answered.
func TestResultsOfACallBelongToItsRecords(t *testing.T) {
	records := []*kgo.Record{{Partition: 0}, {Partition: 1}, {Partition: 2}}
	ended := kgo.ProduceResults{{Record: records[2]}, {Record: records[0]}, {Record: records[1]}}
	for i, result := range inOrderOf(records, ended) {
		if result.Record != records[i] {
			t.Fatalf("result %d is of partition %d", i, result.Record.Partition)
		}
	}
}
