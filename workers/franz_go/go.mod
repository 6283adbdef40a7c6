// For `go vet` and editors, of the oldest Go that will do. A build takes the version of franz-go that the scenario asks
// for, and what that version requires, kmsg too (harness/workers/go_build.py).
module brokerstorm/franz_go

go 1.21

require (
	brokerstorm/kit v0.0.0
	github.com/twmb/franz-go v1.18.0
	github.com/twmb/franz-go/pkg/kmsg v1.9.0
)

require (
	github.com/klauspost/compress v1.17.8 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	golang.org/x/crypto v0.23.0 // indirect
	golang.org/x/sys v0.20.0 // indirect
)

replace brokerstorm/kit => ../go_kit
