package main

import (
	"math/rand"
	"os"
	"sync"
)

const blockBytes = 4096

// What a file was when it was last synced, as far as it is another one now. Bytes behind the synced size need
// no copy: a file that only grows costs nothing.
type file struct {
	mu      sync.Mutex
	content *os.File         // of the folder below
	name    string           // below the data folder; guarded by the disk
	size    int64            // when it was synced
	old     map[int64][]byte // number of a block -> what it held then, up to the size
	dirty   bool
	written int64 // bytes since then
	claims  int   // how often the disk only said to have synced it since then
	claimed int64 // bytes that had been written the last time
	refs    int   // handles that write it; guarded by the disk
	gone    bool  // no name is left; guarded by the disk
}

// save keeps what stood in a range before it changes.
func (x *file) save(from, to int64) error {
	x.dirty = true
	for block := from / blockBytes; block*blockBytes < min(to, x.size); block++ {
		if _, kept := x.old[block]; kept {
			continue
		}
		held := make([]byte, min(blockBytes, x.size-block*blockBytes))
		if _, err := x.content.ReadAt(held, block*blockBytes); err != nil {
			return err
		}
		x.old[block] = held
	}
	return nil
}

// sync counts all that is written so far as kept, if do succeeds. Writes go on meanwhile: do does not cover
// them, so they are saved against what it covers.
func (x *file) sync(do func() error) error {
	x.mu.Lock()
	size, old, dirty, written := x.size, x.old, x.dirty, x.written
	claims, claimed := x.claims, x.claimed
	now, err := x.content.Stat()
	if err == nil {
		x.size, x.old, x.dirty, x.written = now.Size(), map[int64][]byte{}, false, 0
		x.claims, x.claimed = 0, 0
	}
	x.mu.Unlock()
	if err != nil {
		return err
	}
	if err = do(); err == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for block, held := range old {
		x.old[block] = held
	}
	x.size, x.dirty, x.written = size, x.dirty || dirty, x.written+written
	if x.claims > 0 { // what it said meanwhile was also about what had been written before
		claimed = x.claimed + written
	}
	x.claims, x.claimed = x.claims+claims, claimed
	return err
}

func (x *file) claim() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.claims, x.claimed = x.claims+1, x.written
}

func (x *file) isClaimed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.claims > 0
}

// lose puts back what was synced. torn: of what it grew by, up to a block stays.
func (x *file) lose(torn bool, random *rand.Rand) error {
	now, err := x.content.Stat()
	if err != nil {
		return err
	}
	for block, held := range x.old {
		if _, err := x.content.WriteAt(held, block*blockBytes); err != nil {
			return err
		}
	}
	size := x.size
	if grown := now.Size() - size; torn && grown > 0 {
		size += random.Int63n(min(grown, blockBytes) + 1)
	}
	return x.content.Truncate(size)
}
