package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"brokerstorm/kit"
	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

// producing and consuming are what an application fills in; the names of options are paths in these.
type producing struct {
	Client   pulsar.ClientOptions
	Producer pulsar.ProducerOptions
}

type consuming struct {
	Client   pulsar.ClientOptions
	Consumer pulsar.ConsumerOptions
}

var structOptions = kit.StructOptions{
	Library: "pulsar-client-go",
	Hint:    "options are paths: Client.OperationTimeout, Producer.SendTimeout, Consumer.Type ...",
	Words: map[string]map[string]int64{
		"BatcherBuilderType":          {"defaultbatchbuilder": 0, "keybasedbatchbuilder": 1},
		"CompressionLevel":            {"default": 0, "faster": 1, "better": 2},
		"CompressionType":             {"nocompression": 0, "none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4},
		"HashingScheme":               {"javastringhash": 0, "murmur3_32hash": 1},
		"ProducerAccessMode":          {"shared": 0, "exclusive": 1, "waitforexclusive": 2},
		"SubscriptionInitialPosition": {"latest": 0, "earliest": 1},
		"SubscriptionMode":            {"": 0, "durable": 1, "nondurable": 2},
		"SubscriptionType":            {"exclusive": 0, "shared": 1, "failover": 2, "keyshared": 3},
		"KeySharedPolicyMode":         {"autosplit": 0, "sticky": 1},
	},
}

// clientLog is the client's own log, which is also where it tells of connections; seen may be nil.
func clientLog(seen func(line string)) log.Logger {
	logger := logrus.New()
	logger.SetOutput(os.Stderr)
	logger.SetFormatter(lines{})
	if seen != nil {
		logger.AddHook(hook(seen))
	}
	return log.NewLoggerWithLogrus(logger)
}

// hook is given every line from level info on.
type hook func(line string)

func (h hook) Levels() []logrus.Level {
	return []logrus.Level{logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel}
}

func (h hook) Fire(entry *logrus.Entry) error {
	h(entry.Message)
	return nil
}

// lines begin with time and level.
type lines struct{}

func (lines) Format(entry *logrus.Entry) ([]byte, error) {
	when, level := entry.Time.UTC().Format("2006-01-02T15:04:05.000"), strings.ToUpper(entry.Level.String())
	return []byte(fmt.Sprintf("%s %s %s %v\n", when, level, entry.Message, entry.Data)), nil
}

// newClient of the options that are left after the role's own.
func newClient(
	session *kit.Session, options pulsar.ClientOptions, token string, seen func(string),
) (pulsar.Client, error) {
	options.URL = session.Spec.Bootstrap
	options.Logger = clientLog(seen)
	if token != "" {
		options.Authentication = pulsar.NewAuthenticationToken(token)
	}
	client, err := pulsar.NewClient(options)
	if err != nil {
		return nil, refused("refused its options", err)
	}
	return client, nil
}

// take an option of the worker's own out of the others.
func take(options map[string]string, name string) string {
	text := options[name]
	delete(options, name)
	return text
}

// within a time, for a client that goes on asking for longer than it says.
func within[V any](limit time.Duration, what string, call func() (V, error)) (V, error) {
	type answer struct {
		value V
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := call()
		answers <- answer{value, err}
	}()
	select {
	case given := <-answers:
		if given.err != nil {
			return given.value, refused("refused "+what, given.err)
		}
		return given.value, nil
	case <-time.After(limit):
		var none V
		return none, refused("did not answer", fmt.Errorf("%s after %s", what, limit))
	}
}

func refused(what string, err error) error {
	hint := structOptions.Hint + "; see also the client's log (stderr.log)"
	return kit.Failuref(hint, "pulsar-client-go %s: %v", what, err)
}
