package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"brokerstorm/kit"
	"github.com/IBM/sarama"
)

const optionsHint = "options are paths in sarama.Config: Producer.Retry.Max, Net.ReadTimeout, Version ..."

// words for values that sarama gives names to, by type or, for a plain number, by path.
var words = map[string]map[string]int64{
	"Consumer.Offsets.Initial": {"oldest": sarama.OffsetOldest, "newest": sarama.OffsetNewest},

	"RequiredAcks":   {"all": -1, "waitforall": -1, "local": 1, "waitforlocal": 1, "none": 0, "noresponse": 0},
	"IsolationLevel": {"readuncommitted": 0, "readcommitted": 1},
}

// configOf the scenario's options, over those of worker.toml, over sarama's own defaults.
func configOf(spec *kit.Spec) (*sarama.Config, error) {
	var defaults map[string]map[string]string
	if text := os.Getenv("BROKERSTORM_WORKER_OPTIONS"); text != "" {
		if err := json.Unmarshal([]byte(text), &defaults); err != nil {
			return nil, kit.Failuref("", "BROKERSTORM_WORKER_OPTIONS: %v", err)
		}
	}
	options := defaults[spec.Role]
	if options == nil {
		options = map[string]string{}
	}
	for path, text := range spec.Client.Options() {
		options[path] = text
	}
	config := sarama.NewConfig()
	paths := make([]string, 0, len(options))
	for path := range options {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	for _, path := range paths {
		if err := setOption(config, path, options[path]); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func setOption(config *sarama.Config, path, text string) error {
	field := reflect.ValueOf(config).Elem()
	for _, name := range strings.Split(path, ".") {
		if field.Kind() != reflect.Struct {
			return unknownOption(config, path)
		}
		if field = field.FieldByName(name); !field.IsValid() || !field.CanSet() {
			return unknownOption(config, path)
		}
	}
	if value, named := words[path][strings.ToLower(text)]; named {
		field.SetInt(value)
		return nil
	}
	if err := setField(field, text); err != nil {
		return kit.Failuref(optionsHint, "sarama: option %s: %q is no %s: %v", path, text, field.Type(), err)
	}
	return nil
}

func setField(field reflect.Value, text string) error {
	kind := field.Type().Name()
	if value, named := words[kind][strings.ToLower(text)]; named {
		field.SetInt(value)
		return nil
	}
	switch target := field.Addr().Interface().(type) {
	case *sarama.KafkaVersion:
		version, err := sarama.ParseKafkaVersion(text)
		*target = version
		return err
	case *time.Duration:
		duration, err := time.ParseDuration(text)
		*target = duration
		return err
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	}
	return setPlain(field, text)
}

func setPlain(field reflect.Value, text string) error {
	switch field.Kind() {
	case reflect.Bool:
		value, err := strconv.ParseBool(text)
		field.SetBool(value)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		value, err := strconv.ParseInt(text, 10, field.Type().Bits())
		field.SetInt(value)
		return err
	case reflect.String:
		field.SetString(text)
		return nil
	}
	return fmt.Errorf("it cannot be written as text")
}

func unknownOption(config *sarama.Config, path string) error {
	var known []string
	leaves(reflect.TypeOf(*config), "", &known)
	sort.SliceStable(known, func(i, j int) bool { return distance(path, known[i]) < distance(path, known[j]) })
	return kit.Failuref(
		optionsHint, "sarama has no option %s in this version; near: %s", path, strings.Join(known[:3], ", "),
	)
}

// leaves of the configuration that can be written as text.
func leaves(kind reflect.Type, prefix string, found *[]string) {
	for i := 0; i < kind.NumField(); i++ {
		field := kind.Field(i)
		switch {
		case !field.IsExported():
		case field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeOf(sarama.KafkaVersion{}):
			leaves(field.Type, prefix+field.Name+".", found)
		default:
			*found = append(*found, prefix+field.Name)
		}
	}
}

// distance is Levenshtein's, without regard to case.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current := make([]int, len(b)+1)
		current[0] = i
		for j := 1; j <= len(b); j++ {
			current[j] = previous[j-1]
			if a[i-1] != b[j-1] {
				current[j]++
			}
			for _, other := range []int{previous[j] + 1, current[j-1] + 1} {
				if other < current[j] {
					current[j] = other
				}
			}
		}
		previous = current
	}
	return previous[len(b)]
}
