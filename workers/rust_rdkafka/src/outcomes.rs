//! What errors of rdkafka mean: the outcome of a send, the death of a client, a refusal by the brokers.
//!
//! An error of `send` itself means that the message was never taken: fail. A delivery report is judged by its code: the
//! crate does not show rd_kafka_message_status, which knows more (not, possibly, persisted). With `retries` 0 a refused
//! attempt is the last one, and the retries that do not count (after a refresh of metadata) follow refusals only.
//!
//! Sources: librdkafka, INTRODUCTION.md, "Message persistence status" and "Message timeout considerations";
//! rd_kafka_handle_Produce_error and rd_kafka_err_action in rdkafka_request.c (what is permanent, what is retried). Its
//! own codes are below 0, the broker's are those of the protocol.

use std::collections::BTreeMap;

use kit::kafka::outcome_of;
use kit::Outcome;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::kit;

/// The table for one producer's options.
pub struct Outcomes {
    retries: bool,
}

impl Outcomes {
    pub fn new(options: &BTreeMap<String, String>) -> Outcomes {
        let asked = options.get("retries").or_else(|| options.get("message.send.max.retries"));
        Outcomes { retries: asked.map_or(true, |count| count != "0") }
    }

    /// Of a send that ended with a delivery report.
    pub fn reported(&self, code: RDKafkaErrorCode) -> Outcome {
        if code == RDKafkaErrorCode::InvalidMessageSize {
            return Outcome::Fail;
        }
        outcome_of(code as i32, self.retries)
    }
}

pub fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)
}

/// The text behind an error id: name and sentence.
pub fn text_of(code: RDKafkaErrorCode) -> String {
    let shown = code.to_string(); // MessageTimedOut (Local: Message timed out)
    let (own, sentence) = shown.split_once(" (").unwrap_or((&shown, ")"));
    let name = if code == RDKafkaErrorCode::QueueFull { "_QUEUE_FULL" } else { own }; // as every worker calls it
    format!("{name}: {}", sentence.strip_suffix(')').unwrap_or(sentence))
}

/// Why a fatal error is one: the client takes nothing from then on (INTRODUCTION.md, "Fatal errors").
pub fn why_dead(code: RDKafkaErrorCode, text: &str) -> &'static str {
    match code {
        RDKafkaErrorCode::GaplessGuarantee => "asked",
        _ if text.to_lowercase().contains("fenced") => "fenced",
        _ => "error",
    }
}

/// A broker, or the client by the broker's certificate, said no: trying again is of no use. A handshake that breaks off
/// is an error of SSL, too, and says nothing of the kind.
pub fn is_refusal(code: RDKafkaErrorCode, reason: &str) -> bool {
    match code {
        RDKafkaErrorCode::SSL => ["certificate", "alert"].iter().any(|word| reason.contains(word)),
        code => code == RDKafkaErrorCode::Authentication,
    }
}
