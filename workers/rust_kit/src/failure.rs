//! What ends a worker with a clear line, and secrets that stand in no line.

use std::io;
use std::sync::OnceLock;

/// Ends the worker: an `error` line with "fatal": true and exit code 4.
#[derive(Debug)]
pub struct Failure {
    pub text: String,
    /// What to do; empty = nothing is known.
    pub hint: String,
    /// No failure: the options are taken, and nothing else was asked (--check-options).
    pub(crate) is_taken: bool,
}

impl Failure {
    /// On one line: clients list several errors below each other.
    pub fn new(text: impl AsRef<str>, hint: impl Into<String>) -> Failure {
        let line = text.as_ref().split_whitespace().collect::<Vec<_>>().join(" ");
        Failure { text: line, hint: hint.into(), is_taken: false }
    }

    pub(crate) fn taken() -> Failure {
        Failure { text: String::new(), hint: String::new(), is_taken: true }
    }
}

/// The reason of a failed system call, in the words that other languages use for it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

static SECRETS: OnceLock<Vec<String>> = OnceLock::new();

/// Hide these in everything that this process writes down; the longest first.
pub fn hide(secrets: Vec<String>) {
    let _ = SECRETS.set(secrets);
}

pub fn without_secrets(text: &str) -> String {
    let secrets = SECRETS.get().map_or(&[][..], |known| known);
    secrets.iter().fold(text.to_string(), |left, secret| left.replace(secret.as_str(), "(secret)"))
}
