// Command sarama is one worker process of the Go client sarama (docs/worker-protocol.md). It is built on first use
// against the version that a scenario asks for (harness/workers/go_build.py).
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"brokerstorm/kit"
)

func main() {
	version := libraryVersion()
	os.Exit(kit.Main(
		map[string]kit.Role{"producer": produce, "consumer": consume},
		map[string]string{"client_version": version, "go": strings.TrimPrefix(runtime.Version(), "go")},
	))
}

// libraryVersion that was linked in, as the build recorded it; both module paths end alike.
func libraryVersion() string {
	if info, known := debug.ReadBuildInfo(); known {
		for _, module := range info.Deps {
			if strings.HasSuffix(module.Path, "/sarama") {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return ""
}
