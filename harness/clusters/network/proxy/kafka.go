package main

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions is answered with the old header whatever its version is: a broker that does not know the version must
// be able to say so (KIP-511).
const apiVersions = 18

// A frame is one request of a client of Kafka.
// https://kafka.apache.org/protocol#protocol_messages
type frame struct {
	kind, version int16
	number        int32
	client        string
	request       kmsg.Request
	isRead        bool
	body          []byte
}

// parseRequest reads the header of a request that has its length in front.
func parseRequest(bytes []byte) (*frame, error) {
	found := &frame{
		kind:    int16(binary.BigEndian.Uint16(bytes[4:])),
		version: int16(binary.BigEndian.Uint16(bytes[6:])),
		number:  int32(binary.BigEndian.Uint32(bytes[8:])),
	}
	request := kmsg.RequestForKey(found.kind)
	if request == nil || found.version < 0 || found.version > request.MaxVersion() || len(bytes) < 14 {
		return found, nil // newer than the library: it can be counted, and not be changed
	}
	request.SetVersion(found.version)
	rest := bytes[14:]
	if length := int(int16(binary.BigEndian.Uint16(bytes[12:]))); length > 0 {
		if length > len(rest) {
			return nil, errNotKafka
		}
		found.client, rest = string(rest[:length]), rest[length:]
	}
	if request.IsFlexible() {
		if len(rest) == 0 || rest[0] != 0 { // tags: no client sends any
			return found, nil
		}
		rest = rest[1:]
	}
	found.request, found.body = request, rest
	return found, nil
}

// read parses the body, once.
func (f *frame) read() bool {
	if f.request == nil {
		return false
	}
	if !f.isRead {
		if f.request.ReadFrom(f.body) != nil {
			f.request = nil
			return false
		}
		f.isRead, f.body = true, nil
	}
	return true
}

// isAnswered is false for a produce request that asks for no acknowledgement.
func (f *frame) isAnswered() bool {
	if f.kind != int16(kmsg.Produce) || !f.read() {
		return true
	}
	return f.request.(*kmsg.ProduceRequest).Acks != 0
}

func (f *frame) describe(more string) string {
	return describe(kmsg.NameForKey(f.kind), f.version, f.client, f.number, more)
}

// headBytes is how long the length and the header of an answer are; the latter may end with tags.
func (f *frame) headBytes() int {
	if f.request.IsFlexible() && f.kind != apiVersions {
		return 9
	}
	return 8
}

// pack makes the answer's bytes, its length in front.
func (f *frame) pack(answer kmsg.Response) []byte {
	bytes := make([]byte, f.headBytes(), 256)
	binary.BigEndian.PutUint32(bytes[4:], uint32(f.number))
	bytes = answer.AppendTo(bytes)
	binary.BigEndian.PutUint32(bytes, uint32(len(bytes)-4))
	return bytes
}

// refuse makes an answer that says an error for everything that was asked for; false: an answer of this kind has no
// place for it.
func (f *frame) refuse(code int16) ([]byte, bool) {
	if !f.read() {
		return nil, false
	}
	answer := f.emptyAnswer()
	mirror(reflect.ValueOf(answer).Elem(), reflect.ValueOf(f.request).Elem())
	if find, is := f.request.(*kmsg.FindCoordinatorRequest); is { // its lists have different names
		for _, key := range find.CoordinatorKeys {
			one := kmsg.NewFindCoordinatorResponseCoordinator()
			one.Key = key
			found := answer.(*kmsg.FindCoordinatorResponse)
			found.Coordinators = append(found.Coordinators, one)
		}
	}
	setErrors(answer, code, 1)
	return f.packError(answer, code)
}

func (f *frame) emptyAnswer() kmsg.Response {
	answer := f.request.ResponseKind()
	answer.SetVersion(f.version)
	return answer
}

// packError makes the bytes of an answer that says an error; false when this version of it has no place for that.
func (f *frame) packError(answer kmsg.Response, code int16) ([]byte, bool) {
	bytes := f.pack(answer)
	again := f.emptyAnswer()
	if again.ReadFrom(bytes[f.headBytes():]) != nil {
		return nil, false
	}
	var parts []part
	whole := reflect.ValueOf(again).Elem()
	collect(whole, "", &parts)
	for _, each := range append(parts, part{whole, ""}) {
		if said := each.value.FieldByName("ErrorCode"); said.IsValid() && said.Int() == int64(code) {
			return bytes, true
		}
	}
	return nil, false
}

// change makes another answer of the broker's; what it says of it, and false where that cannot be.
func (f *frame) change(by *rule, bytes []byte) ([]byte, string, bool) {
	if !f.read() {
		return nil, "", false
	}
	answer, start := f.emptyAnswer(), f.headBytes()
	if len(bytes) < start || start > 8 && bytes[8] != 0 { // tags: no broker sends any
		return nil, "", false
	}
	if answer.ReadFrom(bytes[start:]) != nil {
		return nil, "", false
	}
	if by.Act == "throttle" {
		throttled, can := answer.(kmsg.SetThrottleResponse)
		if !can {
			return nil, "", false
		}
		throttled.SetThrottle(int32(by.DelayMs))
		return f.pack(answer), "", true
	}
	switch by.Act {
	case "flip": // in the bytes that came
		return bytes, "", flipOne(recordsOf(answer))
	case "stale":
		topics, is := answer.(*kmsg.MetadataResponse)
		if !is || !by.leaders.keep(topics, by.Gone) {
			return nil, "", false
		}
		return f.pack(answer), "", true
	}
	changed := setErrors(answer, by.Code, by.Partitions)
	packed, fits := f.packError(answer, by.Code)
	return packed, strings.Join(changed, ", "), fits
}

// setErrors gives an answer an error: a share of its partitions where it has some, at least one, else the answer
// itself. It says which partitions.
func setErrors(answer kmsg.Response, code int16, share float64) []string {
	whole := reflect.ValueOf(answer).Elem()
	var parts []part
	collect(whole, "", &parts)
	var chosen []part
	for _, each := range parts {
		if rand.Float64() < share {
			chosen = append(chosen, each)
		}
	}
	if len(chosen) == 0 && len(parts) > 0 {
		chosen = []part{parts[rand.Intn(len(parts))]}
	}
	if len(parts) == 0 && whole.FieldByName("ErrorCode").IsValid() {
		chosen = []part{{whole, ""}}
	}
	var said []string
	for _, each := range chosen {
		each.value.FieldByName("ErrorCode").SetInt(int64(code))
		forget(each.value)
		said = append(said, each.name)
	}
	return said
}

// A part is an element of an answer that has an error of its own, and its name.
type part struct {
	value reflect.Value
	name  string
}

// collect finds the innermost elements of lists that have an error of their own.
func collect(value reflect.Value, name string, found *[]part) {
	for at := range value.NumField() {
		field := value.Field(at)
		if field.Kind() != reflect.Slice || field.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		for index := range field.Len() {
			element := field.Index(index)
			before := len(*found)
			within := strings.Trim(name+"-"+nameOf(element), "-")
			collect(element, within, found)
			if len(*found) == before && element.FieldByName("ErrorCode").IsValid() {
				*found = append(*found, part{element, within})
			}
		}
	}
}

func nameOf(element reflect.Value) string {
	for _, name := range []string{"Topic", "Partition", "Group"} {
		field := element.FieldByName(name)
		if field.IsValid() && field.Kind() == reflect.Pointer && !field.IsNil() {
			field = field.Elem()
		}
		if field.IsValid() && field.Kind() != reflect.Pointer && !field.IsZero() || name == "Partition" && field.IsValid() {
			return fmt.Sprint(field.Interface())
		}
	}
	return ""
}

// forget takes back what a broker says only of what it did.
func forget(value reflect.Value) {
	for _, name := range []string{"BaseOffset", "LogAppendTime", "HighWatermark", "LastStableOffset"} {
		if field := value.FieldByName(name); field.IsValid() {
			field.SetInt(-1)
		}
	}
	if records := value.FieldByName("RecordBatches"); records.IsValid() {
		records.SetZero()
	}
}

// mirror gives an answer the elements that were asked for: those of lists of the same name.
func mirror(answer, request reflect.Value) {
	for at := range answer.NumField() {
		name := answer.Type().Field(at).Name
		to, from := answer.Field(at), request.FieldByName(name)
		if !from.IsValid() || name == "Version" || name == "UnknownTags" {
			continue
		}
		if to.Kind() != reflect.Slice || from.Kind() != reflect.Slice {
			if to.Type() == from.Type() {
				to.Set(from)
			}
			continue
		}
		if to.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		made := reflect.MakeSlice(to.Type(), from.Len(), from.Len())
		for index := range from.Len() {
			element, asked := made.Index(index), from.Index(index)
			element.Addr().MethodByName("Default").Call(nil)
			if asked.Kind() == reflect.Struct {
				mirror(element, asked)
			} else if only := element.FieldByName(strings.TrimSuffix(name, "s")); only.IsValid() && only.Type() == asked.Type() {
				only.Set(asked)
			}
		}
		to.Set(made)
	}
}
