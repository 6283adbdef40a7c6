package kit

import (
	"math"
	"sync"
)

// Shortest sleep between looks at the schedule.
const slackNs = 2_000_000

// span is a part of a schedule in which the rate stays the same.
type span struct {
	beginNs  int64   // from the first message on
	before   float64 // messages due until it begins, which is rarely a whole number
	periodNs float64 // 0 = none is due
}

// schedule of an open loop: when message i is due, warm-up messages first, then load. At one rate that is t0 + i *
// period; with a profile it is when the rate, added up over time, has come to i. Rate 0 means unlimited: everything
// is due at once, until the time is over. One goroutine uses it.
type schedule struct {
	t0Ns                     int64
	ratePerS, warmUpS, loadS float64
	warmUp, all              int64
	spans                    []span
	at                       int // the span of the last message that was asked for; the next is mostly of the same
}

// newSchedule makes one; profile: pairs of duration in ns and share of the rate, the warm-up first; empty = one rate.
func newSchedule(ratePerS, warmUpS, loadS float64, profile [][2]float64) schedule {
	made := schedule{
		ratePerS: ratePerS, warmUpS: warmUpS, loadS: loadS,
		warmUp: int64(math.Ceil(warmUpS * ratePerS)), all: int64(math.Ceil((warmUpS + loadS) * ratePerS)),
	}
	if len(profile) == 0 {
		made.spans = []span{{periodNs: periodNs(ratePerS)}}
		return made
	}
	begin, due := int64(0), 0.0
	for k, each := range profile {
		rate := ratePerS * each[1]
		made.spans = append(made.spans, span{beginNs: begin, before: due, periodNs: periodNs(rate)})
		begin += int64(each[0])
		// The product is rounded before it is added, as in every other language: no fused multiply-add.
		due += float64(rate * (each[0] / 1e9))
		if k == 0 {
			made.warmUp = int64(math.Ceil(due))
		}
	}
	made.all = int64(math.Ceil(due))
	return made
}

func periodNs(ratePerS float64) float64 {
	if ratePerS == 0 {
		return 0
	}
	return 1e9 / ratePerS
}

func (s *schedule) warmUpCount() int64 { return s.warmUp }
func (s *schedule) total() int64       { return s.all }
func (s *schedule) loadNs() int64      { return s.t0Ns + int64(s.warmUpS*1e9) }
func (s *schedule) endNs() int64       { return s.t0Ns + int64((s.warmUpS+s.loadS)*1e9) }

func (s *schedule) dueNs(i int64) int64 {
	for s.at+1 < len(s.spans) && s.spans[s.at+1].before <= float64(i) {
		s.at++
	}
	for s.spans[s.at].before > float64(i) {
		s.at--
	}
	in := &s.spans[s.at]
	return s.t0Ns + in.beginNs + int64((float64(i)-in.before)*in.periodNs)
}

// dueCount is how many messages are due: all i with dueNs(i) <= now, at most total.
func (s *schedule) dueCount(nowNs int64) int64 {
	if nowNs < s.t0Ns {
		return 0
	}
	elapsed, at := nowNs-s.t0Ns, s.at
	for at+1 < len(s.spans) && s.spans[at+1].beginNs <= elapsed {
		at++
	}
	for s.spans[at].beginNs > elapsed {
		at--
	}
	in := &s.spans[at]
	reached := in.before
	if in.periodNs > 0 {
		reached += float64(elapsed-in.beginNs) / in.periodNs
	}
	count := least(int64(reached)+1, s.total())
	for count < s.total() && s.dueNs(count) <= nowNs { // float rounding at the edge
		count++
	}
	for count > 0 && s.dueNs(count-1) > nowNs {
		count--
	}
	return count
}

// lateness is how late the generator itself would be had the client never blocked and nothing been frozen: a
// queue with one server (Lindley's recursion), where own work adds to it and messages sent are worth the time in
// which they became due. After the client blocked for seconds the backlog is sent faster than it became due, so the
// lateness of those messages is not charged to the generator; one that is too slow falls behind for ever.
type lateness struct {
	lock   sync.Mutex
	lateNs float64
	maxNs  float64
}

// worked: own time without blocked and frozen time went into messages that became due in worthNs.
func (l *lateness) worked(ownNs, worthNs int64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.maxNs = math.Max(l.maxNs, l.lateNs)
	l.lateNs = math.Max(0, l.lateNs+float64(ownNs-worthNs))
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
