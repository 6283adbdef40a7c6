package kit

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"
)

// IdentityHeader is the name of the message header (Pulsar: property) that has the identity of a body.
const IdentityHeader = "brokerstorm"

var place = regexp.MustCompile(`\{(id|n|key|lane|producer)(?::([1-9][0-9]?))?\}`)

const latin1 = "latin-1"

// template makes bodies in the user's shape: a text with places for the identity and the number of each message. The
// identity travels in a message header: the payload of a plain message without what is between header and trailer.
type template struct {
	text     string
	instance uint32
	charset  string
	// By lane: the bytes around sequence numbers. Written before the senders begin.
	pieces map[uint32][]piece
}

// piece has the bytes before a sequence number, and the width of the number; -1 = no number follows.
type piece struct {
	text  string
	width int
}

// newTemplate makes bytes of the text by charset. With latin-1, a character is one byte; otherwise it is UTF-8.
func newTemplate(text string, instance uint32, lanes []Lane, charset string) *template {
	t := &template{text: text, instance: instance, charset: charset, pieces: map[uint32][]piece{}}
	for i := range lanes {
		t.pieces[lanes[i].Number] = t.around(&lanes[i])
	}
	return t
}

// message is identity and body of one message. They lie in one piece of memory: every message is made while it is due.
func (t *template) message(lane *Lane, header Header) (identity, body []byte) {
	if header.Attempt > 0 {
		filled := t.ofAttempt(lane, header)
		made := make([]byte, MinPayloadBytes+len(filled))
		copy(made[MinPayloadBytes:], filled)
		return around(made, header)
	}
	return around(t.first(MinPayloadBytes, lane, header.Seq), header)
}

// first is the body of a first attempt, with room before it.
func (t *template) first(room int, lane *Lane, seq uint64) []byte {
	var digits [20]byte
	number := strconv.AppendUint(digits[:0], seq, 10)
	pieces := t.pieces[lane.Number]
	length := room
	for _, piece := range pieces {
		length += len(piece.text) + most(piece.width, len(number))
	}
	made := make([]byte, room, length)
	for _, piece := range pieces {
		made = append(made, piece.text...)
		if piece.width >= 0 {
			for zeros := piece.width - len(number); zeros > 0; zeros-- {
				made = append(made, '0')
			}
			made = append(made, number...)
		}
	}
	return made
}

// text of one message, for a header.
func (t *template) textOf(lane *Lane, header Header) string {
	if header.Attempt > 0 {
		return t.ofAttempt(lane, header)
	}
	return string(t.first(0, lane, header.Seq))
}

// around writes the identity of a body into the room before it.
func around(made []byte, header Header) (identity, body []byte) {
	identity, body = made[:MinPayloadBytes:MinPayloadBytes], made[MinPayloadBytes:]
	header.write(identity, len(made))
	sum := crc32.ChecksumIEEE(identity[:headerBytes])
	binary.LittleEndian.PutUint32(identity[headerBytes:], crc32.Update(sum, crc32.IEEETable, body))
	return identity, body
}

// around are the bytes before, between and after the sequence numbers of a lane's bodies.
func (t *template) around(lane *Lane) []piece {
	var found []piece
	out := ""
	t.each(func(text, name string, width int) {
		out += text
		switch name {
		case "id", "n":
			before := ""
			if name == "id" {
				before = t.beforeSeq(lane)
			}
			found = append(found, piece{t.encoded(out + before), most(0, width-len(before))})
			out = ""
		case "":
			found = append(found, piece{t.encoded(out), -1})
		default:
			out += padded(t.fixed(lane, name), width)
		}
	})
	return found
}

// ofAttempt is the body of a message that is sent again.
func (t *template) ofAttempt(lane *Lane, header Header) string {
	out, number := "", strconv.FormatUint(header.Seq, 10)
	t.each(func(text, name string, width int) {
		out += text
		switch name {
		case "id":
			before := t.beforeSeq(lane)
			out += before + padded(fmt.Sprintf("%s.%d", number, header.Attempt), width-len(before))
		case "n":
			out += padded(number, width)
		case "":
		default:
			out += padded(t.fixed(lane, name), width)
		}
	})
	return t.encoded(out)
}

// each calls back for each place with the text before it, then for the text after the last, with no name.
func (t *template) each(visit func(text, name string, width int)) {
	done := 0
	for _, at := range place.FindAllStringSubmatchIndex(t.text, -1) {
		width := 0
		if at[4] >= 0 {
			width, _ = strconv.Atoi(t.text[at[4]:at[5]])
		}
		visit(t.text[done:at[0]], t.text[at[2]:at[3]], width)
		done = at[1]
	}
	visit(t.text[done:], "", 0)
}

func (t *template) beforeSeq(lane *Lane) string {
	return fmt.Sprintf("%d/%d/", t.instance, lane.Number)
}

// fixed is the text of a place that is the same in every message of a lane.
func (t *template) fixed(lane *Lane, name string) string {
	switch name {
	case "key":
		return string(lane.Key)
	case "lane":
		return strconv.FormatUint(uint64(lane.Number), 10)
	default:
		return strconv.FormatUint(uint64(t.instance), 10)
	}
}

// encoded has the bytes of a text.
func (t *template) encoded(text string) string {
	if t.charset != latin1 {
		return text
	}
	bytes := make([]byte, 0, len(text))
	for _, char := range text {
		bytes = append(bytes, byte(char))
	}
	return string(bytes)
}

func padded(text string, width int) string {
	return strings.Repeat("0", most(0, width-len(text))) + text
}

// Parts of a message as it is sent: its value, and the identity for a header; nil = the value has it.
func (m *Message) Parts() (value, identity []byte) { return m.Payload, m.identity }

// MadeHeaders are name and value of each header of a message that differs by message.
func (m *Message) MadeHeaders() [][2]string {
	templates := m.sender.loop.headerTemplates
	made := make([][2]string, len(templates))
	for i, each := range templates {
		made[i] = [2]string{m.sender.session.Spec.Producer.HeaderTemplates[i][0], each.textOf(m.Lane, m.header)}
	}
	return made
}

// IdentityText is an identity where headers are texts: in base64, as the workers of other languages write it.
func IdentityText(identity []byte) string { return base64.StdEncoding.EncodeToString(identity) }

// JoinedText is Joined where headers are texts; the value alone if the text is no identity.
func JoinedText(value []byte, text string) []byte {
	identity, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return value
	}
	return Joined(value, identity)
}

// IsWhole: a message has its identity in its value.
func IsWhole(value []byte) bool { return len(value) >= 2 && value[0] == 'B' && value[1] == 'S' }

// Joined is the payload that was sent, of a value and what its header holds; the value alone if that is no identity.
func Joined(value, identity []byte) []byte {
	if IsWhole(value) || len(identity) != MinPayloadBytes {
		return value
	}
	made := make([]byte, 0, len(value)+MinPayloadBytes)
	made = append(made, identity[:headerBytes]...)
	made = append(made, value...)
	return append(made, identity[headerBytes:]...)
}
