package kit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const neverNs = int64(1) << 62

// Control holds the commands of the harness so far.
type Control struct {
	t0Ns       atomic.Int64
	deadlineNs atomic.Int64
	started    chan struct{}
	startOnce  sync.Once
	stopLoad   atomic.Bool
	draining   atomic.Bool
	stopped    atomic.Bool
	report     *Reporter
}

func newControl(report *Reporter) *Control {
	c := &Control{started: make(chan struct{}), report: report}
	c.deadlineNs.Store(neverNs)
	return c
}

func (c *Control) handle(line string) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	number := int64(-1)
	if len(words) == 2 {
		if parsed, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			number = parsed
		}
	}
	switch {
	case words[0] == "start" && number >= 0:
		c.t0Ns.Store(number)
		c.startOnce.Do(func() { close(c.started) })
	case line == "stop-load":
		c.stopLoad.Store(true)
	case words[0] == "drain" && number >= 0:
		c.deadlineNs.Store(number)
		c.stopLoad.Store(true)
		c.draining.Store(true)
	case line == "stop":
		c.stop()
	default:
		c.report.say("error", map[string]any{"name": "protocol", "text": fmt.Sprintf("unknown command %q", line)})
	}
}

func (c *Control) stop() {
	c.stopLoad.Store(true)
	c.draining.Store(true)
	c.stopped.Store(true)
	c.startOnce.Do(func() { close(c.started) }) // so that a worker still waiting for `start` ends too
}

// Stopped: finish now, without waiting for open calls.
func (c *Control) Stopped() bool { return c.stopped.Load() }

// Over: stopped, or the deadline of the drain is past.
func (c *Control) Over() bool { return c.stopped.Load() || NowNs() > c.deadlineNs.Load() }

// listen obeys stdin until its end, which means that the harness is gone. SIGTERM means `stop`, SIGQUIT shows the
// stacks of all goroutines on stderr (Go's own handler would end the process), Ctrl-C is left to the harness.
func (c *Control) listen(commands io.Reader) {
	signal.Ignore(syscall.SIGINT)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for received := range signals {
			if received == syscall.SIGQUIT {
				os.Stderr.Write(stacks())
			} else {
				c.stop()
			}
		}
	}()
	go func() {
		lines := bufio.NewScanner(commands)
		for lines.Scan() {
			c.handle(strings.TrimSpace(lines.Text()))
		}
		c.stop()
	}()
}

// stacks of all goroutines, as a panic would print them, in one piece.
func stacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		buffer := make([]byte, size)
		if used := runtime.Stack(buffer, true); used < size {
			return append(buffer[:used], '\n')
		}
	}
}

// Reporter says every line on stdout. A harness that no longer reads is not an error here: stdin tells.
type Reporter struct {
	lock   sync.Mutex
	out    io.Writer
	freeze *freezeDetector
	seen   map[string]bool
	died   bool
	counts func() map[string]any
	ended  chan struct{}
	once   sync.Once
}

func newReporter(out io.Writer) *Reporter {
	r := &Reporter{out: out, seen: map[string]bool{}, ended: make(chan struct{})}
	r.freeze = newFreezeDetector(func(frozen int64) {
		text := fmt.Sprintf("this process did not run for %.3f s", float64(frozen)/1e9)
		r.say("event", map[string]any{"kind": "frozen", "text": text, "frozen_ns": frozen})
	})
	return r
}

func jsonLine(fields map[string]any) []byte {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(fields); err != nil {
		return []byte(fmt.Sprintf("{\"type\":\"error\",\"name\":\"protocol\",\"text\":%q}\n", err.Error()))
	}
	return line.Bytes()
}

func (r *Reporter) say(kind string, fields map[string]any) {
	line := map[string]any{"type": kind, "t_ns": NowNs(), "wall_ns": time.Now().UnixNano()}
	for name, value := range fields {
		line[name] = value
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.out.Write(jsonLine(line))
}

// start the ticker: it looks for freezes and says the `stats` line, also while the client blocks the role.
func (r *Reporter) start() {
	go func() {
		next := NowNs() + 1e9
		for {
			select {
			case <-r.ended:
				return
			case <-time.After(tickNs):
			}
			r.freeze.check()
			if now := NowNs(); now >= next {
				if next += 1e9; next < now {
					next = now
				}
				r.stats()
			}
		}
	}()
}

// Counts sets where the role's own numbers of `stats` and `done` come from.
func (r *Reporter) Counts(counts func() map[string]any) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.counts = counts
}

func (r *Reporter) numbers() map[string]any {
	r.lock.Lock()
	counts := r.counts
	r.lock.Unlock()
	if counts == nil {
		return map[string]any{}
	}
	return counts()
}

func (r *Reporter) stats() {
	fields := r.numbers()
	fields["cpu_s"] = float64(cpuNs()/100_000) / 10_000
	fields["rss_bytes"] = residentBytes()
	fields["frozen_ns"] = r.freeze.total()
	r.say("stats", fields)
}

// Event is a mark on the time line of the run.
func (r *Reporter) Event(kind, text string, more map[string]any) {
	fields := map[string]any{"kind": kind, "text": text}
	for name, value := range more {
		fields[name] = value
	}
	r.say("event", fields)
}

// Error says the first error of a class; further ones of that name are only in the rows.
func (r *Reporter) Error(text string) {
	name, _, _ := strings.Cut(text, ":")
	r.lock.Lock()
	known := r.seen[name]
	r.seen[name] = true
	r.lock.Unlock()
	if !known {
		r.say("error", map[string]any{"fatal": false, "name": name, "text": text})
	}
}

// ClientDied says, once, that the client declared itself dead: its words, which begin with the name of the error, and
// why: "error", "fenced" (another client has its name) or "asked" (its settings ask for it). On any goroutine.
func (r *Reporter) ClientDied(text, why string) {
	r.lock.Lock()
	known := r.died
	r.died = true
	r.lock.Unlock()
	if !known {
		name, _, _ := strings.Cut(text, ":")
		r.Event("client-died", text, map[string]any{"name": name, "why": why})
	}
}

// Died: ClientDied was said; nothing more is asked of the client.
func (r *Reporter) Died() bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.died
}

func (r *Reporter) fatal(name, text, hint string) {
	r.say("error", map[string]any{"fatal": true, "name": name, "text": text, "hint": hint})
}

// done: last numbers; the capture of this worker is complete.
func (r *Reporter) done() {
	r.close()
	r.stats()
	r.say("done", r.numbers())
}

func (r *Reporter) close() { r.once.Do(func() { close(r.ended) }) }

// residentBytes of this process; 0 where /proc is missing.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var total, resident int64
	if _, err = fmt.Sscan(string(text), &total, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
