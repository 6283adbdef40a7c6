package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"brokerstorm/kit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errRecordFailed: the application does not ask for a commit when a record of the transaction was not stored
// (examples/transactions of franz-go).
var errRecordFailed = errors.New("a record of the transaction was not stored")

// transactionAbortable is TRANSACTION_ABORTABLE, which releases before 1.17 do not have.
const transactionAbortable = 120

// unrecoverable is in the error of BeginTransaction after which the client takes nothing any more.
const unrecoverable = "unrecoverable"

// loadsWithin bounds how long a worker waits before the load for a coordinator of transactions: on a fresh cluster its
// partition is still being made or read.
const loadsWithin = 30 * time.Second

// betweenQuestions is what the client waits for by itself, with its default for RequestRetries.
const betweenQuestions = 250 * time.Millisecond

// whileCoordinatorLoads asks again while the answer is that the coordinator is not ready; the last answer counts. The
// client does that by itself unless RequestRetries says otherwise, which is about requests of the load.
func whileCoordinatorLoads(ask func() error, within time.Duration) error {
	end := time.Now().Add(within)
	for {
		err := ask()
		isLoading := errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.CoordinatorNotAvailable) ||
			errors.Is(err, kerr.NotCoordinator)
		if !isLoading || time.Now().After(end) {
			return err
		}
		time.Sleep(betweenQuestions)
	}
}

// transactional is the client of one sending goroutine.
type transactional struct {
	client *kgo.Client
	report *kit.Reporter
	lost   atomic.Bool // a record of the open transaction was not stored
	dead   bool
}

// connectTransactional makes a client, with an id of its own, for each goroutine that sends.
func (p *producer) connectTransactional(options map[string]string) error {
	for thread := 0; thread < p.loop.Threads(); thread++ {
		taken := map[string]string{}
		for name, text := range options {
			taken[name] = text
		}
		client, err := p.connected(taken, kgo.TransactionalID(p.loop.TransactionalID(thread)))
		if err != nil {
			return err
		}
		ask := func() error {
			_, _, err := client.ProducerID(context.Background())
			return err
		}
		if err = whileCoordinatorLoads(ask, loadsWithin); err != nil {
			return refused("got no producer id", err)
		}
		own := &transactional{client: client, report: p.session.Report}
		p.own = append(p.own, own)
		p.loop.Transactional(thread, own)
	}
	return nil
}

func (t *transactional) failed(error) { t.lost.Store(true) }

func (t *transactional) Begin() error {
	t.lost.Store(false)
	err := t.client.BeginTransaction()
	if err != nil && strings.Contains(err.Error(), unrecoverable) {
		t.dead = true
		why := "error"
		if fenced(err) {
			why = "fenced"
		}
		t.report.ClientDied(className(err)+": "+err.Error(), why)
	}
	return err
}

// Commit what was stored; the client does not flush by itself.
func (t *transactional) Commit() error {
	if err := t.client.Flush(context.Background()); err != nil {
		return err
	}
	if t.lost.Load() {
		return errRecordFailed
	}
	return t.client.EndTransaction(context.Background(), kgo.TryCommit)
}

func (t *transactional) Abort() error {
	if err := t.client.AbortBufferedRecords(context.Background()); err != nil {
		return err
	}
	return t.client.EndTransaction(context.Background(), kgo.TryAbort)
}

// Reaction: doc of EndTransaction. A commit that was not attempted, or that the broker wants aborted, is aborted. What
// became of any other is unknown: it is not asked for again, and an abort lets the client go on.
func (t *transactional) Reaction(err error) kit.Reaction {
	var code *kerr.Error
	isAbortable := errors.As(err, &code) && code.Code == transactionAbortable
	if isAbortable || errors.Is(err, errRecordFailed) || errors.Is(err, kerr.OperationNotAttempted) {
		return kit.AbortIt
	}
	return kit.AbortUnknown
}

func (t *transactional) IsDead() bool { return t.dead }

func (t *transactional) ErrorText(err error) string { return errorText(err) }
