// For `go vet` and editors. A build takes the version of kafka-go that the scenario asks for, and what that version
// requires (harness/workers/go_build.py).
module brokerstorm/kafka_go

go 1.19

require (
	brokerstorm/kit v0.0.0
	github.com/segmentio/kafka-go v0.4.47
)

require (
	github.com/klauspost/compress v1.15.9 // indirect
	github.com/pierrec/lz4/v4 v4.1.15 // indirect
	github.com/xdg-go/pbkdf2 v1.0.0 // indirect
	github.com/xdg-go/scram v1.1.2 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	golang.org/x/sys v0.13.0 // indirect
	golang.org/x/text v0.13.0 // indirect
)

replace brokerstorm/kit => ../go_kit
