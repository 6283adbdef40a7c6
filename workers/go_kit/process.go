package kit

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
)

const (
	exitUsage       = 2
	exitEnvironment = 4
	exitBug         = 70
)

// Session is everything a role is run with: spec, commands, reporter, names.
type Session struct {
	Spec     *Spec
	Control  *Control
	Report   *Reporter
	Names    *Names
	versions map[string]string
	isCheck  bool
}

// errOptionsTaken: the client takes its options, and nothing else was asked (--check-options).
var errOptionsTaken = errors.New("the options are taken")

// OptionsTaken is called by a role when the client took its options and no broker was asked yet. Under --check-options
// it is an error, with which the role ends.
func (s *Session) OptionsTaken() error {
	if s.isCheck {
		return errOptionsTaken
	}
	return nil
}

// Ready says that the next command can be obeyed.
func (s *Session) Ready() {
	fields := map[string]any{"pid": os.Getpid(), "client": s.Spec.Client.Library}
	for name, value := range s.versions {
		fields[name] = value
	}
	s.Report.say("ready", fields)
}

// Versions for the `ready` line: of Go, and of the first linked module whose path ends in one of these, as the build
// recorded it.
func Versions(paths ...string) map[string]string {
	versions := map[string]string{"client_version": "", "go": strings.TrimPrefix(runtime.Version(), "go")}
	info, known := debug.ReadBuildInfo()
	if !known {
		return versions
	}
	for _, module := range info.Deps {
		for _, path := range paths {
			if strings.HasSuffix(module.Path, path) {
				versions["client_version"] = strings.TrimPrefix(module.Version, "v")
				return versions
			}
		}
	}
	return versions
}

// Role runs until everything is captured.
type Role func(*Session) error

// Main runs one worker process and returns its exit code: 0 after `done`, 2 wrong arguments, 4 the environment or an
// option, 70 a bug of ours. versions: `client_version` and whatever else the `ready` line shall say.
func Main(roles map[string]Role, versions map[string]string) int {
	args := os.Args[1:]
	if len(args) == 2 && args[0] == "--self-test" {
		return selfTest(args[1])
	}
	isCheck := len(args) == 2 && args[0] == "--check-options"
	if !isCheck && (len(args) != 1 || strings.HasPrefix(args[0], "-")) {
		fmt.Fprintln(os.Stderr, "usage: worker [--check-options] SPEC.json | worker --self-test FOLDER")
		return exitUsage
	}
	report := newReporter(os.Stdout)
	defer func() { // the last handler of this process: a crash must reach the harness
		if crash := recover(); crash != nil {
			os.Stderr.Write(debug.Stack())
			report.fatal("panic", fmt.Sprint(crash), "a bug in the worker; see stderr.log")
			os.Exit(exitBug)
		}
	}()
	if err := run(args[len(args)-1], roles, versions, report, isCheck); err != nil {
		report.close()
		if errors.Is(err, errOptionsTaken) {
			return 0
		}
		var failure *Failure
		if !errors.As(err, &failure) {
			failure = &Failure{err.Error(), "check the options and the client's log (stderr.log)"}
		}
		report.fatal("worker", failure.Text, failure.Hint)
		return exitEnvironment
	}
	report.done()
	return 0
}

func run(path string, roles map[string]Role, versions map[string]string, report *Reporter, isCheck bool) error {
	spec, err := readSpec(path)
	if err != nil {
		return err
	}
	role, known := roles[spec.Role]
	if !known {
		var names []string
		for name := range roles {
			names = append(names, name)
		}
		sort.Strings(names)
		return Failuref("", "role %q: %s has %s", spec.Role, spec.Client.Library, strings.Join(names, ", "))
	}
	control := newControl(report)
	control.listen(os.Stdin)
	report.start()
	names, err := newNames(spec.Folder, spec.Streams)
	if err != nil {
		return err
	}
	return role(&Session{spec, control, report, names, versions, isCheck})
}
