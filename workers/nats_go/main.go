// Command nats_go is one worker process of the Go client nats.go (docs/worker-protocol.md). It is built on first use
// against the version that a scenario asks for (harness/workers/go_build.py).
package main

import (
	"os"

	"brokerstorm/kit"
)

func main() {
	roles := map[string]kit.Role{"producer": produce, "consumer": consume, "audit": audit}
	os.Exit(kit.Main(roles, kit.Versions("/nats.go")))
}
