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

// Failuref makes a Failure with a hint ("" = none).
func Failuref(hint, format string, args ...any) *Failure {
	return &Failure{Text: fmt.Sprintf(format, args...), Hint: hint}
}

var varying = regexp.MustCompile(`[0-9a-fA-F.:\[\]]*:\d+(->[0-9a-fA-F.:\[\]]*:\d+)?|\d+`)

// ErrorText is the class of an error and its first line, without what differs from message to message: addresses and
// numbers. It is the text behind an error id.
func ErrorText(class string, err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
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
