//! When messages are due, whose turn they are, and how late their generator is (docs/worker-protocol.md).

/// A part of a schedule in which the rate stays the same.
struct Span {
    /// From the first message on.
    begin_ns: i64,
    /// Messages due until it begins, which is rarely a whole number.
    before: f64,
    /// 0 = none is due.
    period_ns: f64,
}

/// When message i is due, warm-up first, then load: with one rate at t0 + i * period, with a profile when the rate,
/// added up over time, has come to i. Rate 0 is no limit: everything is due at once, until the time is over.
pub struct Schedule {
    pub t0_ns: i64,
    pub rate_per_s: f64,
    pub warm_up: i64,
    pub total: i64,
    warm_up_ns: i64,
    all_ns: i64,
    spans: Vec<Span>,
    /// The span of the last message that was asked for; the next is mostly of the same.
    at: usize,
}

fn period_ns(rate_per_s: f64) -> f64 {
    if rate_per_s == 0.0 {
        0.0
    } else {
        1e9 / rate_per_s
    }
}

impl Schedule {
    /// `profile`: pairs of duration in ns and share of the rate, the warm-up first; empty = one rate.
    pub fn new(rate_per_s: f64, warm_up_s: f64, load_s: f64, profile: &[(f64, f64)]) -> Schedule {
        let mut made = Schedule {
            t0_ns: 0,
            rate_per_s,
            warm_up: (warm_up_s * rate_per_s).ceil() as i64,
            total: ((warm_up_s + load_s) * rate_per_s).ceil() as i64,
            warm_up_ns: (warm_up_s * 1e9) as i64,
            all_ns: ((warm_up_s + load_s) * 1e9) as i64,
            spans: Vec::new(),
            at: 0,
        };
        if profile.is_empty() {
            made.spans.push(Span { begin_ns: 0, before: 0.0, period_ns: period_ns(rate_per_s) });
            return made;
        }
        let (mut begin_ns, mut due) = (0, 0.0);
        for (k, (duration_ns, share)) in profile.iter().enumerate() {
            let rate = rate_per_s * share;
            made.spans.push(Span { begin_ns, before: due, period_ns: period_ns(rate) });
            begin_ns += *duration_ns as i64;
            due += rate * (duration_ns / 1e9);
            if k == 0 {
                made.warm_up = due.ceil() as i64;
            }
        }
        made.total = due.ceil() as i64;
        made
    }

    pub fn load_ns(&self) -> i64 {
        self.t0_ns + self.warm_up_ns
    }

    pub fn end_ns(&self) -> i64 {
        self.t0_ns + self.all_ns
    }

    pub fn due_ns(&mut self, i: i64) -> i64 {
        let wanted = i as f64;
        while self.at + 1 < self.spans.len() && self.spans[self.at + 1].before <= wanted {
            self.at += 1;
        }
        while self.spans[self.at].before > wanted {
            self.at -= 1;
        }
        let span = &self.spans[self.at];
        self.t0_ns + span.begin_ns + ((wanted - span.before) * span.period_ns) as i64
    }

    /// How many messages are due: all i with due_ns(i) <= now.
    pub fn due_count(&mut self, now_ns: i64) -> i64 {
        if now_ns < self.t0_ns {
            return 0;
        }
        let elapsed = now_ns - self.t0_ns;
        let span = self.spans.iter().rev().find(|span| span.begin_ns <= elapsed).expect("the first begins at 0");
        let mut reached = span.before;
        if span.period_ns > 0.0 {
            reached += (elapsed - span.begin_ns) as f64 / span.period_ns;
        }
        let mut count = (reached as i64 + 1).min(self.total);
        while count < self.total && self.due_ns(count) <= now_ns {
            count += 1; // float rounding at the edge
        }
        while count > 0 && self.due_ns(count - 1) > now_ns {
            count -= 1;
        }
        count
    }
}

/// Whose turn message i is, of the lanes of one thread: a round of lanes, over and over. A lane that has more turns in
/// it has more messages; its sequence is dense from 0 all the same.
pub struct Turns {
    /// Index of a lane.
    lanes: Vec<usize>,
    /// Messages that the lane of a turn has in a round.
    per_round: Vec<u64>,
    /// How many of them come before the turn.
    before: Vec<u64>,
    /// Of all messages, the part that these turns have.
    pub share: f64,
}

impl Turns {
    /// `order`: indexes of lanes; empty = each of `count` once.
    pub fn new(count: usize, order: &[usize], thread: usize, threads: usize) -> Turns {
        let each: Vec<usize> = (0..count).collect();
        let order = if order.is_empty() { &each[..] } else { order };
        let lanes: Vec<usize> = order.iter().copied().filter(|lane| lane % threads == thread).collect();
        let mut counts = vec![0; count];
        let mut before = Vec::new();
        for lane in &lanes {
            before.push(counts[*lane]);
            counts[*lane] += 1;
        }
        let per_round = lanes.iter().map(|lane| counts[*lane]).collect();
        let share = lanes.len() as f64 / order.len() as f64;
        Turns { lanes, per_round, before, share }
    }

    /// Index of the lane of message i, and its sequence number there.
    pub fn of(&self, i: i64) -> (usize, u64) {
        let (round, turn) = (i as u64 / self.lanes.len() as u64, i as usize % self.lanes.len());
        (self.lanes[turn], round * self.per_round[turn] + self.before[turn])
    }
}

/// How late the generator itself would be had the client never blocked and nothing been frozen: a queue with one
/// server (Lindley's recursion), where own work adds to it and messages sent are worth the time in which they became
/// due. What is sent late because the client blocked is not charged to it; a generator that is too slow falls behind
/// for ever.
#[derive(Default)]
pub struct Lateness {
    late_ns: i64,
    max_ns: i64,
}

impl Lateness {
    /// Own time, without blocked and frozen time, went into messages that became due in `worth_ns`.
    pub fn worked(&mut self, own_ns: i64, worth_ns: i64) {
        self.max_ns = self.max_ns.max(self.late_ns);
        self.late_ns = (self.late_ns + own_ns - worth_ns).max(0);
    }

    /// Nothing was due, and the sleep until the next message ended this much too late.
    pub fn caught_up(&mut self, overslept_ns: i64) {
        self.late_ns = overslept_ns.max(0);
    }

    /// The largest since the last call.
    pub fn take_max_ns(&mut self) -> i64 {
        let largest = self.max_ns.max(self.late_ns);
        self.max_ns = 0;
        largest
    }
}
