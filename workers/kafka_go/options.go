package main

import (
	"fmt"
	"log"
	"os"
	"sort"
	"strings"

	"brokerstorm/kit"
	"github.com/segmentio/kafka-go"
)

// writing and reading are what an application fills in; the names of options are paths in these.
type writing struct {
	Writer    kafka.Writer
	Transport kafka.Transport
}

type reading struct {
	Reader kafka.ReaderConfig
	Dialer kafka.Dialer
}

var structOptions = kit.StructOptions{
	Library: "kafka-go",
	Hint:    "options are paths: Writer.BatchTimeout, Transport.DialTimeout, Reader.SessionTimeout, Dialer.Timeout ...",
	Words: map[string]map[string]int64{
		"RequiredAcks":   {"requirenone": 0, "requireone": 1, "requireall": -1},
		"Compression":    {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4},
		"IsolationLevel": {"readuncommitted": 0, "readcommitted": 1},
	},
	Parse: func(field any, text string) (bool, error) {
		switch target := field.(type) {
		case *kafka.Balancer:
			return true, chosen(target, balancers, text)
		case *[]kafka.GroupBalancer:
			var balancer kafka.GroupBalancer
			err := chosen(&balancer, groupBalancers, text)
			*target = []kafka.GroupBalancer{balancer}
			return true, err
		}
		return false, nil
	},
}

// Types of the client that implement an interface of its own, by name in lower case.
var (
	balancers = map[string]kafka.Balancer{
		"hash": &kafka.Hash{}, "referencehash": &kafka.ReferenceHash{}, "crc32balancer": kafka.CRC32Balancer{},
		"murmur2balancer": kafka.Murmur2Balancer{}, "leastbytes": &kafka.LeastBytes{}, "roundrobin": &kafka.RoundRobin{},
	}
	groupBalancers = map[string]kafka.GroupBalancer{
		"rangegroupbalancer": kafka.RangeGroupBalancer{}, "roundrobingroupbalancer": kafka.RoundRobinGroupBalancer{},
	}
)

func chosen[V any](target *V, known map[string]V, text string) error {
	value, is := known[strings.ToLower(text)]
	if !is {
		var names []string
		for name := range known {
			names = append(names, name)
		}
		sort.Strings(names)
		return fmt.Errorf("must be one of %s", strings.Join(names, ", "))
	}
	*target = value
	return nil
}

func clientLog() *log.Logger {
	return log.New(os.Stderr, "[kafka-go] ", log.LstdFlags|log.Lmicroseconds|log.LUTC)
}

func refused(what string, err error) error {
	return kit.Failuref(structOptions.Hint+"; see also the client's log (stderr.log)", "kafka-go %s: %v", what, err)
}
