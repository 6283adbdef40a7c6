package main

import "testing"

// A broker hands over no more than PrefetchCount messages that are not settled.
func TestATransactionHasNoMoreMessagesThanTheBrokerHandsOver(t *testing.T) {
	for _, each := range []struct{ prefetch, asked, most int }{{1, 10, 1}, {10, 10, 10}, {100, 10, 10}, {0, 10, 10}} {
		if most := (consuming{PrefetchCount: each.prefetch}).atMost(each.asked); most != each.most {
			t.Errorf("PrefetchCount=%d: %d messages, not %d", each.prefetch, most, each.most)
		}
	}
}
