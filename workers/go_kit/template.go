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

var place = regexp.MustCompile(`\{(id|n|key|lane|producer)\}`)

// template makes bodies in the user's shape: a text with places for the identity and the number of each message. The
// identity travels in a message header: the payload of a plain message without what is between header and trailer.
type template struct {
	text     string
	instance uint32
	// By lane: the bytes around sequence numbers. Written before the senders begin.
	pieces map[uint32][]string
}

func newTemplate(text string, instance uint32, lanes []Lane) *template {
	t := &template{text: text, instance: instance, pieces: map[uint32][]string{}}
	for i := range lanes {
		// No template has this character.
		t.pieces[lanes[i].Number] = strings.Split(t.filled(&lanes[i], "\x00", "\x00"), "\x00")
	}
	return t
}

// message is identity and body of one message. They lie in one piece of memory: every message is made while it is due.
func (t *template) message(lane *Lane, header Header) (identity, body []byte) {
	if header.Attempt > 0 {
		number := strconv.FormatUint(header.Seq, 10)
		filled := t.filled(lane, fmt.Sprintf("%s.%d", number, header.Attempt), number)
		made := make([]byte, MinPayloadBytes+len(filled))
		copy(made[MinPayloadBytes:], filled)
		return around(made, header)
	}
	var digits [20]byte
	number := strconv.AppendUint(digits[:0], header.Seq, 10)
	pieces := t.pieces[lane.Number]
	length := MinPayloadBytes + len(number)*(len(pieces)-1)
	for _, piece := range pieces {
		length += len(piece)
	}
	made := make([]byte, MinPayloadBytes, length)
	for i, piece := range pieces {
		if i > 0 {
			made = append(made, number...)
		}
		made = append(made, piece...)
	}
	return around(made, header)
}

// text of one message, for a header.
func (t *template) textOf(lane *Lane, header Header) string {
	number := strconv.FormatUint(header.Seq, 10)
	if header.Attempt > 0 {
		return t.filled(lane, fmt.Sprintf("%s.%d", number, header.Attempt), number)
	}
	return strings.Join(t.pieces[lane.Number], number)
}

// around writes the identity of a body into the room before it.
func around(made []byte, header Header) (identity, body []byte) {
	identity, body = made[:MinPayloadBytes:MinPayloadBytes], made[MinPayloadBytes:]
	header.write(identity, len(made))
	sum := crc32.ChecksumIEEE(identity[:headerBytes])
	binary.LittleEndian.PutUint32(identity[headerBytes:], crc32.Update(sum, crc32.IEEETable, body))
	return identity, body
}

func (t *template) filled(lane *Lane, inLane, number string) string {
	return place.ReplaceAllStringFunc(t.text, func(found string) string {
		switch found {
		case "{id}":
			return fmt.Sprintf("%d/%d/%s", t.instance, lane.Number, inLane)
		case "{n}":
			return number
		case "{key}":
			return string(lane.Key)
		case "{lane}":
			return strconv.FormatUint(uint64(lane.Number), 10)
		default:
			return strconv.FormatUint(uint64(t.instance), 10)
		}
	})
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
