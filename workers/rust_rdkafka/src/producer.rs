//! Producer: `ThreadedProducer`, whose own thread hands over the delivery reports.

use std::time::Duration;

use kit::{now_ns, sleep_ns, Client, Failure, OpenLoop, Session, TransactionalClient};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use crate::client::{config, error_text, made, Events, Opaque, Sending};
use crate::kit;
use crate::outcomes::{code_of, text_of};
use crate::transactional::Transacting;

const METADATA_WITHIN_NS: i64 = 15_000_000_000;
const METADATA_TURN: Duration = Duration::from_secs(2);
/// Between two tries with a full queue.
const FULL_PAUSE_NS: i64 = 2_000_000;
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

impl ProducerContext for Events {
    type DeliveryOpaque = Opaque;

    fn delivery(&self, result: &DeliveryResult<'_>, message: Opaque) {
        match result {
            Ok(stored) => message.stored(stored.partition(), stored.offset()),
            Err((error, _)) => {
                let code = code_of(error);
                message.failed(self.outcomes.reported(code), &text_of(code));
            }
        }
    }
}

struct Producing {
    /// One, or with transactions one for each sending thread.
    clients: Vec<&'static Sending>,
    headers: Option<OwnedHeaders>,
    waits: bool,
    /// The identity of a message goes into a header of its own.
    has_template: bool,
    session: &'static Session,
}

pub fn produce(session: &'static Session) -> Result<(), Failure> {
    let part = session.spec.producer();
    let producer = OpenLoop::new(session)?;
    let ids = producer.transactional_ids();
    let mut clients = Vec::new();
    if ids.is_empty() {
        clients.push(connected(session, &[])?);
    }
    for id in &ids {
        clients.push(connected(session, &[("transactional.id", id)])?);
    }
    session.options_taken()?;
    let mut topics: Vec<&str> = producer.lanes.iter().map(|lane| lane.topic.as_str()).collect();
    topics.dedup();
    for topic in topics {
        knows(session, clients[0], topic)?;
    }
    let headers = part
        .headers
        .iter()
        .fold(OwnedHeaders::new(), |all, (name, value)| all.insert(Header { key: name, value: Some(value) }));
    let headers = if part.headers.is_empty() { None } else { Some(headers) };
    let mut transactional: Vec<&'static dyn TransactionalClient> = Vec::new();
    for (client, id) in clients.iter().zip(&ids) {
        transactional.push(Transacting::begun(session, client, id)?);
    }
    let (waits, has_template) = (part.when_full == "wait", part.payload_template.is_some());
    let made = Producing { clients, headers, waits, has_template, session };
    producer.run(Box::leak(Box::new(made)), &transactional)
}

/// A client for the whole life of the process: its own threads use it to the end.
fn connected(session: &'static Session, fixed: &[(&str, &str)]) -> Result<&'static Sending, Failure> {
    let events = Events::new(session, None);
    let client: Sending = made(ThreadedProducer::from_config_and_context(&config(session, fixed), events))?;
    let client: &'static Sending = Box::leak(Box::new(client));
    let _ = client.client().context().fatal.set(Box::new(|| client.client().fatal_error()));
    Ok(client)
}

/// Asked in short turns: between them the client may say why it gets none.
fn knows(session: &Session, client: &Sending, topic: &str) -> Result<(), Failure> {
    let give_up_ns = now_ns() + METADATA_WITHIN_NS;
    loop {
        let answer = client.client().fetch_metadata(Some(topic), METADATA_TURN);
        client.client().context().check()?;
        match answer {
            Ok(found) => {
                return match found.topics().first().and_then(|each| each.error()) {
                    None => Ok(()),
                    Some(code) => Err(Failure::new(format!("topic {topic}: {}", text_of(code.into())), "")),
                };
            }
            Err(error) if now_ns() > give_up_ns => {
                let (brokers, why) = (&session.spec.bootstrap, error_text(&error));
                return Err(Failure::new(format!("no metadata of topic {topic} from {brokers} in 15 s: {why}"), ""));
            }
            Err(_) => {}
        }
    }
}

impl Producing {
    /// `send` said no, so the client did not take the message; waits for room if its queue is full.
    fn refused(&self, client: &Sending, error: KafkaError, record: BaseRecord<'_, str, [u8], Opaque>) {
        let (mut code, mut record) = (code_of(&error), record);
        while code == RDKafkaErrorCode::QueueFull && self.waits && !self.session.control.stops_load() {
            sleep_ns(FULL_PAUSE_NS);
            match client.send(record) {
                Ok(()) => return,
                Err((again, left)) => (code, record) = (code_of(&again), left),
            }
        }
        if code == RDKafkaErrorCode::Fatal {
            client.client().context().note_fatal_error();
        }
        record.delivery_opaque.refused(&text_of(code));
    }
}

impl Client for Producing {
    fn send(&self, message: Opaque, payload: &[u8]) {
        let (lane, tally): (_, &'static kit::Tally) = (message.lane, message.tally());
        let client = self.clients[tally.thread % self.clients.len()];
        let (body, identity) = if self.has_template { kit::parted(payload) } else { (payload, Vec::new()) };
        let mut record: BaseRecord<'_, str, [u8], Opaque> =
            BaseRecord::with_opaque_to(&lane.topic, message).payload(body);
        record.partition = lane.partition;
        record.key = lane.key.as_deref();
        record.headers = self.headers.clone();
        if self.has_template {
            let identity = Header { key: kit::IDENTITY_HEADER, value: Some(&identity) };
            record.headers = Some(record.headers.unwrap_or_else(OwnedHeaders::new).insert(identity));
        }
        if let Err((error, record)) = client.send(record) {
            tally.blocking(|| self.refused(client, error, record));
        }
    }

    fn close(&self) {
        for client in &self.clients {
            let _ = client.flush(CLOSE_WITHIN);
        }
    }
}
