//! One sending thread of a producer: its lanes, its part of the schedule, its rows, its numbers.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::Mutex;

use crate::clock::{now_ns, sleep_ns, SLACK_NS};
use crate::failure::Failure;
use crate::layout::{Outcome, LOAD, WARM_UP};
use crate::open_loop::{Client, OpenLoop};
use crate::payload::Header;
use crate::process::Session;
use crate::resends::Resends;
use crate::schedule::{Lateness, Schedule, Turns};
use crate::segments::{Completion, Row, Segments};
use crate::spec::Lane;
use crate::transactions::Transactions;

/// Messages between two looks at commands.
const CHUNK: i64 = 500;
/// A span shorter than this cannot hold a freeze worth a look at the clocks.
const LONG_NS: i64 = 50_000_000;
/// A call longer than this was blocked by the client, not just busy.
const BLOCKED_NS: i64 = 5_000_000;

/// A message of the schedule. Its row is open from the moment the client is called until it is given back to `stored`
/// or `failed`, on any thread.
pub struct Message {
    pub lane: &'static Lane,
    pub(crate) tally: &'static Tally,
    pub(crate) header: Header,
    row: Option<Row>,
    is_in_transaction: bool,
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
    fn new(session: &'static Session, thread: usize) -> Tally {
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
    fn calling(&self, call: impl FnOnce()) {
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

pub struct Sender {
    pub(crate) tally: &'static Tally,
    pub(crate) session: &'static Session,
    pub(crate) schedule: Schedule,
    pub(crate) transactions: Option<Transactions>,
    producer: &'static OpenLoop,
    client: &'static dyn Client,
    turns: Turns,
    segments: Segments,
    payload: Vec<u8>,
}

impl Sender {
    /// Has of the loop's lanes every threads-th from `thread` on, and as much of the rate.
    pub fn new(
        producer: &'static OpenLoop,
        client: &'static dyn Client,
        thread: usize,
        threads: usize,
        segments: Segments,
    ) -> Sender {
        let session = producer.session;
        let part = session.spec.producer();
        let turns = Turns::new(producer.lanes.len(), &part.turns, thread, threads);
        let rate = part.rate_per_s * turns.share;
        Sender {
            tally: Box::leak(Box::new(Tally::new(session, thread))),
            session,
            schedule: Schedule::new(rate, part.warm_up_s, part.load_s, &part.rate_profile),
            transactions: None,
            producer,
            client,
            turns,
            segments,
            payload: Vec::new(),
        }
    }

    fn is_stopping(&self) -> bool {
        self.session.control.stops_load()
    }

    /// Follow the schedule.
    ///
    /// # Errors
    /// The capture cannot go on.
    pub fn load(mut self) -> Result<(), Failure> {
        self.schedule.t0_ns = self.session.control.t0_ns.load(SeqCst);
        let followed = if self.schedule.rate_per_s == 0.0 { self.load_unlimited() } else { self.load_at_rate() };
        self.end_transaction(true);
        followed?;
        self.resend_rest()
    }

    fn load_at_rate(&mut self) -> Result<(), Failure> {
        let (warm_up, total, report) = (self.schedule.warm_up, self.schedule.total, self.session.report);
        let mut sent = 0;
        while sent < total && !self.is_stopping() {
            let (begun, blocked, frozen) = (now_ns(), self.tally.blocked_ns(), report.frozen_ns());
            let (edge, kind) = if sent < warm_up { (warm_up, WARM_UP) } else { (total, LOAD) };
            let due = self.schedule.due_count(begun).min(edge);
            if due <= sent {
                let wake = self.schedule.due_ns(sent).min(self.transaction_end_ns()).max(begun + SLACK_NS);
                self.sleep_until(wake)?;
                self.end_transaction(false);
                self.look_for_freeze(begun);
                let own = now_ns() - wake - (self.tally.blocked_ns() - blocked) - (report.frozen_ns() - frozen);
                self.tally.late.lock().expect("no panic").caught_up(own);
                continue;
            }
            let first = sent;
            sent = self.offer(first, due.min(first + CHUNK), kind)?;
            self.resend_due()?;
            self.look_for_freeze(begun);
            let own = now_ns() - begun - (self.tally.blocked_ns() - blocked) - (report.frozen_ns() - frozen);
            let worth = self.schedule.due_ns(sent) - self.schedule.due_ns(first);
            self.tally.late.lock().expect("no panic").worked(own, worth);
        }
        Ok(())
    }

    fn load_unlimited(&mut self) -> Result<(), Failure> {
        let (load_ns, end_ns) = (self.schedule.load_ns(), self.schedule.end_ns());
        self.sleep_until(self.schedule.t0_ns)?;
        let mut sent = 0;
        while now_ns() < end_ns && !self.is_stopping() {
            let kind = if now_ns() < load_ns { WARM_UP } else { LOAD };
            sent = self.offer(sent, sent + 1, kind)?;
            self.resend_due()?;
        }
        Ok(())
    }

    /// Send messages first .. stop-1, a row before each; the next one.
    fn offer(&mut self, first: i64, stop: i64, kind: u8) -> Result<i64, Failure> {
        let part = self.session.spec.producer();
        for i in first..stop {
            if self.is_stopping() {
                return Ok(i);
            }
            self.begin_transaction()?;
            let (index, seq) = self.turns.of(i);
            let lane = &self.producer.lanes[index];
            let now = now_ns();
            let header = Header {
                run_tag: self.session.spec.run_tag,
                instance: part.instance,
                lane: lane.number,
                seq,
                due_ns: if part.rate_per_s > 0.0 { self.schedule.due_ns(i) } else { now },
                key: lane.key_number,
                attempt: 0,
                kind,
            };
            self.send(lane, header, now)?;
            self.end_transaction(false);
        }
        Ok(stop)
    }

    /// One message: its row, then the call.
    pub(crate) fn send(&mut self, lane: &'static Lane, header: Header, start_ns: i64) -> Result<(), Failure> {
        self.producer.sizes.encode(&header, &mut self.payload);
        let row = if self.producer.captures { Some(self.segments.next()?) } else { None };
        let transaction = self.transactions.as_mut().map_or(0, |open| open.offers(row));
        if let Some(row) = row {
            row.open_send(&header, start_ns, transaction);
        }
        self.tally.attempted.fetch_add(1, SeqCst);
        let message = Message { lane, tally: self.tally, header, row, is_in_transaction: transaction != 0 };
        if transaction != 0 {
            self.tally.unanswered.fetch_add(1, SeqCst);
        }
        let (client, payload) = (self.client, &self.payload);
        self.tally.calling(|| client.send(Box::new(message), payload));
        Ok(())
    }

    /// Until the next message is due; re-sends take their turn.
    fn sleep_until(&mut self, wake_ns: i64) -> Result<(), Failure> {
        let nap = if self.tally.resends.is_on { SLACK_NS } else { 100_000_000 };
        loop {
            let left = wake_ns - now_ns();
            if left <= 0 || self.is_stopping() {
                return Ok(());
            }
            self.resend_due()?;
            sleep_ns(left.min(nap));
        }
    }

    /// When something took long: the ticker may not have run yet.
    fn look_for_freeze(&self, since_ns: i64) {
        if now_ns() - since_ns > LONG_NS {
            self.session.report.look_for_freeze();
        }
    }
}
