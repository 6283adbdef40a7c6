package kit

import (
	"sync"
	"sync/atomic"
)

const (
	// Attempts of a message, the first one included.
	mostAttempts = 10
	// Between an outcome and the next attempt.
	resendPauseNs = 500_000_000
)

// pendingResend is a message whose last attempt failed.
type pendingResend struct {
	before *Message
	dueNs  int64
}

// resendQueue: `results: resent`. The application sends what failed again, after a pause, with the same lane, seq and
// the next attempt. In the order of the failures; nothing else is reordered.
type resendQueue struct {
	on    bool
	lock  sync.Mutex
	owed  []pendingResend
	count atomic.Int64
}

// failed is called on any goroutine, before the outcome is counted: who sees nothing open sees what is owed.
func (r *resendQueue) failed(message *Message) {
	if !r.on || message.header.Attempt+1 >= mostAttempts {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.owed = append(r.owed, pendingResend{message, NowNs() + resendPauseNs})
}

func (r *resendQueue) left() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return len(r.owed)
}

// takeDue takes the next messages whose pause is over, at most so many.
func (r *resendQueue) takeDue(most int) []*Message {
	r.lock.Lock()
	defer r.lock.Unlock()
	var due []*Message
	for now := NowNs(); len(due) < most && len(r.owed) > 0 && r.owed[0].dueNs <= now; r.owed = r.owed[1:] {
		due = append(due, r.owed[0].before)
	}
	return due
}

// resendRest goes on after the schedule, until the harness drains and nothing is owed any more.
func (s *sender) resendRest() error {
	control := s.session.Control
	for !control.Over() && (!control.draining.Load() || s.open() > 0 || s.resends.left() > 0) {
		if err := s.resendDue(); err != nil {
			return err
		}
		sleepNs(slackNs)
	}
	return nil
}

// resendDue sends again what failed long enough ago; at most what was owed when it began.
func (s *sender) resendDue() error {
	for left := s.resends.left(); left > 0 && !s.session.Control.Over(); {
		due := s.resends.takeDue(least(s.loop.client.CallSize(), left))
		if len(due) == 0 {
			return nil
		}
		left -= len(due)
		messages := make([]*Message, 0, len(due))
		var failed error
		for _, before := range due {
			header := before.header
			header.Attempt++
			message, err := s.written(before.Lane, header, NowNs())
			if err != nil {
				failed = err
				break
			}
			messages = append(messages, message)
		}
		s.resends.count.Add(int64(len(messages)))
		s.call(messages)
		if failed != nil {
			return failed
		}
	}
	return nil
}
