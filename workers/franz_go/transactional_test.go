package main

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestAProducerIdIsAskedForWhileTheCoordinatorLoads(t *testing.T) {
	asked := 0
	err := whileCoordinatorLoads(func() error {
		if asked++; asked < 3 {
			return kerr.CoordinatorLoadInProgress
		}
		return nil
	}, time.Minute)
	if err != nil || asked != 3 {
		t.Fatalf("asked %d times, got %v", asked, err)
	}
}

func TestAnotherErrorAndTheEndOfTheTimeAreReturned(t *testing.T) {
	other := errors.New("no such user")
	if err := whileCoordinatorLoads(func() error { return other }, time.Minute); !errors.Is(err, other) {
		t.Fatalf("got %v", err)
	}
	loading := func() error { return kerr.CoordinatorLoadInProgress }
	if err := whileCoordinatorLoads(loading, 0); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Fatalf("got %v", err)
	}
}
