//! One sending thread of a producer: its lanes, its part of the schedule, its rows, its numbers.

use std::sync::atomic::Ordering::SeqCst;

use crate::clock::{now_ns, sleep_ns, NEVER_NS, SLACK_NS};
use crate::failure::Failure;
use crate::layout::{LOAD, WARM_UP};
use crate::message::{Client, Message, Tally};
use crate::payload::{encode_body, Header, Sizes};
use crate::process::Session;
use crate::schedule::{Schedule, Turns};
use crate::segments::Segments;
use crate::spec::Lane;
use crate::template::Template;
use crate::transactions::Transactions;

/// Messages between two looks at commands.
const CHUNK: i64 = 500;
/// A span shorter than this cannot hold a freeze worth a look at the clocks.
const LONG_NS: i64 = 50_000_000;

pub struct Sender {
    pub(crate) tally: &'static Tally,
    pub(crate) session: &'static Session,
    pub(crate) schedule: Schedule,
    pub(crate) transactions: Option<Transactions>,
    lanes: &'static [Lane],
    sizes: &'static Sizes,
    /// None = payloads are filled.
    template: Option<Template>,
    captures: bool,
    client: &'static dyn Client,
    turns: Turns,
    segments: Segments,
    payload: Vec<u8>,
}

impl Sender {
    /// Has of the lanes every threads-th from `thread` on, and as much of the rate.
    pub fn new(
        session: &'static Session,
        lanes: &'static [Lane],
        sizes: &'static Sizes,
        client: &'static dyn Client,
        thread: usize,
        threads: usize,
        segments: Segments,
    ) -> Sender {
        let part = session.spec.producer();
        let turns = Turns::new(lanes.len(), &part.turns, thread, threads);
        let rate = part.rate_per_s * turns.share;
        Sender {
            tally: Box::leak(Box::new(Tally::new(session, thread))),
            session,
            schedule: Schedule::new(rate, part.warm_up_s, part.load_s, &part.rate_profile),
            transactions: None,
            lanes,
            sizes,
            template: part
                .payload_template
                .as_ref()
                .map(|text| Template::new(text, part.instance, part.payload_charset.as_deref().unwrap_or_default())),
            captures: part.capture,
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
            let (blocked, frozen) = (self.tally.blocked_ns(), report.frozen_ns());
            // The clock is read last here and first below: a freeze between two of these lines is not own work.
            let begun = now_ns();
            let (edge, kind) = if sent < warm_up { (warm_up, WARM_UP) } else { (total, LOAD) };
            let due = self.schedule.due_count(begun).min(edge);
            if due <= sent {
                let wake = self.schedule.due_ns(sent).min(self.transaction_end_ns()).max(begun + SLACK_NS);
                self.sleep_until(wake)?;
                self.end_transaction(false);
                let woke = now_ns();
                self.look_for_freeze(begun, woke);
                let own = woke - wake - (self.tally.blocked_ns() - blocked) - (report.frozen_ns() - frozen);
                self.tally.late.lock().expect("no panic").caught_up(own);
                continue;
            }
            let first = sent;
            sent = self.offer(first, due.min(first + CHUNK), kind)?;
            self.resend_due()?;
            let ended = now_ns();
            self.look_for_freeze(begun, ended);
            let own = ended - begun - (self.tally.blocked_ns() - blocked) - (report.frozen_ns() - frozen);
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
            let lane = &self.lanes[index];
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
        match &self.template {
            Some(template) => {
                let body =
                    template.body(lane.number, lane.key.as_deref().unwrap_or_default(), header.seq, header.attempt);
                encode_body(&header, &body, &mut self.payload);
            }
            None => self.sizes.encode(&header, &mut self.payload),
        }
        let row = if self.captures { Some(self.segments.next()?) } else { None };
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
    fn look_for_freeze(&self, since_ns: i64, now_ns: i64) {
        if now_ns - since_ns > LONG_NS {
            self.session.report.look_for_freeze();
        }
    }

    /// Send again what failed long enough ago; at most what was owed when it began.
    pub(crate) fn resend_due(&mut self) -> Result<(), Failure> {
        let resends = &self.tally.resends;
        for _ in 0..if resends.is_on { resends.left() } else { 0 } {
            if self.session.control.is_over() {
                break;
            }
            let Some(before) = resends.take_due() else { break };
            let mut header = before.header;
            header.attempt += 1;
            resends.count.fetch_add(1, SeqCst);
            self.send(before.lane, header, now_ns())?;
        }
        Ok(())
    }

    /// Go on after the schedule, until the harness drains and nothing is owed any more.
    pub(crate) fn resend_rest(&mut self) -> Result<(), Failure> {
        let (control, tally) = (self.session.control, self.tally);
        let is_done = || control.is_draining() && tally.open() == 0 && tally.resends.left() == 0;
        while tally.resends.is_on && !control.is_over() && !is_done() {
            self.resend_due()?;
            sleep_ns(SLACK_NS);
        }
        Ok(())
    }

    pub(crate) fn begin_transaction(&mut self) -> Result<(), Failure> {
        self.transactions.as_mut().map_or(Ok(()), Transactions::begin)
    }

    /// If it is due, or in any case.
    pub(crate) fn end_transaction(&mut self, in_any_case: bool) {
        if let Some(transactions) = self.transactions.as_mut().filter(|each| in_any_case || each.is_due()) {
            transactions.end();
        }
    }

    pub(crate) fn transaction_end_ns(&self) -> i64 {
        self.transactions.as_ref().map_or(NEVER_NS, Transactions::end_ns)
    }
}
