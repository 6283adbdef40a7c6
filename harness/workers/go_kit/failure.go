package kit

import (
	"errors"
	"fmt"
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

// reason of a failed system call, in the words that other languages use for it.
func reason(err error) string {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return err.Error()
	}
	text := number.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
