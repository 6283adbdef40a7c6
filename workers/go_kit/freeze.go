package kit

import "sync"

// A gap this long in which the process used next to no CPU is a freeze: above what a busy machine's scheduler
// does to a goroutine that sleeps tickNs, far below the pauses that faults make.
const (
	freezeNs = 250_000_000
	tickNs   = 50_000_000
)

// freezeDetector adds up the time in which this process did not run (SIGSTOP, a paused container). look is called
// by the ticker and by anyone who sees a long gap.
type freezeDetector struct {
	lock     sync.Mutex
	seenNs   int64
	cpu      int64
	totalNs  int64
	onFreeze func(frozenNs int64)
}

func newFreezeDetector(onFreeze func(int64)) *freezeDetector {
	return &freezeDetector{seenNs: NowNs(), cpu: cpuNs(), onFreeze: onFreeze}
}

func (f *freezeDetector) check() {
	if frozen := f.measure(); frozen > 0 {
		f.onFreeze(frozen)
	}
}

func (f *freezeDetector) measure() int64 {
	f.lock.Lock()
	defer f.lock.Unlock()
	now, cpu := NowNs(), cpuNs()
	gap, worked := now-f.seenNs, cpu-f.cpu
	f.seenNs, f.cpu = now, cpu
	if gap < freezeNs || worked > gap/4 {
		return 0
	}
	f.totalNs += gap - tickNs
	return gap - tickNs
}

func (f *freezeDetector) total() int64 {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.totalNs
}
