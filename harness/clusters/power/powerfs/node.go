package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const syncFlags = syscall.O_SYNC | syscall.O_DSYNC

// A file or folder. What changes nothing, go-fuse passes through.
type node struct {
	fs.LoopbackNode
	disk *disk
}

// An open file. Its descriptor stays here: the kernel must not write past us.
type handle struct {
	*fs.LoopbackFile
	disk   *disk
	number uint64
	name   string // as it was opened
	known  *file  // nil: opened for reading
	syncs  bool   // with every write
}

func (n *node) name() string { return n.Path(n.Root()) }

func (n *node) path() string { return filepath.Join(n.RootData.Path, n.name()) }

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (
	*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	path := filepath.Join(n.path(), name)
	_, missing := os.Lstat(path)
	child, opened, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	known, err := n.disk.hold(path, filepath.Join(n.name(), name), missing != nil)
	if err == nil && missing != nil {
		err = n.created(name, os.Remove)
	}
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	file := opened.(*fs.LoopbackFile)
	made := &handle{file, n.disk, child.StableAttr().Ino, filepath.Join(n.name(), name), known, flags&syncFlags != 0}
	return child, made, fuse.FOPEN_KEEP_CACHE, 0
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h := &handle{disk: n.disk, number: n.StableAttr().Ino, name: n.name(), syncs: flags&syncFlags != 0}
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		var err error
		if h.known, err = n.disk.hold(n.path(), n.name(), false); err != nil {
			return nil, 0, fs.ToErrno(err)
		}
	}
	opened, err := n.open(h.known, int(flags&^(syscall.O_APPEND|syscall.O_DIRECT|fuse.FMODE_EXEC)))
	if err != nil {
		if h.known != nil {
			n.disk.release(h.number, h.known)
		}
		return nil, 0, fs.ToErrno(err)
	}
	h.LoopbackFile = fs.NewLoopbackFileFromOS(opened)
	return h, fuse.FOPEN_KEEP_CACHE, 0
}

func (n *node) open(known *file, flags int) (*os.File, error) {
	if known != nil && flags&syscall.O_TRUNC != 0 {
		known.mu.Lock()
		defer known.mu.Unlock()
		if err := known.save(0, known.size); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(n.path(), flags|syscall.O_NOFOLLOW, 0)
}

func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	size, cuts := in.GetSize()
	if !cuts {
		return n.LoopbackNode.Setattr(ctx, f, in, out)
	}
	h, opened := f.(*handle)
	if !opened || h.known == nil {
		known, err := n.disk.hold(n.path(), n.name(), false)
		if err != nil {
			return fs.ToErrno(err)
		}
		h = &handle{known: known}
		defer n.disk.release(n.StableAttr().Ino, known)
	}
	h.known.mu.Lock()
	defer h.known.mu.Unlock()
	if err := h.known.save(int64(size), h.known.size); err != nil {
		return fs.ToErrno(err)
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}

// Fsync of a file, which may have no name any more.
func (n *node) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	number := n.StableAttr().Ino
	if h, opened := f.(*handle); opened {
		errno, lies := n.disk.disturb(ctx, opSync, h.name)
		if errno != 0 || lies && n.disk.claim(number) {
			return errno
		}
		return fs.ToErrno(n.disk.sync(number, func() error {
			if errno := h.LoopbackFile.Fsync(ctx, flags); errno != 0 {
				return errno
			}
			return nil
		}))
	}
	return syscall.EBADF
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	opened, more, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &folder{opened.(stream), n}, more, 0
}

// An open folder.
type folder struct {
	stream
	node *node
}

type stream interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
	fs.FileFsyncdirer
}

func (f *folder) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	errno, lies := f.node.disk.disturb(ctx, opSync, f.node.name())
	if errno != 0 {
		return errno
	}
	var st syscall.Stat_t // go-fuse numbers the root otherwise
	if err := syscall.Stat(f.node.path(), &st); err != nil {
		return fs.ToErrno(err)
	}
	if lies && f.node.disk.claimFolder(st.Ino) {
		return 0
	}
	if errno := f.stream.Fsyncdir(ctx, flags); errno != 0 {
		return errno
	}
	f.node.disk.syncFolder(st.Ino)
	return 0
}

func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64,
	uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS // the kernel reads and writes then
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	child, errno := n.LoopbackNode.Mkdir(ctx, name, mode, out)
	if errno == 0 {
		errno = fs.ToErrno(n.created(name, os.RemoveAll))
	}
	return child, errno
}

func (n *node) Link(ctx context.Context, of fs.InodeEmbedder, name string, out *fuse.EntryOut) (
	*fs.Inode, syscall.Errno) {
	child, errno := n.LoopbackNode.Link(ctx, of, name, out)
	if errno == 0 {
		errno = fs.ToErrno(n.created(name, os.Remove))
	}
	return child, errno
}

// below names an entry of this folder.
func (n *node) below(name string) []string { return []string{filepath.Join(n.name(), name)} }

func (n *node) created(name string, remove func(string) error) error {
	return n.disk.noteMove(func(at []string) move {
		return move{names: n.below(name), undo: func() error { return remove(filepath.Join(at[0], name)) }}
	}, n.path())
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	path := filepath.Join(n.path(), name)
	st, err := inode(path)
	if err != nil {
		return fs.ToErrno(err)
	}
	if n.disk.trash == "" {
		if err := syscall.Unlink(path); err != nil {
			return fs.ToErrno(err)
		}
		n.disk.removed(st)
		return 0
	}
	kept, err := n.disk.toTrash(path)
	if err != nil {
		return fs.ToErrno(err)
	}
	return fs.ToErrno(n.disk.noteMove(func(at []string) move {
		return move{
			names:  n.below(name),
			undo:   func() error { return os.Rename(kept, filepath.Join(at[0], name)) },
			forget: func() { n.disk.dropTrash(kept) },
		}
	}, n.path()))
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	path := filepath.Join(n.path(), name)
	st, err := inode(path)
	if err == nil {
		err = syscall.Rmdir(path)
	}
	if err == nil {
		err = n.disk.noteMove(func(at []string) move {
			undo := func() error { return os.Mkdir(filepath.Join(at[0], name), os.FileMode(st.Mode&0o777)) }
			return move{names: n.below(name), undo: undo}
		}, n.path())
	}
	return fs.ToErrno(err)
}

func (n *node) Rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string,
	flags uint32) syscall.Errno {
	to := parent.(*node)
	newPath := filepath.Join(to.path(), newName)
	if flags != 0 {
		return syscall.EINVAL
	}
	replaced, missing := inode(newPath)
	kept, err := n.disk.toTrash(newPath)
	if err != nil {
		return fs.ToErrno(err)
	}
	if err := syscall.Rename(filepath.Join(n.path(), name), newPath); err != nil {
		return fs.ToErrno(err)
	}
	if missing == nil && kept == "" {
		n.disk.removed(replaced)
	}
	n.disk.renamed(filepath.Join(n.name(), name), filepath.Join(to.name(), newName))
	return fs.ToErrno(n.disk.noteMove(func(at []string) move {
		return move{
			names: append(n.below(name), to.below(newName)...),
			undo: func() error {
				err := os.Rename(filepath.Join(at[1], newName), filepath.Join(at[0], name))
				if kept != "" {
					os.Rename(kept, filepath.Join(at[1], newName))
				}
				return err
			},
			forget: func() {
				if kept != "" {
					n.disk.dropTrash(kept)
				}
			},
		}
	}, n.path(), to.path()))
}

func (h *handle) PassthroughFd() (int, bool) { return 0, false }

func (h *handle) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if errno, _ := h.disk.disturb(ctx, opWrite, h.name); errno != 0 {
		return 0, errno
	}
	n, errno := h.change(off, int64(len(data)), func() (uint32, syscall.Errno) {
		return h.LoopbackFile.Write(ctx, data, off)
	})
	if errno == 0 && h.syncs {
		errno = h.syncWritten(ctx)
	}
	return n, errno
}

// syncWritten is the sync that a write to a file opened with O_SYNC or O_DSYNC brings.
func (h *handle) syncWritten(ctx context.Context) syscall.Errno {
	errno, lies := h.disk.disturb(ctx, opSync, h.name)
	if errno != 0 || lies && h.disk.claim(h.number) {
		return errno
	}
	return fs.ToErrno(h.known.sync(func() error { return nil }))
}

func (h *handle) Read(ctx context.Context, into []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno, _ := h.disk.disturb(ctx, opRead, h.name); errno != 0 {
		return nil, errno
	}
	return h.LoopbackFile.Read(ctx, into, off)
}

func (h *handle) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	_, errno := h.change(int64(off), int64(size), func() (uint32, syscall.Errno) {
		return 0, h.LoopbackFile.Allocate(ctx, off, size, mode)
	})
	return errno
}

func (h *handle) change(off, size int64, do func() (uint32, syscall.Errno)) (uint32, syscall.Errno) {
	if h.known == nil {
		return 0, syscall.EBADF
	}
	h.known.mu.Lock()
	defer h.known.mu.Unlock()
	if err := h.known.save(off, off+size); err != nil {
		return 0, fs.ToErrno(err)
	}
	n, errno := do()
	h.known.written += int64(n)
	return n, errno
}

func (h *handle) Release(ctx context.Context) syscall.Errno {
	if h.known != nil {
		h.disk.release(h.number, h.known)
	}
	return h.LoopbackFile.Release(ctx)
}
