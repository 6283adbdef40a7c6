//! Transactions: each sending thread has a client and a transactional id of its own.

use std::time::Duration;

use kit::{now_ns, sleep_ns, Failure, Reaction, Session, TransactionalClient};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::Producer;

use crate::client::Sending;
use crate::kit;

/// A call for the coordinator; it is made again until it is answered.
const TURN: Duration = Duration::from_secs(2);
const INIT_WITHIN_NS: i64 = 60_000_000_000;
const AGAIN_NS: i64 = 100_000_000;

pub struct Transacting(&'static Sending);

impl Transacting {
    /// Of a client whose id the coordinator knows now.
    pub fn begun(
        session: &Session,
        client: &'static Sending,
        id: &str,
    ) -> Result<&'static dyn TransactionalClient, Failure> {
        let give_up_ns = now_ns() + INIT_WITHIN_NS;
        let made: &'static Transacting = Box::leak(Box::new(Transacting(client)));
        while let Err((text, reaction)) = made.told(client.init_transactions(TURN)) {
            client.client().context().check()?;
            if reaction != Reaction::AskAgain || session.control.is_over() || now_ns() > give_up_ns {
                return Err(Failure::new(format!("init_transactions of {id}: {text}"), ""));
            }
            sleep_ns(AGAIN_NS);
        }
        Ok(made)
    }

    /// What an application does about an answer: librdkafka's documentation of rd_kafka_commit_transaction.
    fn told(&self, answer: KafkaResult<()>) -> Result<(), (String, Reaction)> {
        let error = match answer {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error {
            KafkaError::Transaction(own) => {
                let text = format!("{:?}: {}", own.code(), own.string());
                if own.is_fatal() {
                    self.0.client().context().note_death(Some((own.code(), own.string())));
                    return Err((text, Reaction::GiveUp));
                }
                let reaction = match (own.is_retriable(), own.txn_requires_abort()) {
                    (true, _) => Reaction::AskAgain,
                    (_, true) => Reaction::AbortIt,
                    _ => Reaction::GiveUp,
                };
                Err((text, reaction))
            }
            // What was sent has no answer yet; the crate waits for that before it asks for the commit.
            KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut) => Err((error.to_string(), Reaction::AskAgain)),
            other => Err((other.to_string(), Reaction::GiveUp)),
        }
    }
}

impl TransactionalClient for Transacting {
    fn begin(&self) -> Result<(), (String, Reaction)> {
        self.told(self.0.begin_transaction())
    }

    fn commit(&self) -> Result<(), (String, Reaction)> {
        self.told(self.0.commit_transaction(TURN))
    }

    fn abort(&self) -> Result<(), (String, Reaction)> {
        self.told(self.0.abort_transaction(TURN))
    }
}
