// Made from harness/contracts/worker.py by `make docs`; do not edit.

package kit

import "encoding/json"

// LaneGroup: a group of lanes of the spec.
type LaneGroup struct {
	Topic      string `json:"topic"`
	Mode       string `json:"mode"`
	First      uint32 `json:"first"`
	Count      int    `json:"count"`
	Partitions int    `json:"partitions"`
	Key        string `json:"key"`
}

// TransactionsSpec: the transactions of a producer or pipeline.
type TransactionsSpec struct {
	ID         string  `json:"id"`
	Messages   int     `json:"messages"`
	EveryS     float64 `json:"every_s"`
	AbortEvery int     `json:"abort_every"`
}

// ProducerSpec: the section of a producer (docs/worker-protocol.md).
type ProducerSpec struct {
	Instance            uint32            `json:"instance"`
	LaneGroups          []LaneGroup       `json:"lane_groups"`
	Turns               []int             `json:"turns"`
	RatePerS            float64           `json:"rate_per_s"`
	RateProfile         [][2]float64      `json:"rate_profile"`
	PayloadBytes        int               `json:"payload_bytes"`
	PayloadMaxBytes     int               `json:"payload_max_bytes"`
	PayloadSizes        []int             `json:"payload_sizes"`
	PayloadCompressible *int              `json:"payload_compressible"`
	PayloadTemplate     string            `json:"payload_template"`
	PayloadCharset      string            `json:"payload_charset"`
	Headers             [][2]string       `json:"headers"`
	HeaderTemplates     [][2]string       `json:"header_templates"`
	WhenFull            string            `json:"when_full"`
	WarmUpS             float64           `json:"warm_up_s"`
	LoadS               float64           `json:"load_s"`
	Results             string            `json:"results"`
	Calls               string            `json:"calls"`
	Batch               int               `json:"batch"`
	Threads             int               `json:"threads"`
	DeliverAfterS       *float64          `json:"deliver_after_s"`
	Transactions        *TransactionsSpec `json:"transactions"`
	CallDeadlineS       float64           `json:"call_deadline_s"`
	Capture             bool              `json:"capture"`
}

// UnmarshalJSON reads it over the defaults.
func (part *ProducerSpec) UnmarshalJSON(text []byte) error {
	type plain ProducerSpec
	read := plain{WhenFull: "wait", Results: "checked", Calls: "async", Batch: 1, Threads: 1, Capture: true}
	err := json.Unmarshal(text, &read)
	*part = ProducerSpec(read)
	return err
}

// PausesSpec: the pauses of a consumer: how often, and how long each.
type PausesSpec struct {
	EveryS float64 `json:"every_s"`
	ForS   float64 `json:"for_s"`
}

// SeeksSpec: the seeks of a consumer: how often, and how many messages back.
type SeeksSpec struct {
	EveryS float64 `json:"every_s"`
	Back   int     `json:"back"`
}

// ConsumerSpec: the section of a consumer (docs/worker-protocol.md).
type ConsumerSpec struct {
	Session        uint32      `json:"session"`
	Group          string      `json:"group"`
	Topics         []string    `json:"topics"`
	CommitEveryS   float64     `json:"commit_every_s"`
	Receive        string      `json:"receive"`
	WorkS          float64     `json:"work_s"`
	Settle         string      `json:"settle"`
	NackEvery      int         `json:"nack_every"`
	PerTransaction int         `json:"per_transaction"`
	RollbackEvery  int         `json:"rollback_every"`
	Pattern        string      `json:"pattern"`
	Reader         bool        `json:"reader"`
	Pauses         *PausesSpec `json:"pauses"`
	Seeks          *SeeksSpec  `json:"seeks"`
}

// UnmarshalJSON reads it over the defaults.
func (part *ConsumerSpec) UnmarshalJSON(text []byte) error {
	type plain ConsumerSpec
	read := plain{Receive: "loop", Settle: "auto"}
	err := json.Unmarshal(text, &read)
	*part = ConsumerSpec(read)
	return err
}

// PipelineSpec: besides `producer` and `consumer`, its halves. Options of `client` are the first one's.
type PipelineSpec struct {
	ConsumerOptions map[string]any `json:"consumer_options"`
}

// AuditSpec: the section of a reader of the log (docs/worker-protocol.md).
type AuditSpec struct {
	Reader    uint32   `json:"reader"`
	Streams   []string `json:"streams"`
	Isolation string   `json:"isolation"`
	StallS    float64  `json:"stall_s"`
	Follow    bool     `json:"follow"`
	Later     []string `json:"later"`
}
