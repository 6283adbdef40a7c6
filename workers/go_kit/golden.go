package kit

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

const (
	goldenTag      = 0xC0FFEE01
	goldenCapacity = 4
	goldenNs       = 1_000_000_000_000
)

// writeGolden writes the files of harness/contract/golden into a folder; docs/worker-protocol.md lists the inputs.
func writeGolden(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	small := Header{RunTag: goldenTag, Instance: 7, Lane: 3, Seq: 42, DueNs: goldenNs, Kind: Load}
	large := Header{
		RunTag: goldenTag, Instance: 7, Lane: 4, Seq: 1<<40 + 1, DueNs: goldenNs + 20_000,
		Key: 17, Attempt: 2, Kind: WarmUp,
	}
	payload52, payload150 := encode(small, nil), encode(large, filler(150-MinPayloadBytes))
	ranged := goldenPayloads(sizes{60, 90, 7, nil, -1})
	mixed := goldenPayloads(sizes{60, 90, 7, []int{60, 61, 61, 90}, -1})
	compressible := goldenPayloads(sizes{60, 300, 7, nil, 600})
	names, err := newNames(folder, map[string]int32{"orders-0": 1, "orders-1": 2})
	if err != nil {
		return err
	}
	timedOut := names.ID("error", "_MSG_TIMED_OUT: Local: Message timed out")
	group := uint32(names.ID("subscription", "group"))
	order := goldenFrom(`{"order": {"id": "{id}"}, "n": {n}, "key": "{key}", "by": "{producer}/{lane}"}`, "")
	encoded := goldenFrom(everyByte()+"{id:24}{n:5}{lane:3}{producer:10}%d{n}", latin1)
	steps := []func() error{
		func() error { return os.WriteFile(filepath.Join(folder, "payload-52.bin"), payload52, 0o644) },
		func() error { return os.WriteFile(filepath.Join(folder, "payload-150.bin"), payload150, 0o644) },
		func() error { return os.WriteFile(filepath.Join(folder, "payload-60-90.bin"), ranged, 0o644) },
		func() error { return os.WriteFile(filepath.Join(folder, "payload-mixed.bin"), mixed, 0o644) },
		func() error {
			return os.WriteFile(filepath.Join(folder, "payload-compressible.bin"), compressible, 0o644)
		},
		func() error {
			return os.WriteFile(filepath.Join(folder, "payload-template.bin"), order, 0o644)
		},
		func() error {
			return os.WriteFile(filepath.Join(folder, "payload-encoded.bin"), encoded, 0o644)
		},
		func() error { return os.WriteFile(filepath.Join(folder, "due-times.bin"), goldenDueTimes(), 0o644) },
		names.Err,
		func() error { return goldenSends(folder, small, large, timedOut) },
		func() error { return goldenTransactions(folder, timedOut) },
		func() error { return goldenLog(folder, payload52, payload150) },
		func() error { return goldenDeliveries(folder, group, payload52) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// goldenPayloads are eight of these sizes, one behind the other.
func goldenPayloads(sizes sizes) []byte {
	var found []byte
	for seq := uint64(0); seq < 8; seq++ {
		header := Header{
			RunTag: goldenTag, Instance: 7, Lane: 3, Seq: seq, DueNs: goldenNs + 20_000*int64(seq), Kind: Load,
		}
		length := sizes.of(3, seq)
		found = append(found, encode(header, sizes.filling(3, seq, length, filler(length)))...)
	}
	return found
}

// everyByte has a character for each byte from 0 to 255.
func everyByte() string {
	text := ""
	for char := rune(0); char < 256; char++ {
		text += string(char)
	}
	return text
}

// goldenFrom are eight payloads around bodies of a template; the last two are second attempts.
func goldenFrom(text, charset string) []byte {
	lanes := []Lane{{Number: 3, Key: []byte("k000005"), KeyNumber: 5, Partition: -1}}
	template := newTemplate(text, 7, lanes, charset)
	var found []byte
	for seq := uint64(0); seq < 8; seq++ {
		header := Header{
			RunTag: goldenTag, Instance: 7, Lane: 3, Seq: seq, DueNs: goldenNs + 20_000*int64(seq), Key: 5,
			Attempt: uint16(seq / 6), Kind: Load,
		}
		identity, body := template.message(&lanes[0], header)
		found = append(found, Joined(body, identity)...)
	}
	return found
}

// goldenDueTimes of a schedule with a profile: messages in the warm-up and in all, then when each is due.
func goldenDueTimes() []byte {
	due := newSchedule(97.3, 0.5, 2, [][2]float64{
		{500_000_000, 0.55}, {700_000_000, 0.1}, {300_000_000, 0}, {333_333_333, 1}, {666_666_667, 0.37},
	})
	due.t0Ns = goldenNs
	bytes := binary.LittleEndian.AppendUint64(nil, uint64(due.warmUpCount()))
	bytes = binary.LittleEndian.AppendUint64(bytes, uint64(due.total()))
	for i := int64(0); i < due.total(); i++ {
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(due.dueNs(i)))
	}
	return bytes
}

func goldenSegments(folder string, table uint16, owner, subscription uint32) *Segments {
	return &Segments{
		folder: folder, table: table, owner: owner, runTag: goldenTag,
		subscription: subscription, capacity: goldenCapacity,
	}
}

func goldenSends(folder string, small, large Header, timedOut int32) error {
	segments := goldenSegments(folder, tableSends, 7, 0)
	unanswered := small
	unanswered.Seq, unanswered.DueNs = 43, goldenNs+40_000
	for i, header := range []Header{small, large, unanswered} {
		row, err := segments.next()
		if err != nil {
			return err
		}
		row.openSend(header, header.DueNs+1_500, 0)
		switch i {
		case 0:
			row.completeSend(completion{doneNs: goldenNs + 9_000_000, position: 1234, stream: 1, outcome: OK})
		case 1:
			row.completeSend(completion{doneNs: goldenNs + 5e9, position: -1, errorID: timedOut, outcome: Info})
			row.lateOutcome(OK)
		}
	}
	return nil
}

func goldenTransactions(folder string, timedOut int32) error {
	segments := goldenSegments(folder, tableTransactions, 7, 0)
	for i, number := range []uint32{1, 6, 3} {
		row, err := segments.next()
		if err != nil {
			return err
		}
		row.beginTransaction(number, uint32(i%2), goldenNs+[]int64{0, 10_000_000, 40_000_000}[i])
		switch i {
		case 0:
			row.askTransaction(goldenNs+2_000_000, commitAsked)
			row.endTransaction(goldenNs+9_000_000, 0, OK)
		case 1:
			row.askTransaction(goldenNs+20_000_000, commitAsked)
			row.askTransaction(goldenNs+21_000_000, commitAsked|abortAsked)
			row.endTransaction(goldenNs+30_000_000, timedOut, Aborted)
		}
	}
	return nil
}

func goldenLog(folder string, small, large []byte) error {
	segments := goldenSegments(folder, tableLog, 1, 0)
	damaged := append(append([]byte{}, large[:len(large)-1]...), '!')
	found := []logRow{
		{position: 1234, stream: 1, value: small},
		{position: 1235, stream: 1, value: damaged},
		{position: 7, stream: 2, value: []byte("hello")},
	}
	for _, each := range found {
		row, err := segments.next()
		if err != nil {
			return err
		}
		each.brokerTimeMs, each.check = 1_700_000_000_123, check(each.value, goldenTag)
		row.writeLog(each)
	}
	return nil
}

func goldenDeliveries(folder string, group uint32, small []byte) error {
	segments := goldenSegments(folder, tableDeliveries, 2, group)
	events := []delivery{
		{event: Assign, position: -1},
		{event: Deliver, position: 1234, value: small},
		{event: Commit, position: 1235},
	}
	for i, each := range events {
		row, err := segments.next()
		if err != nil {
			return err
		}
		each.tNs, each.stream, each.epoch = goldenNs+int64(i), 1, 1
		row.writeDelivery(each)
	}
	return nil
}

func selfTest(folder string) int {
	if err := writeGolden(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitEnvironment
	}
	return 0
}
