package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A change of folders that was not synced. POSIX keeps it once each of the folders was.
type move struct {
	folders []uint64
	undo    func() error
	forget  func()
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
	for _, handle := range handles {
		var st syscall.Stat_t
		if err := syscall.Fstat(int(handle.Fd()), &st); err != nil {
			return err
		}
		made.folders = append(made.folders, st.Ino)
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
	d.moves = slices.DeleteFunc(d.moves, func(m *move) bool {
		m.folders = slices.DeleteFunc(m.folders, func(one uint64) bool { return one == number })
		if len(m.folders) == 0 {
			m.forget()
		}
		return len(m.folders) == 0
	})
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
