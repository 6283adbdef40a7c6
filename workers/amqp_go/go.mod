// For `go vet` and editors. A build takes the version of amqp091-go that the scenario asks for, and what that version
// requires (harness/workers/go_build.py).
module brokerstorm/amqp_go

go 1.20

require (
	brokerstorm/kit v0.0.0
	github.com/rabbitmq/amqp091-go v1.10.0
)

require golang.org/x/sys v0.5.0 // indirect

replace brokerstorm/kit => ../go_kit
