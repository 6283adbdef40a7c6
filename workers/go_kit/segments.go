package kit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rows of a segment: 6 MB of sends, a file every 1.3 s at 50,000 messages a second.
const defaultCapacity = 65_536

// zeros fill the second segment and later ones: the kernel makes their pages by the megabyte, in a fifth of the CPU
// time that it takes for one page at a time, at the first row in it. The first segment is not filled: most of it stays
// empty where a worker sends little.
var zeros [1 << 20]byte

// Segments are the files `<table>-<owner>-<index>.seg` of one table and owner. A row written into a shared
// mapping belongs to the kernel at once: killing the process loses nothing. Files stay mapped to the end,
// because an outcome may come long after the row was written. One goroutine asks for rows.
type Segments struct {
	folder       string
	table        uint16
	owner        uint32
	runTag       uint32
	subscription uint32
	capacity     int
	files        *atomic.Uint32 // made so far, where several share one table and owner; nil = none do
	index        uint32
	rows         []byte
	at           int
}

// next is a zeroed row, in a new file when the current one is full.
func (s *Segments) next() (row, error) {
	if s.at == len(s.rows) {
		if err := s.rotate(); err != nil {
			return nil, err
		}
	}
	size := rowBytes[s.table]
	found := s.rows[s.at : s.at+size : s.at+size]
	s.at += size
	return found, nil
}

func (s *Segments) rotate() error {
	if s.files != nil {
		s.index = s.files.Add(1) - 1
	}
	name := fmt.Sprintf("%s-%d-%06d.seg", tableNames[s.table], s.owner, s.index)
	path := filepath.Join(s.folder, name)
	rows, err := s.allocate(path)
	if err != nil {
		return Failuref(
			"free disk space, or point --run-dir at another disk",
			"cannot write capture file %s: %s", path, reason(err),
		)
	}
	s.rows, s.at = rows, segmentHeaderBytes
	s.index++
	return nil
}

// allocate makes, fills, maps and only then names the file: a reader never meets a segment without a header,
// and a full disk is an error here and not a crash in the middle of a row.
func (s *Segments) allocate(path string) ([]byte, error) {
	size := segmentHeaderBytes + rowBytes[s.table]*s.capacity
	part := strings.TrimSuffix(path, ".seg") + ".part"
	file, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := s.fill(file, size)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		os.Remove(part)
		return nil, err
	}
	return rows, nil
}

func (s *Segments) fill(file *os.File, size int) ([]byte, error) {
	filled := s.index > 0
	err := unix.Fallocate(int(file.Fd()), 0, 0, int64(size))
	if errors.Is(err, unix.EOPNOTSUPP) { // a file system without it: zeros reserve the blocks too
		filled, err = true, nil
	}
	for at := 0; filled && at < size && err == nil; at += len(zeros) {
		_, err = file.WriteAt(zeros[:least(len(zeros), size-at)], int64(at))
	}
	if err != nil {
		return nil, err
	}
	if _, err = file.WriteAt(s.header(), 0); err != nil {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (s *Segments) header() []byte {
	b := make([]byte, segmentHeaderBytes)
	copy(b, "BSTORM1\x00")
	little := binary.LittleEndian
	little.PutUint16(b[8:], s.table)
	little.PutUint16(b[10:], uint16(rowBytes[s.table]))
	little.PutUint32(b[12:], s.owner)
	little.PutUint32(b[16:], s.index)
	little.PutUint32(b[20:], uint32(s.capacity))
	little.PutUint32(b[24:], s.runTag)
	little.PutUint32(b[28:], s.subscription)
	return b
}

// row of a segment. Its last field goes in with a store that nothing may move before the others.
type row []byte

func (r row) seal(at int, word uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&r[at])), word)
}

// openSend writes the part of a sends row that is known before the call.
func (r row) openSend(h Header, startNs int64, transaction uint32) {
	little := binary.LittleEndian
	little.PutUint32(r[0:], h.Lane)
	little.PutUint16(r[4:], h.Attempt)
	r[6] = h.Kind
	little.PutUint64(r[8:], h.Seq)
	little.PutUint64(r[16:], uint64(h.DueNs))
	little.PutUint64(r[24:], uint64(startNs))
	little.PutUint32(r[36:], transaction)
	r.seal(32, 1)
}

// completion of a send, as the client told it.
type completion struct {
	doneNs, position, ledger int64
	stream, batch, errorID   int32
	outcome                  Outcome
}

func (r row) outcome() Outcome { return Outcome(r[88]) }

func (r row) completeSend(c completion) {
	little := binary.LittleEndian
	little.PutUint64(r[40:], uint64(c.doneNs))
	little.PutUint64(r[48:], uint64(c.position))
	little.PutUint64(r[56:], uint64(c.ledger))
	little.PutUint32(r[72:], uint32(c.stream))
	little.PutUint32(r[76:], uint32(c.batch))
	little.PutUint32(r[84:], uint32(c.errorID))
	r.seal(88, uint32(c.outcome))
}

// endSend gives a send the outcome of its transaction, unless it has one.
func (r row) endSend(nowNs int64, errorID int32, outcome Outcome) {
	if r.outcome() != 0 {
		return
	}
	little := binary.LittleEndian
	if little.Uint64(r[40:]) == 0 {
		little.PutUint64(r[40:], uint64(nowNs))
	}
	little.PutUint32(r[84:], uint32(errorID))
	r.seal(88, uint32(outcome))
}

// beginTransaction, askTransaction and endTransaction write the three parts of a transactions row.
func (r row) beginTransaction(number, id uint32, beganNs int64) {
	little := binary.LittleEndian
	little.PutUint32(r[0:], number)
	little.PutUint32(r[4:], id)
	little.PutUint64(r[8:], uint64(beganNs))
	r.seal(16, 1)
}

func (r row) askTransaction(nowNs int64, asked byte) {
	if r[32] == 0 {
		binary.LittleEndian.PutUint64(r[24:], uint64(nowNs))
	}
	r.seal(32, uint32(asked))
}

func (r row) endTransaction(doneNs int64, errorID int32, outcome Outcome) {
	little := binary.LittleEndian
	little.PutUint64(r[40:], uint64(doneNs))
	little.PutUint32(r[48:], uint32(errorID))
	r.seal(52, uint32(outcome))
}

// lateOutcome keeps a second answer beside the first.
func (r row) lateOutcome(outcome Outcome) { r.seal(88, uint32(r[88])|uint32(outcome)<<8) }

type logRow struct {
	position, brokerTimeMs int64
	stream                 int32
	check                  Check
	value                  []byte
}

func (r row) writeLog(l logRow) {
	little := binary.LittleEndian
	little.PutUint64(r[0:], uint64(l.position))
	little.PutUint64(r[16:], ^uint64(0)) // client_seq -1: the client shows none
	little.PutUint64(r[24:], uint64(l.brokerTimeMs))
	little.PutUint32(r[32:], uint32(l.stream))
	r[45] = byte(l.check)
	copy(r[48:96], l.value)
	r.seal(96, 1)
}

type delivery struct {
	tNs, position, ledger, transaction int64
	stream, batch                      int32
	epoch                              uint32
	redelivered                        uint32 // count or flag, plus one; 0 = the client shows none
	check                              Check
	event                              Event
	value                              []byte
}

func (r row) writeDelivery(d delivery) {
	little := binary.LittleEndian
	little.PutUint64(r[0:], uint64(d.tNs))
	little.PutUint64(r[8:], uint64(d.position))
	little.PutUint64(r[16:], uint64(d.ledger))
	little.PutUint64(r[24:], uint64(d.transaction))
	little.PutUint32(r[32:], uint32(d.stream))
	little.PutUint32(r[36:], uint32(d.batch))
	little.PutUint32(r[40:], d.epoch)
	little.PutUint32(r[44:], d.redelivered-1)
	copy(r[48:96], d.value)
	r.seal(96, uint32(d.check)|uint32(d.event)<<8)
}
