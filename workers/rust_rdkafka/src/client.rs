//! What producers and consumers have in common: options, log, errors that concern the whole client.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kit::{Failure, Journal, Message, Session};
use rdkafka::client::OAuthToken;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::ThreadedProducer;
use rdkafka::{ClientContext, Statistics};
use serde_json::json;

use crate::kit;
use crate::outcomes::{code_of, is_refusal, text_of, why_dead, Outcomes};

/// Option of our own: an OAUTHBEARER token, which the client takes from a callback only, and how long it is told that
/// it holds.
const TOKEN: &str = "oauth_token";
const TOKEN_HOLDS: Duration = Duration::from_secs(3600);

/// A producer of the client; its events come to us.
pub type Sending = ThreadedProducer<Events>;

type Fatal = Box<dyn Fn() -> Option<(RDKafkaErrorCode, String)> + Send + Sync>;

/// Called by a client; one has one.
pub struct Events {
    pub session: &'static Session,
    pub outcomes: Outcomes,
    pub journal: Option<&'static Journal>,
    /// The consumer leaves: what was committed is known.
    pub is_leaving: AtomicBool,
    /// Asks a producer for its fatal error, once there is one.
    pub fatal: OnceLock<Fatal>,
    /// What the brokers refused before the worker was ready.
    refusal: Mutex<Option<String>>,
}

impl Events {
    pub fn new(session: &'static Session, journal: Option<&'static Journal>) -> Events {
        Events {
            session,
            outcomes: Outcomes::new(&session.options),
            journal,
            is_leaving: AtomicBool::new(false),
            fatal: OnceLock::new(),
            refusal: Mutex::default(),
        }
    }

    /// # Errors
    /// The brokers refused the client, which would try again for ever.
    pub fn check(&self) -> Result<(), Failure> {
        match self.refusal.lock().expect("no panic").take() {
            None => Ok(()),
            Some(text) => Err(Failure::new(text, "check tls and auth of the connection file")),
        }
    }

    /// Write down that the client is dead if an error says so: its code and text.
    pub fn note_death(&self, found: Option<(RDKafkaErrorCode, String)>) {
        if let Some((code, text)) = found {
            self.session.report.client_died(&format!("{code:?}: {text}"), why_dead(code, &text));
        }
    }

    pub fn note_fatal_error(&self) {
        self.note_death(self.fatal.get().and_then(|ask| ask()));
    }

    pub fn left(&self) -> bool {
        self.is_leaving.load(SeqCst)
    }
}

impl ClientContext for Events {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    /// As librdkafka writes it by itself.
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = &self.session.spec.name;
        eprintln!("%{}|{}.{:03}|{fac}|{name}| {message}", level as i32, now.as_secs(), now.subsec_millis());
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let code = code_of(&error);
        let lost = [RDKafkaErrorCode::BrokerTransportFailure, RDKafkaErrorCode::AllBrokersDown].contains(&code);
        let kind = if lost { "disconnect" } else { "error" };
        let text = format!("{code:?}: {reason}");
        let is_fatal = code == RDKafkaErrorCode::Fatal;
        self.session.report.event(kind, &text, json!({"fatal": is_fatal}));
        if is_refusal(code, reason) {
            self.refusal.lock().expect("no panic").get_or_insert(text);
        }
        if is_fatal {
            self.note_fatal_error();
        }
    }

    /// The same one again whenever the client asks.
    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let token = self.session.options.get(TOKEN).ok_or("there is no token")?.clone();
        let until = SystemTime::now().duration_since(UNIX_EPOCH)? + TOKEN_HOLDS;
        Ok(OAuthToken { token, principal_name: String::new(), lifetime_ms: until.as_millis() as i64 })
    }
}

/// The options, and over them what the worker decides.
pub fn config(session: &Session, fixed: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    // The crate takes no notice of what librdkafka's options say of its log.
    let level = if session.options.contains_key("debug") { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info };
    config.set("client.id", &session.spec.name).set_log_level(level);
    for (name, value) in session.options.iter().filter(|(name, _)| *name != TOKEN) {
        config.set(name, value);
    }
    config.set("bootstrap.servers", &session.spec.bootstrap);
    for (name, value) in fixed {
        config.set(*name, *value);
    }
    config
}

/// A client; an option that it does not take ends the worker with its own words.
pub fn made<T>(answer: KafkaResult<T>) -> Result<T, Failure> {
    answer.map_err(|error| {
        let hint = "options are librdkafka's own names, see its CONFIGURATION.md";
        Failure::new(format!("rdkafka refused its options: {error}"), hint)
    })
}

/// Text of an error that has a code.
pub fn error_text(error: &KafkaError) -> String {
    text_of(code_of(error))
}

/// What comes back with a message.
pub type Opaque = Box<Message>;
