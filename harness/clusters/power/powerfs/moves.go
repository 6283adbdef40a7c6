package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A change of folders that was not synced. POSIX keeps it once each of the folders was.
type move struct {
	names   []string        // what was made, renamed or removed, below the data folder
	folders map[uint64]bool // those that were not synced since; true: the disk said that they were
	undo    func() error
	forget  func()
}

// isClaimed tells whether the disk had said that the change is synced.
func (m *move) isClaimed() bool {
	for _, claimed := range m.folders {
		if !claimed {
			return false
		}
	}
	return true
}

// noteMove keeps a change of the folders at these paths, if folders can lose anything. make is given their
// handles as paths: names above them may change.
func (d *disk) noteMove(make func(at []string) move, folders ...string) error {
	if d.trash == "" {
		return nil
	}
	handles, at := []*os.File{}, []string{}
	made := move{}
	for _, folder := range folders {
		handle, err := os.Open(folder)
		if err != nil {
			return err
		}
		handles, at = append(handles, handle), append(at, pathOf(handle))
	}
	made = make(at)
	made.folders = map[uint64]bool{}
	for _, handle := range handles {
		var st syscall.Stat_t
		if err := syscall.Fstat(int(handle.Fd()), &st); err != nil {
			return err
		}
		made.folders[st.Ino] = false
	}
	forget := made.forget
	made.forget = func() {
		if forget != nil {
			forget()
		}
		for _, handle := range handles {
			handle.Close()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moves = append(d.moves, &made)
	return nil
}

func (d *disk) syncFolder(number uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settleMoves(func(_ *move, folder uint64) bool { return folder == number })
}

// settleMoves forgets the changes of which each folder is synced now; call it with mu held.
func (d *disk) settleMoves(synced func(m *move, folder uint64) bool) {
	d.moves = slices.DeleteFunc(d.moves, func(m *move) bool {
		maps.DeleteFunc(m.folders, func(folder uint64, _ bool) bool { return synced(m, folder) })
		if len(m.folders) == 0 {
			m.forget()
		}
		return len(m.folders) == 0
	})
}

// claimedEntries returns the names of which the disk had said that their changes are synced.
func (d *disk) claimedEntries() []string {
	names := []string{}
	for _, m := range d.moves {
		if m.isClaimed() {
			names = append(names, m.names...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// undoMoves goes back from the last to the first.
func (d *disk) undoMoves() error {
	for _, m := range slices.Backward(d.moves) {
		if err := m.undo(); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func (d *disk) forgetMoves() {
	for _, m := range d.moves {
		m.forget()
	}
	d.moves = nil
}

// toTrash takes a file out of its folder and says where it is now; empty: there is none, or none is kept.
func (d *disk) toTrash(path string) (string, error) {
	if d.trash == "" {
		return "", nil
	}
	if _, err := os.Lstat(path); err != nil {
		return "", nil
	}
	d.mu.Lock()
	d.count++
	kept := filepath.Join(d.trash, fmt.Sprint(d.count))
	d.mu.Unlock()
	return kept, os.Rename(path, kept)
}

// dropTrash forgets a file for good.
func (d *disk) dropTrash(kept string) {
	if st, err := inode(kept); err == nil {
		if x, known := d.files[st.Ino]; known {
			x.gone = true
			d.tidy(st.Ino, x)
		}
		os.Remove(kept)
	}
}
