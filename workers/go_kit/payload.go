package kit

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// CRC-32 of any bytes followed by their own CRC-32: one call checks a payload, trailer included.
const residue = 0x2144DF1C

// Bytes that no codec makes smaller, which compressible payloads are cut from.
const poolBytes = 1 << 22

var (
	poolOnce sync.Once
	poolMade []byte
)

// pool is SHA-256 of 0, 1, 2 ... (32 bits, little-endian), one behind the other.
func pool() []byte {
	poolOnce.Do(func() {
		poolMade = make([]byte, 0, poolBytes)
		for k := uint32(0); len(poolMade) < poolBytes; k++ {
			hash := sha256.Sum256(binary.LittleEndian.AppendUint32(nil, k))
			poolMade = append(poolMade, hash[:]...)
		}
	})
	return poolMade
}

// Header of a message: its identity.
type Header struct {
	RunTag, Instance, Lane uint32
	Seq                    uint64
	DueNs                  int64
	Key                    uint32
	Attempt                uint16
	Kind                   uint8
	SourcePartition        uint16 // of a pipeline's output: where its input is
	SourcePosition         uint32
}

// filler between header and trailer: fixed, and the same in every language (a linear congruential generator
// with the constants of Numerical Recipes, high byte).
func filler(count int) []byte {
	state, out := uint32(1), make([]byte, count)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = byte(state >> 24)
	}
	return out
}

// sizes of the payloads of a producer instance, from least to most, both included; with a table those in it, each as
// often as any other. compressible: thousandths of a payload that are zeros, the rest of its filling differs by
// message; -1 = the filling of all messages is alike.
type sizes struct {
	least, most  int
	instance     uint32
	table        []int
	compressible int
}

// mixed is a number for one message, the same in every language (SplitMix64).
func (s sizes) mixed(lane uint32, seq uint64) uint64 {
	mixed := (seq+1)*0x9E3779B97F4A7C15 + (uint64(s.instance)<<32 | uint64(lane))
	mixed = (mixed ^ mixed>>30) * 0xBF58476D1CE4E5B9
	mixed = (mixed ^ mixed>>27) * 0x94D049BB133111EB
	return mixed ^ mixed>>31
}

// filling of a message of `length` bytes, between header and trailer; `alike` has that of all at its beginning.
func (s sizes) filling(lane uint32, seq uint64, length int, alike []byte) []byte {
	room := length - MinPayloadBytes
	if s.compressible < 0 {
		return alike[:room]
	}
	own := room - least(room, length*s.compressible/1000)
	at := (s.mixed(lane, seq) & 0xFFFFFFFF) * uint64(poolBytes-own) >> 32
	made := make([]byte, room)
	copy(made, pool()[at:at+uint64(own)])
	return made
}

// of one message: the same in every attempt.
func (s sizes) of(lane uint32, seq uint64) int {
	if s.least == s.most {
		return s.least
	}
	mixed := s.mixed(lane, seq)
	if len(s.table) > 0 {
		return s.table[(mixed>>32)*uint64(len(s.table))>>32]
	}
	return s.least + int((mixed>>32)*uint64(s.most-s.least+1)>>32)
}

// encode makes a whole payload around `filling`, which has length - MinPayloadBytes bytes.
func encode(h Header, filling []byte) []byte {
	length := MinPayloadBytes + len(filling)
	b := make([]byte, length)
	h.write(b, length)
	copy(b[headerBytes:], filling)
	binary.LittleEndian.PutUint32(b[length-trailerBytes:], crc32.ChecksumIEEE(b[:length-trailerBytes]))
	return b
}

// write the header of a payload of `length` bytes.
func (h Header) write(b []byte, length int) {
	little := binary.LittleEndian
	b[0], b[1], b[2], b[3] = 'B', 'S', formatVersion, h.Kind
	little.PutUint32(b[4:], h.RunTag)
	little.PutUint32(b[8:], h.Instance)
	little.PutUint32(b[12:], h.Lane)
	little.PutUint64(b[16:], h.Seq)
	little.PutUint64(b[24:], uint64(h.DueNs))
	little.PutUint32(b[32:], h.Key)
	little.PutUint16(b[36:], h.Attempt)
	little.PutUint16(b[38:], h.SourcePartition)
	little.PutUint32(b[40:], uint32(length))
	little.PutUint32(b[44:], h.SourcePosition)
}

// ProbePayload is a message of the harness: analyses count none of them.
func ProbePayload(session *Session) []byte {
	return encode(Header{RunTag: session.Spec.RunTag, DueNs: NowNs(), Kind: Probe}, nil)
}

// isProbe: the harness and no producer wrote this message, whose check is found.
func isProbe(value []byte, found Check) bool { return found == CheckOK && value[3] == Probe }

// check says what kind of payload a reader found.
func check(value []byte, runTag uint32) Check {
	little := binary.LittleEndian
	switch {
	case len(value) < 2 || value[0] != 'B' || value[1] != 'S':
		return Foreign
	case len(value) < MinPayloadBytes || value[2] != formatVersion || value[3] > Load:
		return Corrupt
	case int(little.Uint32(value[40:])) != len(value) || crc32.ChecksumIEEE(value) != residue:
		return Corrupt
	case little.Uint32(value[4:]) != runTag:
		return OtherRun
	}
	return CheckOK
}
