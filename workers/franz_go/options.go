package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	"github.com/twmb/franz-go/pkg/kgo"
)

const optionsHint = "options are the functions of package kgo that make one: ProducerLinger, RequiredAcks ..."

// retriableErrors counts answers to Produce that are to be tried again, by the line that the client logs when it asks
// for metadata before that. Several at once are one line.
var retriableErrors atomic.Int64

// clientLog is stderr, kept by the harness.
type clientLog struct{}

func (c clientLog) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "produce request had retry batches") {
		retriableErrors.Add(1)
	}
	return os.Stderr.Write(line)
}

// maker makes an option of the client from text; nil: the text is "false" for one that can only be set.
type maker func(text string) (kgo.Opt, error)

// makers of the options that every version has and that can be written as text, by the names of their functions.
var makers = map[string]maker{
	"AllowAutoTopicCreation":              flag(kgo.AllowAutoTopicCreation),
	"Balancers":                           taking(words(balancers), one(kgo.Balancers)),
	"BlockRebalanceOnPoll":                flag(kgo.BlockRebalanceOnPoll),
	"BrokerMaxReadBytes":                  taking(number[int32], kgo.BrokerMaxReadBytes),
	"BrokerMaxWriteBytes":                 taking(number[int32], kgo.BrokerMaxWriteBytes),
	"ClientID":                            taking(text, kgo.ClientID),
	"ConcurrentTransactionsBackoff":       taking(time.ParseDuration, kgo.ConcurrentTransactionsBackoff),
	"ConnIdleTimeout":                     taking(time.ParseDuration, kgo.ConnIdleTimeout),
	"ConsiderMissingTopicDeletedAfter":    taking(time.ParseDuration, kgo.ConsiderMissingTopicDeletedAfter),
	"ConsumeResetOffset":                  taking(words(offsets), kgo.ConsumeResetOffset),
	"DialTimeout":                         taking(time.ParseDuration, kgo.DialTimeout),
	"DisableFetchSessions":                flag(kgo.DisableFetchSessions),
	"DisableIdempotentWrite":              flag(kgo.DisableIdempotentWrite),
	"FetchIsolationLevel":                 taking(words(isolations), kgo.FetchIsolationLevel),
	"FetchMaxBytes":                       taking(number[int32], kgo.FetchMaxBytes),
	"FetchMaxPartitionBytes":              taking(number[int32], kgo.FetchMaxPartitionBytes),
	"FetchMaxWait":                        taking(time.ParseDuration, kgo.FetchMaxWait),
	"FetchMinBytes":                       taking(number[int32], kgo.FetchMinBytes),
	"HeartbeatInterval":                   taking(time.ParseDuration, kgo.HeartbeatInterval),
	"InstanceID":                          taking(text, kgo.InstanceID),
	"KeepRetryableFetchErrors":            flag(kgo.KeepRetryableFetchErrors),
	"MaxBufferedBytes":                    taking(strconv.Atoi, kgo.MaxBufferedBytes),
	"MaxBufferedRecords":                  taking(strconv.Atoi, kgo.MaxBufferedRecords),
	"MaxConcurrentFetches":                taking(strconv.Atoi, kgo.MaxConcurrentFetches),
	"MaxProduceRequestsInflightPerBroker": taking(strconv.Atoi, kgo.MaxProduceRequestsInflightPerBroker),
	"MetadataMaxAge":                      taking(time.ParseDuration, kgo.MetadataMaxAge),
	"MetadataMinAge":                      taking(time.ParseDuration, kgo.MetadataMinAge),
	"ProduceRequestTimeout":               taking(time.ParseDuration, kgo.ProduceRequestTimeout),
	"ProducerBatchCompression":            taking(words(codecs), one(kgo.ProducerBatchCompression)),
	"ProducerBatchMaxBytes":               taking(number[int32], kgo.ProducerBatchMaxBytes),
	"ProducerLinger":                      taking(time.ParseDuration, kgo.ProducerLinger),
	"Rack":                                taking(text, kgo.Rack),
	"RebalanceTimeout":                    taking(time.ParseDuration, kgo.RebalanceTimeout),
	"RecordDeliveryTimeout":               taking(time.ParseDuration, kgo.RecordDeliveryTimeout),
	"RecordRetries":                       taking(strconv.Atoi, kgo.RecordRetries),
	"RequestRetries":                      taking(strconv.Atoi, kgo.RequestRetries),
	"RequestTimeoutOverhead":              taking(time.ParseDuration, kgo.RequestTimeoutOverhead),
	"RequireStableFetchOffsets":           flag(kgo.RequireStableFetchOffsets),
	"RequiredAcks":                        taking(words(acks), kgo.RequiredAcks),
	"RetryTimeout":                        taking(time.ParseDuration, kgo.RetryTimeout),
	"SessionTimeout":                      taking(time.ParseDuration, kgo.SessionTimeout),
	"StopProducerOnDataLossDetected":      flag(kgo.StopProducerOnDataLossDetected),
	"TransactionTimeout":                  taking(time.ParseDuration, kgo.TransactionTimeout),
	"UnknownTopicRetries":                 taking(strconv.Atoi, kgo.UnknownTopicRetries),
}

// Words for what the client has a function for, in lower case.
var (
	acks = map[string]kgo.Acks{
		"allisracks": kgo.AllISRAcks(), "leaderack": kgo.LeaderAck(), "noack": kgo.NoAck(),
	}
	balancers = map[string]kgo.GroupBalancer{
		"cooperativesticky": kgo.CooperativeStickyBalancer(), "sticky": kgo.StickyBalancer(),
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	}
	codecs = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	isolations = map[string]kgo.IsolationLevel{
		"readuncommitted": kgo.ReadUncommitted(), "readcommitted": kgo.ReadCommitted(),
	}
	offsets = map[string]kgo.Offset{
		"atstart": kgo.NewOffset().AtStart(), "atend": kgo.NewOffset().AtEnd(), "none": kgo.NoResetOffset(),
	}
)

func taking[V any, O kgo.Opt](parse func(string) (V, error), option func(V) O) maker {
	return func(text string) (kgo.Opt, error) {
		value, err := parse(text)
		if err != nil {
			return nil, err
		}
		return option(value), nil
	}
}

// one value of an option that takes several.
func one[V any, O kgo.Opt](option func(...V) O) func(V) O {
	return func(value V) O { return option(value) }
}

func flag[O kgo.Opt](option func() O) maker {
	return func(text string) (kgo.Opt, error) {
		if on, err := strconv.ParseBool(text); err != nil || !on {
			return nil, err
		}
		return option(), nil
	}
}

func text(text string) (string, error) { return text, nil }

func number[N ~int32](text string) (N, error) {
	value, err := strconv.ParseInt(text, 10, 32)
	return N(value), err
}

func words[V any](known map[string]V) func(string) (V, error) {
	return func(text string) (V, error) {
		value, is := known[strings.ToLower(text)]
		if !is {
			return value, fmt.Errorf("must be one of %s", strings.Join(sorted(known), ", "))
		}
		return value, nil
	}
}

func sorted[V any](named map[string]V) []string {
	names := make([]string, 0, len(named))
	for name := range named {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// clientOptions of the role, over the client's own defaults; what the scenario and the cluster ask as text is left in
// options. Those of the caller come last. Under --check-options the client's own checks come at once.
func clientOptions(session *kit.Session, options map[string]string, own ...kgo.Opt) ([]kgo.Opt, error) {
	spec := session.Spec
	made := []kgo.Opt{
		kgo.ClientID(spec.Name), kgo.SeedBrokers(strings.Split(spec.Bootstrap, ",")...),
		kgo.WithLogger(kgo.BasicLogger(clientLog{}, kgo.LogLevelInfo, logPrefix)),
	}
	secured, err := secure(options)
	if err != nil {
		return nil, err
	}
	made = append(made, secured...)
	for _, name := range sorted(options) {
		option, known := makers[name]
		if !known {
			return nil, kit.UnknownOption("franz-go", name, sorted(makers), optionsHint)
		}
		each, err := option(options[name])
		if err != nil {
			return nil, kit.Failuref(optionsHint, "franz-go: option %s: %q: %v", name, options[name], err)
		}
		if each != nil {
			made = append(made, each)
		}
	}
	made = append(made, own...)
	if err := kgo.ValidateOpts(made...); err != nil {
		return nil, refused("refused its options", err)
	}
	return made, session.OptionsTaken()
}

func logPrefix() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000 ") }

func refused(what string, err error) error {
	return kit.Failuref(optionsHint+"; see also the client's log (stderr.log)", "franz-go %s: %v", what, err)
}
