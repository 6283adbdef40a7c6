//! One worker process of the Rust client rdkafka (docs/worker-protocol.md). It is built on first use against the
//! version that a scenario asks for (harness/workers/rust_build.py).

mod client;
mod consumer;
mod outcomes;
mod producer;
mod transactional;

use brokerstorm_kit as kit;

/// What the build took.
const LOCK: &str = include_str!("../Cargo.lock");

fn main() {
    let librdkafka = rdkafka::util::get_rdkafka_version().1;
    let versions = vec![("client_version", kit::version_in(LOCK, "rdkafka")), ("librdkafka", librdkafka.to_string())];
    kit::main(&[("producer", producer::produce), ("consumer", consumer::consume)], versions)
}
