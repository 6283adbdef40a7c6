package main

import (
	"fmt"
	"reflect"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

// transactionID is the path in sarama.Config, which knows it since 1.37.
const transactionID = "Producer.Transaction.ID"

// ProducerTxnFlagAbortableError and ProducerTxnFlagFatalError, which older releases do not have.
const (
	abortable = 1 << 8
	fatal     = 1 << 9
)

// transacting are the calls of a sarama.AsyncProducer since 1.37.
type transacting interface {
	BeginTxn() error
	CommitTxn() error
	AbortTxn() error
	AddOffsetsToTxn(offsets map[string][]*sarama.PartitionOffsetMetadata, group string) error
}

// transactional is the producer of one sending goroutine.
type transactional struct {
	async  sarama.AsyncProducer
	calls  transacting
	client sarama.Client
	report *kit.Reporter
}

// connectTransactional makes a client and a producer, with an id of its own, for each goroutine that sends.
func (p *producer) connectTransactional(brokers []string) error {
	for thread := 0; thread < p.loop.Threads(); thread++ {
		config := *p.config
		if err := structOptions.Set(&config, map[string]string{transactionID: p.loop.TransactionalID(thread)}); err != nil {
			return err
		}
		client, err := sarama.NewClient(brokers, &config)
		if err != nil {
			return refused("refused to start", err)
		}
		own := &transactional{client: client, report: p.report}
		err = created(func() (err error) {
			own.async, err = sarama.NewAsyncProducerFromClient(client)
			return err
		})
		if err != nil {
			return err
		}
		calls, can := own.async.(transacting)
		if !can {
			return kit.Failuref("", "sarama has no transactions before 1.37.0")
		}
		own.calls = calls
		p.answersOf(own.async)
		p.own = append(p.own, own)
		p.loop.Transactional(thread, own)
	}
	return nil
}

func (t *transactional) Begin() error  { return t.noted(t.calls.BeginTxn()) }
func (t *transactional) Commit() error { return t.noted(t.calls.CommitTxn()) }
func (t *transactional) Abort() error  { return t.noted(t.calls.AbortTxn()) }

func (t *transactional) noted(err error) error {
	if err != nil && t.IsDead() {
		t.report.ClientDied(className(err)+": "+err.Error(), "error")
	}
	return err
}

// Reaction: examples/txn_producer of sarama: a fatal error ends the producer, an abortable one the transaction, and
// after any other the same call is made again.
func (t *transactional) Reaction(error) kit.Reaction {
	switch {
	case t.IsDead():
		return kit.GiveUp
	case t.status()&abortable != 0:
		return kit.AbortIt
	}
	return kit.AskAgain
}

func (t *transactional) IsDead() bool { return t.status()&fatal != 0 }

// status of the transaction, flags. Releases before 1.37 have neither the call nor its type.
func (t *transactional) status() int64 {
	found := reflect.ValueOf(t.async).MethodByName("TxnStatus").Call(nil)[0]
	if found.CanInt() {
		return found.Int()
	}
	panic(fmt.Sprintf("TxnStatus is a %s", found.Type()))
}

func (t *transactional) ErrorText(err error) string { return errorText(err) }

func (t *transactional) close() {
	t.async.AsyncClose()
	_ = t.client.Close()
}
