// Made from harness/records.py by `make docs`; do not edit.

// Package kit is the worker's side of docs/worker-protocol.md and docs/capture-format.md. It knows no client.
package kit

// Byte layouts. All integers are little-endian.
const (
	headerBytes        = 48
	trailerBytes       = 4
	MinPayloadBytes    = 52
	segmentHeaderBytes = 64
	formatVersion      = 1
)

// Tables of the capture.
const (
	tableSends        = 1
	tableLog          = 2
	tableDeliveries   = 3
	tableTransactions = 4
)

var (
	tableNames = map[uint16]string{
		tableSends:        "sends",
		tableLog:          "log",
		tableDeliveries:   "deliveries",
		tableTransactions: "transactions",
	}
	rowBytes = map[uint16]int{
		tableSends:        96,
		tableLog:          104,
		tableDeliveries:   104,
		tableTransactions: 64,
	}
)

// Kinds of messages.
const (
	Probe  = 0
	WarmUp = 1
	Load   = 2
)

// Outcome: outcomes of a send: exactly one each. 0: the client never answered.
type Outcome uint8

// Values of Outcome.
const (
	None    Outcome = 0
	OK      Outcome = 1
	Fail    Outcome = 2
	Info    Outcome = 3
	Aborted Outcome = 4
)

// Check: what a reader found a payload to be.
type Check uint8

// Values of Check.
const (
	CheckOK  Check = 0
	Corrupt  Check = 1
	Foreign  Check = 2
	OtherRun Check = 3
)

// Event: events of a consumer's journal.
type Event uint8

// Values of Event.
const (
	Deliver       Event = 1
	AckCalled     Event = 2
	AckConfirmed  Event = 3
	Nack          Event = 4
	Commit        Event = 5
	CommitCalled  Event = 6
	RollbackBegin Event = 7
	RollbackEnd   Event = 8
	Recover       Event = 9
	Assign        Event = 10
	Revoke        Event = 11
	Seek          Event = 12
)

// Transactions of what lies in a log.
const (
	noTxn        = 0
	committedTxn = 1
)

// What was asked for to end a transaction.
const (
	commitAsked = 1
	abortAsked  = 2
)
