// Command amqp_go is one worker process of the Go client amqp091-go (docs/worker-protocol.md). It is built on first
// use against the version that a scenario asks for (harness/workers/go_build.py).
package main

import (
	"os"

	"brokerstorm/kit"
)

func main() {
	roles := map[string]kit.Role{"producer": produce, "consumer": consume, "audit": audit}
	os.Exit(kit.Main(roles, kit.Versions("/amqp091-go")))
}
