// What `go vet` and editors see. harness/workers/go_build.py puts the version of sarama that a scenario asks
// for in the place of this one, under the module path of that version.
module brokerstorm/sarama

go 1.19

require (
	github.com/IBM/sarama v1.43.3
	golang.org/x/sys v0.5.0
)
