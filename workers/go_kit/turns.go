package kit

// turns say whose turn message i is: a round of lanes, over and over. A lane that has more turns in it has more
// messages; its sequence is dense from 0 all the same.
type turns struct {
	lanes    []*Lane
	perRound []int64 // messages that the lane of a turn has in a round
	before   []int64 // how many of them come before the turn
	share    float64 // of all messages, the part that these turns have
}

// newTurns has of order (indexes of every lane; none = each once) what belongs to one of the threads.
func newTurns(every []Lane, order []int, thread, threads int) turns {
	if len(order) == 0 {
		for k := range every {
			order = append(order, k)
		}
	}
	var made turns
	var own []int
	counts := make([]int64, len(every))
	for _, k := range order {
		if k%threads == thread {
			own = append(own, k)
			made.lanes = append(made.lanes, &every[k])
			made.before = append(made.before, counts[k])
			counts[k]++
		}
	}
	for _, k := range own {
		made.perRound = append(made.perRound, counts[k])
	}
	made.share = float64(len(own)) / float64(len(order))
	return made
}

// of message i: its lane, and its sequence number there.
func (t *turns) of(i int64) (*Lane, uint64) {
	count := int64(len(t.lanes))
	turn := i % count
	return t.lanes[turn], uint64(i/count*t.perRound[turn] + t.before[turn])
}
