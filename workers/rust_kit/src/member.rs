//! The life of one member of a consumer group.

use std::sync::mpsc;
use std::time::Duration;

use crate::clock::{now_ns, sleep_ns, SLACK_NS};
use crate::failure::Failure;
use crate::journal::{Journal, Place};
use crate::process::Session;
use crate::threads;

const ASSIGN_WITHIN_NS: i64 = 25_000_000_000;
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

/// What a client library adds to the journal. One thread calls it.
pub trait Member: Send {
    /// Hand over what comes next, at most one message, and write it into the journal; returns after a moment if none
    /// does.
    ///
    /// # Errors
    /// The brokers refuse the client for good.
    fn take(&mut self) -> Result<(), Failure>;

    /// Commit these positions, and journal what the client confirms; `waits`: until the answer is here.
    fn commit(&mut self, positions: Vec<Place>, waits: bool);

    /// Leave the group.
    fn close(self: Box<Self>);
}

/// Say `ready` with the first assignment, let the member read and commit until the harness says `stop`, and commit once
/// more before the group is left.
pub fn run_member(
    session: &'static Session,
    journal: &'static Journal,
    mut member: Box<dyn Member>,
) -> Result<(), Failure> {
    let (control, report, part) = (session.control, session.report, session.spec.consumer());
    let give_up_ns = now_ns() + ASSIGN_WITHIN_NS;
    while journal.epoch() == 0 && !control.is_over() {
        member.take()?;
        if now_ns() > give_up_ns {
            let text = format!("group {}: no assignment from {} in 25 s", part.group, session.spec.bootstrap);
            return Err(Failure::new(text, ""));
        }
    }
    session.ready();
    let every_ns = (part.commit_every_s * 1e9) as i64;
    let mut next_ns = now_ns() + every_ns;
    while !control.is_over() {
        journal.check()?;
        if report.has_died() {
            sleep_ns(SLACK_NS);
            continue;
        }
        member.take()?;
        if now_ns() >= next_ns {
            commit(journal, member.as_mut(), false);
            next_ns = now_ns() + every_ns;
        }
    }
    commit(journal, member.as_mut(), true);
    let (tell, left) = mpsc::channel();
    threads::begin("leaving", move || {
        member.close();
        let _ = tell.send(());
    });
    let _ = left.recv_timeout(LEAVE_WITHIN); // it may hang; the process ends all the same
    journal.check()
}

fn commit(journal: &Journal, member: &mut dyn Member, waits: bool) {
    let positions = journal.take_uncommitted();
    if !positions.is_empty() {
        member.commit(positions, waits);
    }
}
