package kit

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const protocolVersion = 1

// Spec is what the worker is started with.
type Spec struct {
	Protocol  int              `json:"protocol"`
	RunID     string           `json:"run_id"`
	RunTag    uint32           `json:"run_tag"`
	Role      string           `json:"role"`
	Name      string           `json:"name"`
	Folder    string           `json:"capture_dir"`
	Bootstrap string           `json:"bootstrap"`
	Streams   map[string]int32 `json:"streams"`
	Client    ClientSpec       `json:"client"`
	Producer  *ProducerSpec    `json:"producer"`
	Consumer  *ConsumerSpec    `json:"consumer"`
	Pipeline  *PipelineSpec    `json:"pipeline"`
	Audit     *AuditSpec       `json:"audit"`
	Topics    map[string]Topic `json:"topics"`
	System    string           `json:"system"`
	AdminURL  string           `json:"admin_url"`
	secured   map[string]string
}

// Topic is what the client is given for a topic of the plan.
type Topic struct {
	Address    string `json:"address"`
	Partitions int    `json:"partitions"`
}

// ClientSpec names the library and the scenario's options, in the client's own names; see Spec.Options.
type ClientSpec struct {
	Library string         `json:"library"`
	Version string         `json:"version"`
	Options map[string]any `json:"options"`
}

// Half of a pipeline, as the producer or the consumer that is in it.
func (s *Session) Half(role string) *Session {
	half, spec := *s, *s.Spec
	spec.Role = role
	if role == "consumer" {
		spec.Client.Options, spec.Producer = spec.Pipeline.ConsumerOptions, nil
	} else {
		spec.Consumer = nil
	}
	half.Spec = &spec
	return &half
}

// Work of the application on one message, after it was handed over.
func (c *ConsumerSpec) Work() {
	if c.WorkS > 0 {
		time.Sleep(time.Duration(c.WorkS * float64(time.Second)))
	}
}

func readSpec(path string) (*Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, Failuref("", "cannot read spec %s: %s", path, reason(err))
	}
	var spec Spec
	if err = json.Unmarshal(text, &spec); err != nil {
		return nil, Failuref("", "spec %s cannot be used: %v", path, err)
	}
	if spec.Protocol != protocolVersion {
		return nil, Failuref("", "spec asks for protocol %d, this worker speaks %d", spec.Protocol, protocolVersion)
	}
	missing := (spec.Role == "producer" && spec.Producer == nil) || (spec.Role == "consumer" && spec.Consumer == nil) ||
		(spec.Role == "audit" && spec.Audit == nil) ||
		(spec.Role == "pipeline" && (spec.Pipeline == nil || spec.Producer == nil || spec.Consumer == nil))
	if missing || spec.Role == "" {
		return nil, Failuref("", "spec %s lacks the part of its role %q", path, spec.Role)
	}
	if spec.secured, err = readSecured(); err != nil {
		return nil, err
	}
	return &spec, nil
}

// Lane is where a message is sent. Partition -1 and Key nil leave it to the client.
type Lane struct {
	Number    uint32
	Topic     string
	Key       []byte
	Partition int32
	KeyNumber uint32
}

// key i of the group: its text with places filled, k000017 without one.
func (g LaneGroup) key(i int) []byte {
	plain := fmt.Sprintf("k%06d", i)
	if g.Key == "" {
		return []byte(plain)
	}
	return []byte(strings.NewReplacer("{key}", plain, "{number}", strconv.Itoa(i)).Replace(g.Key))
}

func lanesOf(groups []LaneGroup) ([]Lane, error) {
	var lanes []Lane
	for _, group := range groups {
		for i := 0; i < group.Count; i++ {
			lane := Lane{Number: group.First + uint32(i), Topic: group.Topic, Partition: -1}
			switch group.Mode {
			case "partition":
				lane.Partition = int32(i)
			case "key":
				lane.Key, lane.KeyNumber = group.key(i), uint32(i)
			case "routed":
			default:
				return nil, Failuref("", "lane mode %q: must be partition, key or routed", group.Mode)
			}
			lanes = append(lanes, lane)
		}
	}
	if len(lanes) == 0 {
		return nil, Failuref("", "a producer needs at least one lane")
	}
	return lanes, nil
}
