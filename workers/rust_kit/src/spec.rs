//! What the worker is started with.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{reason, Failure};
use crate::names::Names;
pub use crate::parts::{ConsumerSpec, ProducerSpec, TransactionsSpec};

const PROTOCOL: u32 = 1;

#[derive(Deserialize)]
pub struct Spec {
    protocol: u32,
    pub run_tag: u32,
    pub role: String,
    pub name: String,
    pub capture_dir: PathBuf,
    pub bootstrap: String,
    pub streams: HashMap<String, i32>,
    pub client: ClientSpec,
    #[serde(rename = "producer")]
    producing: Option<ProducerSpec>,
    #[serde(rename = "consumer")]
    consuming: Option<ConsumerSpec>,
}

#[derive(Deserialize)]
pub struct ClientSpec {
    pub library: String,
    /// The scenario's, in the client's own names; `Session::options` has all.
    pub options: Map<String, Value>,
}

impl Spec {
    pub fn read(path: &Path) -> Result<Spec, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read spec {}: {}", path.display(), reason(&error)), ""))?;
        let unusable = |why: String| Failure::new(format!("spec {} cannot be used: {why}", path.display()), "");
        let spec: Spec = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        if spec.protocol != PROTOCOL {
            return Err(unusable(format!("it asks for protocol {}, this worker speaks {PROTOCOL}", spec.protocol)));
        }
        let has_part = match spec.role.as_str() {
            "producer" => spec.producing.is_some(),
            "consumer" => spec.consuming.is_some(),
            _ => true, // the worker has no such role
        };
        if !has_part {
            return Err(unusable(format!("it lacks the part of its role {:?}", spec.role)));
        }
        Ok(spec)
    }

    /// The part of a producer; its role has been checked.
    pub fn producer(&self) -> &ProducerSpec {
        self.producing.as_ref().expect("the role is producer")
    }

    /// The part of a consumer; its role has been checked.
    pub fn consumer(&self) -> &ConsumerSpec {
        self.consuming.as_ref().expect("the role is consumer")
    }
}

/// Where a message is sent. Without a partition and a key that is up to the client.
pub struct Lane {
    pub number: u32,
    pub topic: String,
    pub partition: Option<i32>,
    pub key: Option<String>,
    pub key_number: u32,
    /// Name ids of the topic's streams, by partition; 0 = none yet.
    streams: Vec<i32>,
}

impl Lane {
    /// Name id of a stream of the lane's topic.
    pub(crate) fn stream(&self, partition: i32, names: &Names) -> i32 {
        match self.streams.get(partition as usize) {
            Some(id) if *id != 0 => *id,
            _ => names.id("stream", &format!("{}-{partition}", self.topic)), // the topic grew
        }
    }
}

pub(crate) fn lanes_of(spec: &Spec) -> Result<Vec<Lane>, Failure> {
    let mut lanes = Vec::new();
    for group in &spec.producer().lane_groups {
        for i in 0..group.count as u32 {
            let mut lane = Lane {
                number: group.first + i,
                topic: group.topic.clone(),
                partition: None,
                key: None,
                key_number: 0,
                streams: streams_of(&group.topic, &spec.streams),
            };
            match group.mode.as_str() {
                "partition" => lane.partition = Some(i as i32),
                "key" => {
                    let text = group.key.as_deref().unwrap_or("{key}");
                    let text = text.replace("{key}", &format!("k{i:06}")).replace("{number}", &i.to_string());
                    (lane.key, lane.key_number) = (Some(text), i);
                }
                "routed" => {}
                other => {
                    let text = format!("lane mode {other:?}: must be partition, key or routed");
                    return Err(Failure::new(text, ""));
                }
            }
            lanes.push(lane);
        }
    }
    if lanes.is_empty() {
        return Err(Failure::new("a producer needs at least one lane", ""));
    }
    Ok(lanes)
}

fn streams_of(topic: &str, streams: &HashMap<String, i32>) -> Vec<i32> {
    let mut ids = Vec::new();
    for (stream, id) in streams {
        let number = stream.strip_prefix(topic).and_then(|rest| rest.strip_prefix('-'));
        if let Some(partition) = number.and_then(|text| text.parse::<usize>().ok()) {
            ids.resize(ids.len().max(partition + 1), 0);
            ids[partition] = *id;
        }
    }
    ids
}
