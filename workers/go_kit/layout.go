// Package kit is the worker's side of docs/worker-protocol.md and docs/capture-format.md. It knows no client.
package kit

// Byte layouts; harness/records.py is the same in Python. All integers are little-endian.
const (
	headerBytes        = 48
	trailerBytes       = 4
	MinPayloadBytes    = headerBytes + trailerBytes
	formatVersion      = 1
	segmentHeaderBytes = 64
)

// Tables of the capture.
const (
	tableSends      = 1
	tableLog        = 2
	tableDeliveries = 3

	tableTransactions = 4
)

var (
	tableNames = map[uint16]string{
		tableSends: "sends", tableLog: "log", tableDeliveries: "deliveries", tableTransactions: "transactions",
	}
	rowBytes = map[uint16]int{tableSends: 96, tableLog: 104, tableDeliveries: 104, tableTransactions: 64}
)

// Kinds of messages.
const (
	Probe  = 0
	WarmUp = 1
	Load   = 2
)

// Outcome of a send: exactly one each. The zero value means that the client never answered.
type Outcome uint8

const (
	OK   Outcome = 1
	Fail Outcome = 2 // certainly not stored
	Info Outcome = 3 // unknown

	Aborted Outcome = 4 // with its transaction, as the application wanted
)

// Check is what a reader found a payload to be.
type Check uint8

const (
	CheckOK  Check = 0
	Corrupt  Check = 1
	Foreign  Check = 2
	OtherRun Check = 3
)

// Event of a consumer's journal.
type Event uint8

const (
	Deliver       Event = 1
	AckCalled     Event = 2
	AckConfirmed  Event = 3
	Nack          Event = 4
	Commit        Event = 5
	CommitCalled  Event = 6
	RollbackBegin Event = 7
	RollbackEnd   Event = 8
	Assign        Event = 10
	Revoke        Event = 11
	Seek          Event = 12
)
