package main

import (
	"cmp"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	mostNamed   = 5
	unmountFor  = 5 * time.Second
	cachedFor   = time.Hour // nobody else writes to the folder
	trashSuffix = ".unlinked"
)

// The data folder of one node: mounted on itself, so that what lies below is reached by a handle from before.
type disk struct {
	name   string
	folder string
	below  *os.File
	server *fuse.Server
	trash  string // where unlinked files wait for their folder's sync; "" = folders lose nothing

	disturbances atomic.Pointer[[]*disturbance] // what operations read; changed under mu

	mu     sync.Mutex
	root   *fs.Inode
	byName map[string]*disturbance
	files  map[uint64]*file // by inode
	moves  []*move
	count  int
}

// What a loss of power dropped, or would drop now.
type Loss struct {
	Files   int      `json:"files"`   // with bytes that were not synced
	Bytes   int64    `json:"bytes"`   // written to them since their last sync
	Entries int      `json:"entries"` // of folders: created, renamed, removed
	Claimed int64    `json:"claimed"` // of the bytes, those that the disk had said to be synced
	Names   []string `json:"names"`   // of the files, those with most bytes first

	ClaimedFiles   []string `json:"claimed_files"`   // all files with such bytes
	ClaimedEntries []string `json:"claimed_entries"` // names whose changes the disk had said to be synced
}

func openDisk(name, folder string, keepUnlinked bool) (*disk, error) {
	below, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	d := &disk{name: name, folder: folder, below: below, files: map[uint64]*file{},
		byName: map[string]*disturbance{}}
	if keepUnlinked {
		d.trash = folder + trashSuffix
		err = os.MkdirAll(d.trash, 0o700)
	}
	return d, err
}

func (d *disk) mount() error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(d.below.Fd()), &st); err != nil {
		return err
	}
	root := &fs.LoopbackRoot{Path: pathOf(d.below), Dev: uint64(st.Dev)}
	root.NewNode = func(data *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{LoopbackNode: fs.LoopbackNode{RootData: data}, disk: d}
	}
	root.RootNode = root.NewNode(root, nil, "", &st)
	cached := cachedFor
	server, err := fs.Mount(d.folder, root.RootNode, &fs.Options{
		EntryTimeout: &cached,
		AttrTimeout:  &cached,
		MountOptions: fuse.MountOptions{
			DirectMount: true, FsName: "brokerstorm", Name: "powerfs",
			ExplicitDataCacheControl: true, DisableXAttrs: true,
		},
	})
	d.server, d.root = server, root.RootNode.EmbeddedInode()
	return err
}

// unmount also writes back what is mapped. A process that was killed a moment ago may still hold it.
func (d *disk) unmount() error {
	for until := time.Now().Add(unmountFor); ; time.Sleep(20 * time.Millisecond) {
		err := d.server.Unmount()
		if err == nil || time.Now().After(until) {
			return err
		}
	}
}

func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func inode(path string) (syscall.Stat_t, error) {
	var st syscall.Stat_t
	return st, syscall.Lstat(path, &st)
}

// hold gives what is known of a file that is about to change; release it afterwards. created: nothing of it
// is synced, not even that it is empty.
func (d *disk) hold(path, name string, created bool) (*file, error) {
	content, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	now, err := content.Stat()
	if err != nil {
		content.Close()
		return nil, err
	}
	number := now.Sys().(*syscall.Stat_t).Ino
	d.mu.Lock()
	defer d.mu.Unlock()
	x, known := d.files[number]
	if known {
		content.Close()
	} else {
		x = &file{content: content, name: name, size: now.Size(), old: map[int64][]byte{}}
		d.files[number] = x
	}
	x.refs++
	x.dirty = x.dirty || created
	return x, nil
}

func (d *disk) release(number uint64, x *file) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x.refs--
	d.tidy(number, x)
}

// tidy forgets a file of which nothing can be lost.
func (d *disk) tidy(number uint64, x *file) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refs == 0 && (x.gone || !x.dirty) {
		delete(d.files, number)
		x.content.Close()
	}
}

// sync one file, however it was opened.
func (d *disk) sync(number uint64, do func() error) error {
	d.mu.Lock()
	x, known := d.files[number]
	d.mu.Unlock()
	if !known {
		return do()
	}
	err := x.sync(do)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tidy(number, x)
	return err
}

// keep counts all that is written so far, and every name, as synced.
func (d *disk) keep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for number, x := range d.files {
		x.sync(func() error { return nil })
		d.tidy(number, x)
	}
	d.forgetMoves()
}

// removed is told of a name that is gone, before it is.
func (d *disk) removed(st syscall.Stat_t) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x, known := d.files[st.Ino]; known && st.Nlink <= 1 {
		x.gone = true
		d.tidy(st.Ino, x)
	}
}

// renamed is told of a file or folder that has another name now.
func (d *disk) renamed(from, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.files {
		if x.name == from {
			x.name = to
		} else if below, is := strings.CutPrefix(x.name, from+"/"); is {
			x.name = filepath.Join(to, below)
		}
	}
}

// lose drops what was not synced, with the folder unmounted: no cache of the kernel is left of it.
func (d *disk) lose(torn, lost bool, seed int64) (Loss, error) {
	if err := d.unmount(); err != nil {
		return Loss{}, fmt.Errorf("%s is in use: %w", d.folder, err)
	}
	loss := d.unsynced()
	random := rand.New(rand.NewSource(seed))
	d.mu.Lock()
	defer d.mu.Unlock()
	numbers := make([]uint64, 0, len(d.files))
	for number := range d.files {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		x := d.files[number]
		if x.dirty && !x.gone {
			if err := x.lose(torn, random); err != nil {
				return loss, fmt.Errorf("%s: %w", x.name, err)
			}
		}
		x.content.Close()
	}
	d.files = map[uint64]*file{}
	if lost {
		loss.Entries = len(d.moves)
		loss.ClaimedEntries = d.claimedEntries()
		if err := d.undoMoves(); err != nil {
			return loss, err
		}
	}
	d.forgetMoves()
	return loss, d.mount()
}

func (d *disk) unsynced() Loss {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost := []*file{}
	loss := Loss{Names: []string{}, ClaimedFiles: []string{}, ClaimedEntries: []string{}}
	for _, x := range d.files {
		x.mu.Lock()
		if x.written > 0 && !x.gone {
			lost = append(lost, x)
			loss.Bytes += x.written
			loss.Claimed += x.claimed
			if x.claimed > 0 {
				loss.ClaimedFiles = append(loss.ClaimedFiles, filepath.Clean(x.name))
			}
		}
		x.mu.Unlock()
	}
	loss.Files = len(lost)
	slices.SortFunc(lost, func(a, b *file) int { return cmp.Compare(b.written, a.written) })
	for _, x := range lost[:min(mostNamed, len(lost))] {
		loss.Names = append(loss.Names, filepath.Clean(x.name))
	}
	slices.Sort(loss.ClaimedFiles)
	return loss
}
