//! One producer instance but for the client: its life and its numbers. The client is never helped: nothing is sent
//! twice (unless the application does that), nothing is reordered, every result is written down.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};
use std::sync::{mpsc, Arc};

use serde_json::{json, Value};

use crate::clock::{now_ns, sleep_ns, NEVER_NS, SLACK_NS};
use crate::failure::Failure;
use crate::layout::{Table, MIN_PAYLOAD_BYTES};
use crate::message::{Client, Tally};
use crate::payload::Sizes;
use crate::process::Session;
use crate::segments::Segments;
use crate::sender::Sender;
use crate::spec::{lanes_of, Lane};
use crate::threads;
use crate::transactions::{self, TransactionalClient, Transactions};

/// How long calls under way are waited for when the capture cannot go on.
const SETTLE_NS: i64 = 10_000_000_000;
/// How long the sending threads may take to notice that they shall end, and the client to close.
const END_NS: i64 = 2_000_000_000;

pub struct OpenLoop {
    session: &'static Session,
    /// The lanes of this producer.
    pub lanes: Vec<Lane>,
    sizes: Sizes,
    threads: usize,
}

impl OpenLoop {
    pub fn new(session: &'static Session) -> Result<&'static OpenLoop, Failure> {
        let (part, lanes) = (session.spec.producer(), lanes_of(&session.spec)?);
        let (least, most) = (part.payload_bytes, part.payload_max_bytes.max(part.payload_bytes));
        if least < MIN_PAYLOAD_BYTES {
            let text = format!("payload of {least}..{most} bytes: at least {MIN_PAYLOAD_BYTES} are needed");
            return Err(Failure::new(text, ""));
        }
        let sizes = Sizes::new(least, most, part.instance, part.payload_sizes.clone(), part.payload_compressible);
        let threads = part.threads.clamp(1, lanes.len());
        Ok(Box::leak(Box::new(OpenLoop { session, lanes, sizes, threads })))
    }

    /// Transactional ids of the clients that it needs, one a sending thread; none without transactions.
    pub fn transactional_ids(&self) -> Vec<String> {
        let asked = self.session.spec.producer().transactions.as_ref();
        asked.map_or(Vec::new(), |asked| (0..self.threads).map(|j| format!("{}-{j}", asked.id)).collect())
    }

    /// Say `ready`, follow the schedule and the harness; returns when every row it will ever complete is complete. The
    /// client may block the sending threads for ever; this one goes on. `transactional`: a client for each thread, if
    /// there are transactions.
    pub fn run(
        &'static self,
        client: &'static dyn Client,
        transactional: &[&'static dyn TransactionalClient],
    ) -> Result<(), Failure> {
        let control = self.session.control;
        let senders = self.senders(client, transactional);
        let tallies: Vec<&'static Tally> = senders.iter().map(|sender| sender.tally).collect();
        let counted = tallies.clone();
        self.session.report.set_counts(move || counts(&counted));
        self.session.ready();
        control.await_start();
        let (tell, ended) = mpsc::channel();
        for (j, sender) in senders.into_iter().enumerate() {
            let tell = tell.clone();
            threads::begin(&format!("sender-{j}"), move || drop(tell.send(sender.load())));
        }
        if let Err(failure) = self.await_load(&ended, &tallies) {
            self.settle(&tallies, now_ns() + SETTLE_NS);
            return Err(failure);
        }
        while !control.is_draining() {
            sleep_ns(SLACK_NS);
        }
        self.settle(&tallies, NEVER_NS);
        self.session.names.check()?;
        if open(&tallies) == 0 {
            close(client);
        }
        Ok(())
    }

    fn senders(&'static self, client: &'static dyn Client, own: &[&'static dyn TransactionalClient]) -> Vec<Sender> {
        let (spec, part) = (&self.session.spec, self.session.spec.producer());
        let (files, of_transactions) = (Arc::new(AtomicU32::default()), Arc::new(AtomicU32::default()));
        let made = |j: usize| {
            let mut rows = Segments::new(&spec.capture_dir, Table::Sends, part.instance, spec.run_tag);
            rows.files = Arc::clone(&files);
            let mut sender = Sender::new(self.session, &self.lanes, &self.sizes, client, j, self.threads, rows);
            if let (Some(asked), Some(calls)) = (&part.transactions, own.get(j)) {
                let mut rows = Segments::new(&spec.capture_dir, Table::Transactions, part.instance, spec.run_tag);
                (rows.files, rows.capacity) = (Arc::clone(&of_transactions), transactions::CAPACITY);
                let tally = sender.tally;
                let made = Transactions::new(*calls, tally, self.session, self.threads, rows, asked.clone());
                sender.transactions = Some(made);
            }
            sender
        };
        (0..self.threads).map(made).collect()
    }

    /// The sending threads: to their end, to the first that failed, or until the harness will not wait for a call that
    /// the client holds.
    fn await_load(
        &self,
        ended: &mpsc::Receiver<Result<(), Failure>>,
        tallies: &[&'static Tally],
    ) -> Result<(), Failure> {
        let (mut left, mut give_up_ns) = (tallies.len(), NEVER_NS);
        while left > 0 && now_ns() < give_up_ns {
            match ended.try_recv() {
                Ok(result) => {
                    result?;
                    left -= 1;
                }
                Err(_) => sleep_ns(SLACK_NS),
            }
            if self.session.control.is_over() {
                // They end by themselves within moments unless they are in a call; a row written now would not be
                // counted.
                let in_calls = tallies.iter().filter(|tally| tally.is_blocked()).count();
                give_up_ns = give_up_ns.min(now_ns() + END_NS);
                if in_calls >= left {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Wait for every open call, until the deadline or `stop`.
    fn settle(&self, tallies: &[&'static Tally], deadline_ns: i64) {
        while open(tallies) > 0 && !self.session.control.is_over() && now_ns() < deadline_ns {
            sleep_ns(SLACK_NS);
        }
    }
}

fn close(client: &'static dyn Client) {
    let (tell, closed) = mpsc::channel();
    threads::begin("closing", move || {
        client.close();
        let _ = tell.send(());
    });
    let _ = closed.recv_timeout(std::time::Duration::from_nanos(END_NS as u64));
}

fn open(tallies: &[&'static Tally]) -> i64 {
    tallies.iter().map(|tally| tally.open()).sum()
}

/// Of the stats line.
fn counts(tallies: &[&'static Tally]) -> Value {
    let sum = |of: fn(&Tally) -> &AtomicI64| tallies.iter().map(|tally| of(tally).load(SeqCst)).sum::<i64>();
    let late = tallies.iter().map(|tally| tally.late.lock().expect("no panic").take_max_ns()).max();
    let mut fields = json!({
        "attempted": sum(|tally| &tally.attempted),
        "ok": sum(|tally| &tally.ok),
        "fail": sum(|tally| &tally.fail),
        "info": sum(|tally| &tally.info),
        "aborted": sum(|tally| &tally.aborted),
        "open": open(tallies),
        "blocked_ns": tallies.iter().map(|tally| tally.blocked_ns()).sum::<i64>(),
        "late_max_ns": late.unwrap_or(0),
    });
    if tallies.iter().any(|tally| tally.resends.is_on) {
        fields["resent"] = json!(sum(|tally| &tally.resends.count));
    }
    fields
}
