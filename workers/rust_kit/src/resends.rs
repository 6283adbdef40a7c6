//! `results: resent`: the application sends what failed again, after a pause, with the same lane and sequence and the
//! next attempt. In the order of the failures; nothing else is reordered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::Mutex;

use crate::clock::{now_ns, sleep_ns, SLACK_NS};
use crate::failure::Failure;
use crate::sender::{Message, Sender};

/// Attempts of a message, the first one included.
const MOST_ATTEMPTS: u16 = 10;
/// Between an outcome and the next attempt.
const PAUSE_NS: i64 = 500_000_000;

pub struct Resends {
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

    fn left(&self) -> usize {
        self.owed.lock().expect("no panic").len()
    }

    fn take_due(&self) -> Option<Box<Message>> {
        let mut owed = self.owed.lock().expect("no panic");
        let is_due = owed.front().is_some_and(|(_, due_ns)| *due_ns <= now_ns());
        if is_due {
            owed.pop_front().map(|(message, _)| message)
        } else {
            None
        }
    }
}

impl Sender {
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
}
