//! Messages on their way through the client, what the answers to them add to, and what the application sends again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::Mutex;

use crate::clock::now_ns;
use crate::layout::Outcome;
use crate::payload::Header;
use crate::process::Session;
use crate::schedule::Lateness;
use crate::segments::{Completion, Row};
use crate::spec::Lane;

/// A call longer than this was blocked by the client, not just busy.
const BLOCKED_NS: i64 = 5_000_000;
/// Attempts of a message, the first one included.
const MOST_ATTEMPTS: u16 = 10;
/// Between an outcome and the next attempt.
const PAUSE_NS: i64 = 500_000_000;

/// What a client library adds to the open loop.
pub trait Client: Sync {
    /// Call the client once with a message, whose row is written. Whoever the client answers, on any thread, gives the
    /// message back: `stored`, `failed`, `refused`; never one that it does not answer. Several threads may call.
    fn send(&self, message: Box<Message>, payload: &[u8]);

    /// Nothing is open any more.
    fn close(&self) {}
}

/// A message of the schedule. Its row is open from the moment the client is called until it is given back to `stored`
/// or `failed`, on any thread.
pub struct Message {
    pub lane: &'static Lane,
    pub(crate) tally: &'static Tally,
    pub(crate) header: Header,
    pub(crate) row: Option<Row>,
    pub(crate) is_in_transaction: bool,
}

impl Message {
    /// Numbers of its sending thread, for what the client does to that.
    pub fn tally(&self) -> &'static Tally {
        self.tally
    }

    /// The client reported the message as stored. A position below 0: it did not say where.
    pub fn stored(self: Box<Self>, partition: i32, position: i64) {
        let done = Completion {
            done_ns: now_ns(),
            position: position.max(-1),
            stream: self.lane.stream(partition, &self.tally.session.names),
            error: 0,
            outcome: Some(Outcome::Ok),
        };
        if self.is_in_transaction {
            if let Some(row) = self.row {
                row.complete_send(&Completion { outcome: None, ..done });
            }
            self.tally.unanswered.fetch_sub(1, SeqCst);
        } else {
            self.complete(done, Outcome::Ok);
        }
    }

    /// The client reported an error: what it means, and its text, which begins with the name of its class.
    pub fn failed(self: Box<Self>, outcome: Outcome, text: &str) {
        let session = self.tally.session;
        session.report.error(text);
        if self.is_in_transaction {
            self.tally.refused.lock().expect("no panic").get_or_insert(text.to_string());
            self.tally.unanswered.fetch_sub(1, SeqCst);
            return;
        }
        self.complete_unstored(outcome, text);
    }

    /// The call itself said no, so the client did not take the message: it fails, whatever becomes of its transaction.
    pub fn refused(self: Box<Self>, text: &str) {
        let tally = self.tally;
        tally.session.report.error(text);
        if self.is_in_transaction {
            tally.unanswered.fetch_sub(1, SeqCst);
            tally.refusals.fetch_add(1, SeqCst);
        }
        self.complete_unstored(Outcome::Fail, text);
    }

    fn complete_unstored(self: Box<Self>, outcome: Outcome, text: &str) {
        let error = self.tally.session.names.id("error", text);
        let done = Completion { done_ns: now_ns(), position: -1, stream: 0, error, outcome: Some(outcome) };
        self.complete(done, outcome);
    }

    fn complete(self: Box<Self>, done: Completion, outcome: Outcome) {
        if let Some(row) = self.row {
            row.complete_send(&done);
        }
        let tally = self.tally;
        if outcome != Outcome::Ok {
            tally.resends.failed(self); // before it is counted: who sees nothing open sees what is owed
        }
        tally.count(outcome);
    }
}

/// What the answers to a sending thread's messages add to, and what others want to know of it.
pub struct Tally {
    /// Number of the sending thread.
    pub thread: usize,
    pub(crate) session: &'static Session,
    pub(crate) attempted: AtomicI64,
    pub(crate) ok: AtomicI64,
    pub(crate) fail: AtomicI64,
    pub(crate) info: AtomicI64,
    pub(crate) aborted: AtomicI64,
    pub(crate) late: Mutex<Lateness>,
    pub(crate) resends: Resends,
    /// Sends of the open transaction without an answer.
    pub(crate) unanswered: AtomicI64,
    /// Those that the call itself refused.
    pub(crate) refusals: AtomicI64,
    /// Why another one was not stored.
    pub(crate) refused: Mutex<Option<String>>,
    blocked_ns: AtomicI64,
    blocked_since_ns: AtomicI64,
}

impl Tally {
    pub(crate) fn new(session: &'static Session, thread: usize) -> Tally {
        Tally {
            thread,
            session,
            attempted: AtomicI64::default(),
            ok: AtomicI64::default(),
            fail: AtomicI64::default(),
            info: AtomicI64::default(),
            aborted: AtomicI64::default(),
            late: Mutex::default(),
            resends: Resends::new(session.spec.producer().results == "resent"),
            unanswered: AtomicI64::default(),
            refusals: AtomicI64::default(),
            refused: Mutex::default(),
            blocked_ns: AtomicI64::default(),
            blocked_since_ns: AtomicI64::default(),
        }
    }

    /// A call in which the client holds the sending thread; its time is the client's.
    pub fn blocking<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = now_ns();
        self.blocked_since_ns.store(begun, SeqCst);
        let answer = call();
        self.blocked_ns.fetch_add(now_ns() - begun, SeqCst);
        self.blocked_since_ns.store(0, SeqCst);
        answer
    }

    /// A call that seldom holds the sending thread. Its time is the client's when it took more than a few
    /// milliseconds, without what counts already.
    pub(crate) fn calling(&self, call: impl FnOnce()) {
        let (begun, counted) = (now_ns(), self.blocked_ns.load(SeqCst));
        call();
        let took = now_ns() - begun - (self.blocked_ns.load(SeqCst) - counted);
        if took > BLOCKED_NS {
            self.blocked_ns.fetch_add(took, SeqCst);
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since_ns.load(SeqCst) != 0
    }

    /// Time in calls that held the thread, the one it is in included.
    pub(crate) fn blocked_ns(&self) -> i64 {
        let since = self.blocked_since_ns.load(SeqCst);
        self.blocked_ns.load(SeqCst) + if since > 0 { now_ns() - since } else { 0 }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Ok => &self.ok,
            Outcome::Fail => &self.fail,
            Outcome::Info => &self.info,
            Outcome::Aborted => &self.aborted,
        };
        counter.fetch_add(1, SeqCst);
    }

    pub(crate) fn open(&self) -> i64 {
        let answered = [&self.ok, &self.fail, &self.info, &self.aborted].map(|counter| counter.load(SeqCst));
        (self.attempted.load(SeqCst) - answered.iter().sum::<i64>()).max(0)
    }
}

/// `results: resent`: the application sends what failed again, after a pause, with the same lane and sequence and the
/// next attempt. In the order of the failures; nothing else is reordered.
pub(crate) struct Resends {
    pub is_on: bool,
    pub count: AtomicI64,
    /// Messages whose last attempt failed, and when the next is due.
    owed: Mutex<VecDeque<(Box<Message>, i64)>>,
}

impl Resends {
    pub fn new(is_on: bool) -> Resends {
        Resends { is_on, count: AtomicI64::default(), owed: Mutex::default() }
    }

    /// On any thread.
    pub fn failed(&self, message: Box<Message>) {
        if self.is_on && message.header.attempt + 1 < MOST_ATTEMPTS {
            self.owed.lock().expect("no panic").push_back((message, now_ns() + PAUSE_NS));
        }
    }

    pub fn left(&self) -> usize {
        self.owed.lock().expect("no panic").len()
    }

    pub fn take_due(&self) -> Option<Box<Message>> {
        let mut owed = self.owed.lock().expect("no panic");
        let is_due = owed.front().is_some_and(|(_, due_ns)| *due_ns <= now_ns());
        if is_due {
            owed.pop_front().map(|(message, _)| message)
        } else {
            None
        }
    }
}
