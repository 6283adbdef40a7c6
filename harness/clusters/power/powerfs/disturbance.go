package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	opRead  = "read"
	opWrite = "write"
	opSync  = "fsync"
	// The kernel answers most reads from its cache. It is dropped this often, so that reads reach the disk.
	dropCacheEvery = 250 * time.Millisecond
	// How often a delay looks whether the process that waits is being killed, once it was sent a signal.
	lookEvery = 50 * time.Millisecond
)

var pendingSignals = regexp.MustCompile(`(?m)^SigPnd:\s*([0-9a-f]+)$`)

var errnoOf = map[string]syscall.Errno{
	"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EDQUOT": syscall.EDQUOT, "EROFS": syscall.EROFS,
}

// A disturbance makes some operations on some files of a disk fail or wait, or makes the disk say that it
// synced what it did not sync. It counts the operations that it met.
type disturbance struct {
	Act        string   `json:"act"` // "error", "delay" or "lie"
	Operations []string `json:"operations"`
	Share      float64  `json:"share"` // of the operations
	Errno      string   `json:"errno"`
	DelayMs    float64  `json:"delay_ms"`
	Of         string   `json:"of"`  // regular expression: names of the files, below the data folder
	But        string   `json:"but"` // other names
	Seed       int64    `json:"seed"`

	of, but *regexp.Regexp
	over    chan struct{} // closed when it is undone
	mu      sync.Mutex
	random  *rand.Rand
	counted Counts
}

// Counts of a disturbance. Seen: operations that it might have met. Met: by operation, those it met.
type Counts struct {
	Seen  int64            `json:"seen"`
	Met   map[string]int64 `json:"met"`
	Files []string         `json:"files"` // some of the files
}

func (x *disturbance) prepare() (err error) {
	if _, known := errnoOf[x.Errno]; x.Act == "error" && !known {
		return fmt.Errorf("no error %q", x.Errno)
	}
	if x.of, err = regexp.Compile(x.Of); err != nil {
		return err
	}
	if x.but, err = regexp.Compile(x.But); err != nil {
		return err
	}
	x.over = make(chan struct{})
	x.random = rand.New(rand.NewSource(x.Seed))
	x.counted = Counts{Met: map[string]int64{}, Files: []string{}}
	return nil
}

func (x *disturbance) concerns(name string) bool {
	return x.of.MatchString(name) && (x.But == "" || !x.but.MatchString(name))
}

// meets tells whether an operation is one of its share, and counts it.
func (x *disturbance) meets(operation, name string) bool {
	if !slices.Contains(x.Operations, operation) || !x.concerns(name) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counted.Seen++
	if x.random.Float64() >= x.Share {
		return false
	}
	x.counted.Met[operation]++
	if len(x.counted.Files) < mostNamed && !slices.Contains(x.counted.Files, name) {
		x.counted.Files = append(x.counted.Files, name)
	}
	return true
}

func (x *disturbance) counts() Counts {
	x.mu.Lock()
	defer x.mu.Unlock()
	met := map[string]int64{}
	for operation, count := range x.counted.Met {
		met[operation] = count
	}
	return Counts{x.counted.Seen, met, slices.Clone(x.counted.Files)}
}

// disturb carries the disturbances of an operation out. It returns the error to answer with, and whether the
// disk only says that it synced, which is never so with an error.
func (d *disk) disturb(ctx context.Context, operation, name string) (errno syscall.Errno, lies bool) {
	active := d.disturbances.Load()
	if active == nil {
		return 0, false
	}
	for _, x := range *active {
		if !x.meets(operation, name) {
			continue
		}
		switch x.Act {
		case "delay":
			if !x.wait(ctx) {
				return syscall.EINTR, false
			}
		case "error":
			errno = errnoOf[x.Errno]
		case "lie":
			lies = true
		}
	}
	return errno, lies && errno == 0
}

// wait for the time of a delay, or for its end. It returns false when the process that waits is being killed:
// the kernel ends it only when its operation has an answer. Other signals do not shorten the wait, because no
// program expects that a disk answers with EINTR.
func (x *disturbance) wait(ctx context.Context) bool {
	done := time.After(time.Duration(x.DelayMs * float64(time.Millisecond)))
	interrupted := ctx.Done()
	var look <-chan time.Time
	for {
		select {
		case <-done:
			return true
		case <-x.over:
			return true
		case <-interrupted:
			interrupted = nil // the kernel tells of the first signal only
			ticker := time.NewTicker(lookEvery)
			defer ticker.Stop()
			look = ticker.C
		case <-look:
		}
		if interrupted == nil && isKilled(ctx) {
			return false
		}
	}
}

// isKilled tells whether the thread that asked for an operation has SIGKILL pending, or is no more.
func isKilled(ctx context.Context) bool {
	caller, known := fuse.FromContext(ctx)
	if !known || caller.Pid == 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", caller.Pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	found := pendingSignals.FindSubmatch(status)
	if found == nil {
		return false
	}
	pending, err := strconv.ParseUint(string(found[1]), 16, 64)
	return err == nil && pending&(1<<(syscall.SIGKILL-1)) != 0
}

func (d *disk) begin(name string, x *disturbance) error {
	if err := x.prepare(); err != nil {
		return err
	}
	d.undo(name)
	d.change(func(all map[string]*disturbance) { all[name] = x })
	if slices.Contains(x.Operations, opRead) {
		go d.dropCache(x)
	}
	return nil
}

// undo ends a disturbance, or all if the name is empty. What the disk only said to have synced is synced then.
func (d *disk) undo(name string) {
	d.change(func(all map[string]*disturbance) {
		for one, x := range all {
			if name == "" || name == one {
				close(x.over)
				delete(all, one)
			}
		}
	})
	d.keepClaimed()
}

func (x *disturbance) isLie() bool { return x.Act == "lie" }

// isLying tells whether a lie is not undone yet; call it with mu held.
func (d *disk) isLying() bool {
	active := d.disturbances.Load()
	return active != nil && slices.ContainsFunc(*active, (*disturbance).isLie)
}

// change the disturbances. Operations read a copy: they must not wait for each other here.
func (d *disk) change(how func(map[string]*disturbance)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how(d.byName)
	active := make([]*disturbance, 0, len(d.byName))
	for _, x := range d.byName {
		active = append(active, x)
	}
	d.disturbances.Store(&active)
}

// counts of a disturbance; nil: there is none.
func (d *disk) counts(name string) *Counts {
	d.mu.Lock()
	x := d.byName[name]
	d.mu.Unlock()
	if x == nil {
		return nil
	}
	counts := x.counts()
	return &counts
}

func (d *disk) dropCache(x *disturbance) {
	ticker := time.NewTicker(dropCacheEvery)
	defer ticker.Stop()
	for {
		d.mu.Lock()
		root := d.root
		d.mu.Unlock()
		dropBelow(root, "", x)
		select {
		case <-x.over:
			return
		case <-ticker.C:
		}
	}
}

func dropBelow(at *fs.Inode, path string, x *disturbance) {
	for name, child := range at.Children() {
		below := path + name
		if child.IsDir() {
			dropBelow(child, below+"/", x)
		} else if x.concerns(below) {
			child.NotifyContent(0, 0)
		}
	}
}

// keepClaimed counts files and folders as synced that the disk said to have synced, once no lie is left: its
// cache is written out.
func (d *disk) keepClaimed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isLying() {
		return
	}
	for number, x := range d.files {
		if x.isClaimed() {
			x.sync(func() error { return nil })
			d.tidy(number, x)
		}
	}
	d.settleMoves(func(m *move, folder uint64) bool { return m.folders[folder] })
}

// claim remembers that the disk said of a file that it is synced. It returns false, and the file must be
// synced, when the lie was undone meanwhile: nobody would settle the claim.
func (d *disk) claim(number uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isLying() {
		return false
	}
	if x := d.files[number]; x != nil {
		x.claim()
	}
	return true
}

// claimFolder is the same of the names in a folder.
func (d *disk) claimFolder(number uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isLying() {
		return false
	}
	for _, m := range d.moves {
		if _, unsynced := m.folders[number]; unsynced {
			m.folders[number] = true
		}
	}
	return true
}
