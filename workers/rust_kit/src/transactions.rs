//! Transactions of one sending thread, one after the other: their journal, and the sends of the one that is open. Every
//! intent is written before the client is called, and every answer after it.

use std::sync::atomic::Ordering::SeqCst;

use crate::clock::{now_ns, sleep_ns, NEVER_NS, SLACK_NS};
use crate::failure::Failure;
use crate::layout::{Outcome, ABORT_ASKED, COMMIT_ASKED};
use crate::message::Tally;
use crate::process::Session;
use crate::segments::{Row, Segments};
use crate::spec::TransactionsSpec;

pub const CAPACITY: u32 = 1024;
/// Until an end that may be asked for again is.
const AGAIN_NS: i64 = 100_000_000;
/// Of a row: the client began none.
const NOT_BEGUN: u32 = 2;

/// What an application does after an error, as the client's documentation has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    AskAgain,
    /// It was certainly not committed.
    AbortIt,
    GiveUp,
}

/// The calls that a transaction takes, of a client with a transactional id. An error is the text behind an error id and
/// what to do.
pub trait TransactionalClient: Sync {
    fn begin(&self) -> Result<(), (String, Reaction)>;
    fn commit(&self) -> Result<(), (String, Reaction)>;
    fn abort(&self) -> Result<(), (String, Reaction)>;
}

pub struct Transactions {
    client: &'static dyn TransactionalClient,
    tally: &'static Tally,
    session: &'static Session,
    segments: Segments,
    asked: TransactionsSpec,
    threads: u32,
    count: u32,
    open: Option<Open>,
}

struct Open {
    row: Row,
    number: u32,
    began_ns: i64,
    ends: u8,
    sends: Vec<Option<Row>>,
}

impl Transactions {
    pub fn new(
        client: &'static dyn TransactionalClient,
        tally: &'static Tally,
        session: &'static Session,
        threads: usize,
        segments: Segments,
        asked: TransactionsSpec,
    ) -> Transactions {
        Transactions { client, tally, session, segments, asked, threads: threads as u32, count: 0, open: None }
    }

    /// Begin one when none is open.
    pub fn begin(&mut self) -> Result<(), Failure> {
        if self.open.is_some() || self.session.report.has_died() {
            return Ok(());
        }
        let (row, began_ns, thread) = (self.segments.next()?, now_ns(), self.tally.thread as u32);
        let number = self.count * self.threads + thread + 1;
        self.count += 1;
        row.begin_transaction(number, thread, began_ns);
        self.tally.refusals.store(0, SeqCst);
        *self.tally.refused.lock().expect("no panic") = None;
        match self.client.begin() {
            Ok(()) => self.open = Some(Open { row, number, began_ns, ends: 0, sends: Vec::new() }),
            Err((text, _)) => row.end_transaction(now_ns(), self.error_id(&text), NOT_BEGUN),
        }
        Ok(())
    }

    /// A message is one of the open transaction: its number; 0 = none is open.
    pub fn offers(&mut self, row: Option<Row>) -> u32 {
        self.open.as_mut().map_or(0, |open| {
            open.sends.push(row);
            open.number
        })
    }

    /// When the open one is to end by time.
    pub fn end_ns(&self) -> i64 {
        match &self.open {
            Some(open) if self.asked.every_s > 0.0 => open.began_ns + (self.asked.every_s * 1e9) as i64,
            _ => NEVER_NS,
        }
    }

    /// By number or time.
    pub fn is_due(&self) -> bool {
        let is_full = |open: &Open| self.asked.messages > 0 && open.sends.len() >= self.asked.messages;
        self.open.as_ref().is_some_and(is_full) || now_ns() >= self.end_ns()
    }

    /// End the open one as the application wants it, and complete the rows of its sends, which get its outcome. Its
    /// time is the client's.
    pub fn end(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let tally = self.tally;
        let (outcome, text) = tally.blocking(|| self.outcome(&mut open));
        let error = if text.is_empty() { 0 } else { self.error_id(&text) };
        // What the client made the application abort was aborted, too.
        let of_row = if outcome == Outcome::Fail { Outcome::Aborted } else { outcome };
        open.row.end_transaction(now_ns(), error, of_row as u32);
        for row in open.sends.iter().flatten() {
            row.end_send(now_ns(), error, outcome);
        }
        for _ in tally.refusals.load(SeqCst)..open.sends.len() as i64 {
            tally.count(outcome);
        }
    }

    /// How it ended, and why not otherwise.
    fn outcome(&self, open: &mut Open) -> (Outcome, String) {
        if self.asked.abort_every > 0 && self.count as usize % self.asked.abort_every == 0 {
            // An abort of what was never stored would hide nothing.
            while self.tally.unanswered.load(SeqCst) > 0 && !self.session.control.is_over() {
                sleep_ns(SLACK_NS);
            }
            return match self.ask(open, ABORT_ASKED) {
                Ok(()) => (Outcome::Aborted, String::new()),
                Err((text, _)) => (Outcome::Info, text),
            };
        }
        let Err((text, reaction)) = self.ask(open, COMMIT_ASKED) else { return (Outcome::Ok, String::new()) };
        if reaction != Reaction::AbortIt || self.ask(open, ABORT_ASKED).is_err() {
            return (Outcome::Info, text);
        }
        (Outcome::Fail, self.tally.refused.lock().expect("no panic").clone().unwrap_or(text))
    }

    /// Ask for an end until the client answers, or nobody waits any more.
    fn ask(&self, open: &mut Open, what: u8) -> Result<(), (String, Reaction)> {
        open.ends |= what;
        open.row.ask_transaction(now_ns(), open.ends);
        loop {
            let answer = if what == COMMIT_ASKED { self.client.commit() } else { self.client.abort() };
            match answer {
                Err((text, Reaction::AskAgain)) if !self.session.control.is_over() => {
                    self.session.report.error(&text);
                    sleep_ns(AGAIN_NS);
                }
                answer => return answer,
            }
        }
    }

    fn error_id(&self, text: &str) -> i32 {
        self.session.report.error(text);
        self.session.names.id("error", text)
    }
}
