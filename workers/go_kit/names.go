package kit

import (
	"os"
	"path/filepath"
	"sort"
	"sync"
)

// Names is names.jsonl: the text of every id used in rows, on disk before the id's first use. Streams keep the
// ids of the spec, everything else comes behind. Errors have no secrets. Safe to use from any goroutine.
type Names struct {
	lock  sync.Mutex
	file  *os.File
	ids   map[[2]string]int32
	known map[TopicPartition]int32 // the streams that Partition was asked for
	next  int32
	fails error
}

func newNames(folder string, streams map[string]int32) (*Names, error) {
	path := filepath.Join(folder, "names.jsonl")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, Failuref("", "cannot write %s: %s", path, reason(err))
	}
	n := &Names{file: file, ids: map[[2]string]int32{}, known: map[TopicPartition]int32{}, next: 1}
	texts := make([]string, 0, len(streams))
	for text, id := range streams {
		texts = append(texts, text)
		if id >= n.next {
			n.next = id + 1
		}
	}
	sort.Slice(texts, func(i, j int) bool { return streams[texts[i]] < streams[texts[j]] })
	for _, text := range texts {
		n.add("stream", text, streams[text])
	}
	return n, n.fails
}

// ID of a text; a new one is written down before it is returned.
func (n *Names) ID(kind, text string) int32 {
	n.lock.Lock()
	defer n.lock.Unlock()
	if id, known := n.ids[[2]string{kind, text}]; known {
		return id
	}
	n.add(kind, text, n.next)
	n.next++
	return n.next - 1
}

// Partition is the ID of a partition's stream. The text of the stream is made once, and not for each message.
func (n *Names) Partition(place TopicPartition) int32 {
	n.lock.Lock()
	id, known := n.known[place]
	n.lock.Unlock()
	if !known {
		id = n.ID("stream", place.stream())
		n.lock.Lock()
		n.known[place] = id
		n.lock.Unlock()
	}
	return id
}

// Err is the first failure to write; ids given since are not on disk.
func (n *Names) Err() error {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.fails
}

func (n *Names) add(kind, text string, id int32) {
	n.ids[[2]string{kind, text}] = id
	if kind == "error" {
		text = withoutSecrets(text)
	}
	line := jsonLine(map[string]any{"id": id, "kind": kind, "text": text})
	if _, err := n.file.Write(line); err != nil && n.fails == nil { // one write: whole line or none
		n.fails = Failuref("free disk space", "cannot write names.jsonl: %s", reason(err))
	}
}
