//! A member of a group: `BaseConsumer`, polled for one message after the other. Rebalances and answers to commits come
//! out of `poll`, too.
//!
//! Since 0.36.0 no answer to an asynchronous commit comes out of it (fede1024/rust-rdkafka#856): rd_kafka_commit is
//! given neither a queue nor a callback for one. So a thread asks for what the group has committed then, and what the
//! broker answers is what the journal calls confirmed.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use kit::{run_member, sleep_ns, Failure, Journal, Member, Place, Session};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaResult;
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::client::{config, error_text, made, Events};
use crate::kit;

const POLL: Duration = Duration::from_millis(50);
/// For the group's committed positions.
const COMMITTED_WITHIN: Duration = Duration::from_secs(2);
const ASKS: bool = cfg!(feature = "commits_untold");

pub fn consume(session: &'static Session) -> Result<(), Failure> {
    let part = session.spec.consumer();
    let settings = config(session, &[("group.id", part.group.as_str())]);
    let commits_itself = settings.get("enable.auto.commit").is_some_and(|word| word.to_lowercase() == "true");
    let journal = Journal::new(session);
    let consumer: BaseConsumer<Events> =
        made(BaseConsumer::from_config_and_context(&settings, Events::new(session, Some(journal))))?;
    session.options_taken()?;
    let topics: Vec<&str> = part.topics.iter().map(String::as_str).collect();
    made(consumer.subscribe(&topics))?;
    let consumer = Arc::new(consumer);
    let asking = if ASKS && !commits_itself { Some(Asking::begun(&consumer, session, journal)) } else { None };
    run_member(session, journal, Box::new(Reading { consumer, asking, session, journal, commits_itself }))
}

/// Asks what became of commits, one after the other.
struct Asking {
    commits: mpsc::Sender<Vec<Place>>,
    thread: thread::JoinHandle<()>,
}

impl Asking {
    fn begun(consumer: &Arc<BaseConsumer<Events>>, session: &'static Session, journal: &'static Journal) -> Asking {
        let (commits, made) = mpsc::channel::<Vec<Place>>();
        let consumer = Arc::clone(consumer);
        let ask = move || {
            for positions in made {
                match consumer.committed_offsets(offsets_of(&positions), COMMITTED_WITHIN) {
                    Ok(found) => {
                        let found = places(&found);
                        positions.iter().filter(|each| found.contains(each)).for_each(|each| journal.committed(each));
                    }
                    Err(error) => session.report.error(&error_text(&error)),
                }
            }
        };
        let thread = thread::Builder::new().name("asking".to_string()).spawn(ask).expect("the system has threads left");
        Asking { commits, thread }
    }

    fn end(self) {
        drop(self.commits);
        let _ = self.thread.join();
    }
}

struct Reading {
    consumer: Arc<BaseConsumer<Events>>,
    asking: Option<Asking>,
    session: &'static Session,
    journal: &'static Journal,
    commits_itself: bool,
}

impl Member for Reading {
    fn take(&mut self) -> Result<(), Failure> {
        match self.consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
                let headers = message.headers();
                let identity = headers.and_then(|all| all.iter().find(|each| each.key == kit::IDENTITY_HEADER));
                let value = kit::joined(message.payload().unwrap_or_default(), identity.and_then(|each| each.value));
                self.journal.delivered(topic, partition, offset, &value);
                sleep_ns((self.session.spec.consumer().work_s * 1e9) as i64);
                self.journal.processed(topic, partition, offset);
            }
            Some(Err(error)) => {
                self.session.report.error(&error_text(&error));
                self.consumer.context().note_death(self.consumer.client().fatal_error());
            }
        }
        self.consumer.context().check()
    }

    fn commit(&mut self, positions: Vec<Place>, waits: bool) {
        if self.commits_itself {
            return;
        }
        let mode = if waits { CommitMode::Sync } else { CommitMode::Async };
        match self.consumer.commit(&offsets_of(&positions), mode) {
            Ok(()) if waits => {
                // It is told once more while the consumer leaves.
                self.consumer.context().is_leaving.store(true, SeqCst);
                positions.iter().for_each(|each| self.journal.committed(each));
            }
            Ok(()) => {
                if let Some(asking) = &self.asking {
                    let _ = asking.commits.send(positions);
                }
            }
            Err(error) => self.session.report.error(&error_text(&error)),
        }
    }

    fn close(self: Box<Self>) {
        if let Some(asking) = self.asking {
            asking.end(); // it has the consumer, too
        }
        drop(self.consumer);
    }
}

fn offsets_of(positions: &[Place]) -> TopicPartitionList {
    let mut offsets = TopicPartitionList::new();
    for each in positions {
        let added = offsets.add_partition_offset(&each.topic, each.partition, Offset::Offset(each.position));
        added.expect("a position is an offset");
    }
    offsets
}

/// Positions of a list, -1 where it has none.
fn places(list: &TopicPartitionList) -> Vec<Place> {
    let place = |each: rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        let position = if let Offset::Offset(position) = each.offset() { position } else { -1 };
        Place { topic: each.topic().to_string(), partition: each.partition(), position }
    };
    list.elements().into_iter().map(place).collect()
}

impl Events {
    fn rebalances(&self, rebalance: &Rebalance<'_>, committed: impl Fn(&TopicPartitionList) -> Vec<Place>) {
        let Some(journal) = self.journal else { return };
        match rebalance {
            Rebalance::Assign(list) => journal.assigned(&committed(list)),
            Rebalance::Revoke(list) => journal.revoked(&places(list)),
            Rebalance::Error(error) => self.session.report.error(&format!("rebalance: {error}")),
        }
    }
}

impl ConsumerContext for Events {
    #[cfg(feature = "consumer_in_rebalance")]
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        self.rebalances(rebalance, |list| {
            let found = consumer.committed_offsets(list.clone(), COMMITTED_WITHIN);
            places(found.as_ref().unwrap_or(list))
        });
    }

    /// Older versions do not tell whom to ask for what is committed.
    #[cfg(not(feature = "consumer_in_rebalance"))]
    fn pre_rebalance(&self, rebalance: &Rebalance<'_>) {
        self.rebalances(rebalance, places);
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let Some(journal) = self.journal.filter(|_| !ASKS && !self.left()) else { return };
        for each in offsets.elements() {
            match (result.clone().and_then(|()| each.error()), each.offset()) {
                (Ok(()), Offset::Offset(position)) => {
                    let (topic, partition) = (each.topic().to_string(), each.partition());
                    journal.committed(&Place { topic, partition, position });
                }
                (Ok(()), _) => {}
                (Err(error), _) => self.session.report.error(&error_text(&error)),
            }
        }
    }
}
