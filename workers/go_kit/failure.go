package kit

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
)

// Failure ends the worker with a clear line: an `error` with "fatal": true and exit code 4.
type Failure struct {
	Text string
	Hint string
}

func (f *Failure) Error() string { return f.Text }

// Failuref makes a Failure with a hint ("" = none), on one line: clients list several errors below each other.
func Failuref(hint, format string, args ...any) *Failure {
	return &Failure{Text: strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "), Hint: hint}
}

// secrets stand in nothing that this process writes down; the longest first.
var secrets []string

func withoutSecrets(text string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "(secret)")
	}
	return text
}

var varying = regexp.MustCompile(`[0-9a-fA-F.:\[\]]*:\d+(->[0-9a-fA-F.:\[\]]*:\d+)?|\d+`)

// ErrorText is the class of an error and its first line, without what differs from message to message: addresses and
// numbers. It is the text behind an error id.
func ErrorText(class string, err error) string {
	// Secrets first: of one with digits in it the next step would leave a part.
	line, _, _ := strings.Cut(withoutSecrets(err.Error()), "\n")
	line = varying.ReplaceAllString(line, "*")
	if len(line) > 200 {
		line = line[:200]
	}
	return fmt.Sprintf("%s: %s", class, line)
}

// reason of a failed system call, in the words that other languages use for it.
func reason(err error) string {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return err.Error()
	}
	text := number.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
