// An application under test whose program is in an image: it reads orders and writes an invoice for each. It commits
// the position of what it has read after its invoices are acknowledged. FOLDER gets a line for each start.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("BOOTSTRAP"), ",")...),
		kgo.ConsumerGroup(os.Getenv("GROUP")),
		kgo.ConsumeTopics(os.Getenv("IN")),
		kgo.DefaultProduceTopic(os.Getenv("OUT")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.DisableAutoCommit(),
	)
	check(err)
	check(note(filepath.Join(os.Getenv("FOLDER"), "starts.txt")))
	fmt.Println("started", strings.Join(os.Args[1:], " "))
	if content, _ := os.ReadFile(filepath.Join(os.Getenv("FOLDER"), "starts.txt")); len(content) == len("start\n") {
		if os.Getenv("EATS") == "1" {
			go eat()
		}
	}
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 500)
		var invoices []*kgo.Record
		fetches.EachRecord(func(order *kgo.Record) {
			if string(order.Key) != "brokerstorm-probe" {
				invoices = append(invoices, &kgo.Record{Key: order.Key, Value: append(order.Value, " paid"...)})
			}
		})
		if err := client.ProduceSync(context.Background(), invoices...).FirstErr(); err != nil {
			check(err)
		}
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "commit:", err)
		}
	}
	client.Close()
	fmt.Println("stopped")
}

// eat takes all of the CPU for seconds, and then 256 MB of memory.
func eat() {
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
	}
	held := make([]byte, 256<<20)
	for at := 0; at < len(held); at += 4096 {
		held[at] = 1
	}
	fmt.Println("ate", len(held))
}

func note(path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString("start\n")
	return err
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
