package kit

import (
	"context"
	"time"
)

const (
	assignWithin = 25 * time.Second
	leaveWithin  = 4 * time.Second
	readAgain    = 200 * time.Millisecond
)

// Member of a consumer group: what a client library adds to the journal.
type Member interface {
	// Read hands messages over, and writes them into the journal, until the context is done. It is called again
	// when it returns before that, unless the client died (Reporter.ClientDied); its error is reported.
	Read(context.Context) error
	// Commit what was processed, and journal what the client confirms. Called regularly, by one goroutine.
	Commit()
	// Close the client; Read has returned.
	Close()
}

// RunMember says `ready` with the first assignment, lets the member read and commit until the harness says `stop`, and
// commits once more before the group is left. errorText makes the text behind an error id.
func RunMember(session *Session, journal *Journal, member Member, errorText func(error) string) error {
	leave, cancel := context.WithCancel(context.Background())
	left := make(chan struct{})
	go func() {
		defer close(left)
		for leave.Err() == nil && !session.Report.Died() {
			if err := member.Read(leave); err != nil && leave.Err() == nil {
				session.Report.Error(errorText(err))
				time.Sleep(readAgain)
			}
		}
	}()
	defer cancel()
	if err := awaitAssignment(session, journal); err != nil {
		return err
	}
	session.Ready()
	every := time.Duration(session.Spec.Consumer.CommitEveryS * float64(time.Second))
	for next := time.Now().Add(every); !session.Control.Over() && journal.Err() == nil; {
		if time.Now().After(next) && !session.Report.Died() {
			member.Commit()
			next = time.Now().Add(every)
		}
		sleepNs(slackNs)
	}
	member.Commit()
	cancel()
	select {
	case <-left:
		member.Close()
	case <-time.After(leaveWithin): // it hangs in leaving; the process ends all the same
	}
	return journal.Err()
}

func awaitAssignment(session *Session, journal *Journal) error {
	for giveUp := time.Now().Add(assignWithin); journal.Assignments() == 0; time.Sleep(10 * time.Millisecond) {
		if session.Control.Over() {
			return nil
		}
		if time.Now().After(giveUp) {
			spec := session.Spec
			return Failuref("", "group %s: no assignment from %s within %s", spec.Consumer.Group, spec.Bootstrap, assignWithin)
		}
	}
	return nil
}
