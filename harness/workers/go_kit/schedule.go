package kit

import (
	"math"
	"sync"
)

// Shortest sleep between looks at the schedule.
const slackNs = 2_000_000

// schedule of an open loop: message i is due at t0 + i * period, warm-up messages first, then load. Rate 0 means
// unlimited: everything is due at once, until the time is over.
type schedule struct {
	t0Ns                     int64
	ratePerS, warmUpS, loadS float64
}

func (s schedule) periodNs() float64 {
	if s.ratePerS == 0 {
		return 0
	}
	return 1e9 / s.ratePerS
}

func (s schedule) warmUpCount() int64 { return int64(math.Ceil(s.warmUpS * s.ratePerS)) }
func (s schedule) total() int64       { return int64(math.Ceil((s.warmUpS + s.loadS) * s.ratePerS)) }
func (s schedule) loadNs() int64      { return s.t0Ns + int64(s.warmUpS*1e9) }
func (s schedule) endNs() int64       { return s.t0Ns + int64((s.warmUpS+s.loadS)*1e9) }

func (s schedule) dueNs(i int64) int64 { return s.t0Ns + int64(float64(i)*s.periodNs()) }

// dueCount is how many messages are due: all i with dueNs(i) <= now, at most total.
func (s schedule) dueCount(nowNs int64) int64 {
	if nowNs < s.t0Ns {
		return 0
	}
	count := int64(float64(nowNs-s.t0Ns)/s.periodNs()) + 1
	if total := s.total(); count > total {
		count = total
	}
	for count < s.total() && s.dueNs(count) <= nowNs { // float rounding at the edge
		count++
	}
	for count > 0 && s.dueNs(count-1) > nowNs {
		count--
	}
	return count
}

// lateness is how late the generator itself would be had the client never blocked and nothing been frozen: a
// queue with one server (Lindley's recursion), where own work adds to it and every message sent is worth one
// period. After the client blocked for seconds the backlog is sent faster than it became due, so the lateness
// of those messages is not charged to the generator; one that is too slow falls behind for ever.
type lateness struct {
	lock     sync.Mutex
	periodNs float64
	lateNs   float64
	maxNs    float64
}

// worked: own time without blocked and frozen time went into sending so many messages.
func (l *lateness) worked(ownNs, messages int64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.maxNs = math.Max(l.maxNs, l.lateNs)
	l.lateNs = math.Max(0, l.lateNs+float64(ownNs)-float64(messages)*l.periodNs)
}

// caughtUp: nothing was due, and the sleep until the next message ended this much too late.
func (l *lateness) caughtUp(oversleptNs int64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.lateNs = math.Max(0, float64(oversleptNs))
}

// takeMaxNs is the largest lateness since the last call.
func (l *lateness) takeMaxNs() int64 {
	l.lock.Lock()
	defer l.lock.Unlock()
	largest := math.Max(l.maxNs, l.lateNs)
	l.maxNs = 0
	return int64(largest)
}
