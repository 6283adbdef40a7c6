package kit

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
)

// Options of the role: those of worker.toml, over them the scenario's, over them what the cluster asks of clients
// (secrets among them). In the client's own names, as text.
func (s *Spec) Options() (map[string]string, error) {
	var byRole map[string]map[string]string
	if text := os.Getenv("BROKERSTORM_WORKER_OPTIONS"); text != "" {
		if err := json.Unmarshal([]byte(text), &byRole); err != nil {
			return nil, Failuref("", "BROKERSTORM_WORKER_OPTIONS: %v", err)
		}
	}
	options := map[string]string{}
	for name, text := range byRole[s.Role] {
		options[name] = text
	}
	for name, value := range s.Client.Options {
		options[name] = fmt.Sprint(value)
	}
	for name, text := range s.secured {
		options[name] = text
	}
	return options, nil
}

// readSecured options that clients of this cluster need: out of a pipe, so they can be read once. The secrets among
// them are hidden from now on.
func readSecured() (map[string]string, error) {
	path := os.Getenv("BROKERSTORM_SECURITY")
	if path == "" {
		return nil, nil
	}
	var found struct {
		Options map[string]string `json:"options"`
		Hidden  []string          `json:"hidden"`
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, Failuref("", "BROKERSTORM_SECURITY: cannot read %s: %s", path, reason(err))
	}
	if json.Unmarshal(text, &found) != nil {
		return nil, Failuref("", "BROKERSTORM_SECURITY: %s is not JSON", path)
	}
	secrets = found.Hidden
	return found.Options, nil
}

// StructOptions sets fields of a client's configuration struct from text. The name of an option is the path of its
// field: Producer.Retry.Max.
type StructOptions struct {
	Library string
	// Hint of every error.
	Hint string
	// Words for values that the client gives names to, in lower case, by path or by name of the field's type.
	Words map[string]map[string]int64
	// Parse types of the client's own; false: a type it does not know. May be nil.
	Parse func(field any, text string) (known bool, err error)
}

// Set the options in config, a pointer to a struct; a field that it lacks is an error that names those near.
func (o StructOptions) Set(config any, options map[string]string) error {
	paths := make([]string, 0, len(options))
	for path := range options {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	for _, path := range paths {
		if err := o.setOne(reflect.ValueOf(config).Elem(), path, options[path]); err != nil {
			return err
		}
	}
	return nil
}

func (o StructOptions) setOne(config reflect.Value, path, text string) error {
	field := config
	for _, name := range strings.Split(path, ".") {
		if field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct {
			if field.IsNil() { // what an application would make to fill in
				field.Set(reflect.New(field.Type().Elem()))
			}
			field = field.Elem()
		}
		if field.Kind() != reflect.Struct {
			return o.unknown(config, path)
		}
		if field = field.FieldByName(name); !field.IsValid() || !field.CanSet() {
			return o.unknown(config, path)
		}
	}
	if err := o.setField(field, path, text); err != nil {
		return Failuref(o.Hint, "%s: option %s: %q is no %s: %v", o.Library, path, text, field.Type(), err)
	}
	return nil
}

func (o StructOptions) setField(field reflect.Value, path, text string) error {
	for _, kind := range []string{path, field.Type().Name()} {
		if value, named := o.Words[kind][strings.ToLower(text)]; named {
			field.SetInt(value)
			return nil
		}
	}
	target := field.Addr().Interface()
	if o.Parse != nil {
		if known, err := o.Parse(target, text); known {
			return err
		}
	}
	switch target := target.(type) {
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
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		value, err := strconv.ParseUint(text, 10, field.Type().Bits())
		field.SetUint(value)
		return err
	case reflect.Float32, reflect.Float64:
		value, err := strconv.ParseFloat(text, field.Type().Bits())
		field.SetFloat(value)
		return err
	case reflect.String:
		field.SetString(text)
		return nil
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		return setPlain(field.Elem(), text)
	}
	return fmt.Errorf("it cannot be written as text")
}

func (o StructOptions) unknown(config reflect.Value, path string) error {
	var known []string
	o.leaves(config.Addr(), "", &known)
	return UnknownOption(o.Library, path, known, o.Hint)
}

// leaves of the configuration that can be written as text.
func (o StructOptions) leaves(config reflect.Value, prefix string, found *[]string) {
	kind := config.Elem().Type()
	for i := 0; i < kind.NumField(); i++ {
		field := kind.Field(i)
		if !field.IsExported() {
			continue
		}
		target, parsed := reflect.New(field.Type), false
		if o.Parse != nil {
			parsed, _ = o.Parse(target.Interface(), "")
		}
		if field.Type.Kind() == reflect.Struct && !parsed {
			o.leaves(target, prefix+field.Name+".", found)
		} else {
			*found = append(*found, prefix+field.Name)
		}
	}
}

// UnknownOption is the failure of an option that the client does not have, with the three nearest that it has.
func UnknownOption(library, name string, known []string, hint string) error {
	near := append([]string{}, known...)
	sort.SliceStable(near, func(i, j int) bool { return distance(name, near[i]) < distance(name, near[j]) })
	if len(near) > 3 {
		near = near[:3]
	}
	return Failuref(hint, "%s has no option %s in this version; near: %s", library, name, strings.Join(near, ", "))
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
