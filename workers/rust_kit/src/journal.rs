//! The journal of one member of a consumer group, in the order in which the application saw things.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{json, Map, Value};

use crate::clock::now_ns;
use crate::failure::Failure;
use crate::layout::{Check, Event, Table};
use crate::payload::{check, is_probe};
use crate::process::Session;
use crate::segments::{Delivery, Segments};

/// A position in a partition of a topic: the next one to read; -1 = not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub topic: String,
    pub partition: i32,
    pub position: i64,
}

/// Clients may call from several threads; one row after the other is written all the same.
pub struct Journal {
    session: &'static Session,
    rows: Mutex<Rows>,
}

struct Rows {
    segments: Segments,
    epoch: u32,
    /// Without probes.
    delivered: i64,
    /// By topic and partition.
    partitions: HashMap<String, Vec<Partition>>,
    fails: Option<Failure>,
}

#[derive(Clone, Copy)]
struct Partition {
    stream: i32,
    /// Behind the last message that was handed over; -1 = none was.
    position: i64,
    /// Behind the last one that is done with, while no commit covers it; -1 = one does.
    uncommitted: i64,
}

impl Journal {
    /// Of the session in the spec; its numbers go into `stats`.
    pub fn new(session: &'static Session) -> &'static Journal {
        let (spec, part) = (&session.spec, session.spec.consumer());
        let mut segments = Segments::new(&spec.capture_dir, Table::Deliveries, part.session, spec.run_tag);
        segments.subscription = session.names.id("subscription", &part.group) as u32;
        let rows = Rows { segments, epoch: 0, delivered: 0, partitions: HashMap::new(), fails: None };
        let journal: &'static Journal = Box::leak(Box::new(Journal { session, rows: Mutex::new(rows) }));
        session.report.set_counts(|| journal.counts());
        journal
    }

    fn with<T>(&self, write: impl FnOnce(&mut Rows) -> T) -> T {
        write(&mut self.rows.lock().expect("no panic"))
    }

    fn counts(&self) -> Value {
        self.with(|rows| {
            let mut positions = Map::new();
            for (topic, partitions) in &rows.partitions {
                for (number, each) in partitions.iter().enumerate().filter(|(_, each)| each.position >= 0) {
                    positions.insert(format!("{topic}-{number}"), json!(each.position));
                }
            }
            json!({"delivered": rows.delivered, "epoch": rows.epoch, "positions": positions})
        })
    }

    /// # Errors
    /// The journal cannot go on (disk full).
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.with(|rows| rows.fails.take().map_or(Ok(()), Err))?;
        self.session.names.check()
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.with(|rows| rows.epoch)
    }

    /// The client handed a message over, whose position this is.
    pub fn delivered(&self, topic: &str, partition: i32, position: i64, value: &[u8]) {
        let found = check(value, self.session.spec.run_tag);
        self.with(|rows| {
            rows.write(self.session, topic, partition, position, Event::Deliver, value, found);
            if !is_probe(value, found) {
                rows.delivered += 1;
            }
            rows.partition(self.session, topic, partition).position = position + 1;
        });
    }

    /// The application is done with it, and the next commit covers it.
    pub fn processed(&self, topic: &str, partition: i32, position: i64) {
        self.with(|rows| rows.partition(self.session, topic, partition).uncommitted = position + 1);
    }

    /// The group gave these partitions; positions: those that it has committed. A new epoch begins.
    pub fn assigned(&self, places: &[Place]) {
        let epoch = self.with(|rows| {
            rows.epoch += 1;
            for each in places {
                rows.note(self.session, each, Event::Assign);
            }
            rows.epoch
        });
        self.session.report.event("assign", &format!("{} partitions", places.len()), json!({"epoch": epoch}));
    }

    /// These are for somebody else to read on, and what was not committed of them too.
    pub fn revoked(&self, places: &[Place]) {
        let epoch = self.with(|rows| {
            for each in places {
                let partition = rows.partition(self.session, &each.topic, each.partition);
                partition.uncommitted = -1;
                let position = partition.position;
                rows.note(self.session, &Place { position, ..each.clone() }, Event::Revoke);
            }
            rows.epoch
        });
        self.session.report.event("revoke", &format!("{} partitions", places.len()), json!({"epoch": epoch}));
    }

    /// What to commit now, with a row for each.
    pub(crate) fn take_uncommitted(&self) -> Vec<Place> {
        self.with(|rows| {
            let mut taken = Vec::new();
            for (topic, partitions) in &mut rows.partitions {
                for (number, each) in partitions.iter_mut().enumerate().filter(|(_, each)| each.uncommitted >= 0) {
                    let position = std::mem::replace(&mut each.uncommitted, -1);
                    taken.push(Place { topic: topic.clone(), partition: number as i32, position });
                }
            }
            for each in &taken {
                rows.note(self.session, each, Event::CommitCalled);
            }
            taken
        })
    }

    /// The client confirmed that the group has this position.
    pub fn committed(&self, place: &Place) {
        self.with(|rows| rows.note(self.session, place, Event::Commit));
    }
}

impl Rows {
    fn partition(&mut self, session: &Session, topic: &str, partition: i32) -> &mut Partition {
        let number = partition.max(0) as usize;
        if self.partitions.get(topic).map_or(0, Vec::len) <= number {
            let all = self.partitions.entry(topic.to_string()).or_default();
            while all.len() <= number {
                let stream = session.names.id("stream", &format!("{topic}-{}", all.len()));
                all.push(Partition { stream, position: -1, uncommitted: -1 });
            }
        }
        &mut self.partitions.get_mut(topic).expect("it was just made")[number]
    }

    fn note(&mut self, session: &Session, place: &Place, event: Event) {
        self.write(session, &place.topic, place.partition, place.position, event, &[], Check::Ok);
    }

    fn write(
        &mut self,
        session: &Session,
        topic: &str,
        partition: i32,
        position: i64,
        event: Event,
        value: &[u8],
        check: Check,
    ) {
        let stream = self.partition(session, topic, partition).stream;
        match self.segments.next() {
            Ok(row) => row.write_delivery(&Delivery {
                t_ns: now_ns(),
                position,
                stream,
                epoch: self.epoch,
                value,
                check,
                event,
            }),
            Err(failure) => {
                self.fails.get_or_insert(failure);
            }
        }
    }
}
