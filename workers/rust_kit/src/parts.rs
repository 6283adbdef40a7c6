//! Made from harness/contracts/worker.py by `make docs`; do not edit.
#![allow(dead_code)] // no worker uses every key

use serde::Deserialize;

/// A group of lanes of the spec.
#[derive(Clone, Deserialize)]
pub struct LaneGroup {
    pub topic: String,
    pub mode: String,
    pub first: u32,
    pub count: usize,
    pub partitions: usize,
    pub key: Option<String>,
}

/// The transactions of a producer or pipeline.
#[derive(Clone, Deserialize)]
pub struct TransactionsSpec {
    pub id: String,
    pub messages: usize,
    pub every_s: f64,
    pub abort_every: usize,
}

/// The section of a producer (docs/worker-protocol.md).
#[derive(Clone, Deserialize)]
pub struct ProducerSpec {
    pub instance: u32,
    pub lane_groups: Vec<LaneGroup>,
    #[serde(default)]
    pub turns: Vec<usize>,
    pub rate_per_s: f64,
    #[serde(default)]
    pub rate_profile: Vec<(f64, f64)>,
    pub payload_bytes: usize,
    pub payload_max_bytes: usize,
    #[serde(default)]
    pub payload_sizes: Vec<usize>,
    pub payload_compressible: Option<usize>,
    pub payload_template: Option<String>,
    pub payload_charset: Option<String>,
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    #[serde(default)]
    pub header_templates: Vec<(String, String)>,
    #[serde(default = "default_when_full")]
    pub when_full: String,
    pub warm_up_s: f64,
    pub load_s: f64,
    #[serde(default = "default_results")]
    pub results: String,
    #[serde(default = "default_calls")]
    pub calls: String,
    #[serde(default = "default_batch")]
    pub batch: usize,
    #[serde(default = "default_threads")]
    pub threads: usize,
    pub deliver_after_s: Option<f64>,
    pub transactions: Option<TransactionsSpec>,
    pub call_deadline_s: f64,
    #[serde(default = "default_capture")]
    pub capture: bool,
}

/// The pauses of a consumer: how often, and how long each.
#[derive(Clone, Deserialize)]
pub struct PausesSpec {
    pub every_s: f64,
    pub for_s: f64,
}

/// The seeks of a consumer: how often, and how many messages back.
#[derive(Clone, Deserialize)]
pub struct SeeksSpec {
    pub every_s: f64,
    pub back: usize,
}

/// The section of a consumer (docs/worker-protocol.md).
#[derive(Clone, Deserialize)]
pub struct ConsumerSpec {
    pub session: u32,
    pub group: String,
    pub topics: Vec<String>,
    pub commit_every_s: f64,
    #[serde(default = "default_receive")]
    pub receive: String,
    #[serde(default)]
    pub work_s: f64,
    #[serde(default = "default_settle")]
    pub settle: String,
    #[serde(default)]
    pub nack_every: usize,
    #[serde(default)]
    pub per_transaction: usize,
    #[serde(default)]
    pub rollback_every: usize,
    pub pattern: Option<String>,
    pub reader: Option<bool>,
    pub pauses: Option<PausesSpec>,
    pub seeks: Option<SeeksSpec>,
}

fn default_when_full() -> String {
    "wait".to_string()
}

fn default_results() -> String {
    "checked".to_string()
}

fn default_calls() -> String {
    "async".to_string()
}

fn default_batch() -> usize {
    1
}

fn default_threads() -> usize {
    1
}

fn default_capture() -> bool {
    true
}

fn default_receive() -> String {
    "loop".to_string()
}

fn default_settle() -> String {
    "auto".to_string()
}
