//! Options of the client, in its own names.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs;

use serde::Deserialize;

use crate::failure::{hide, reason, Failure};
use crate::spec::Spec;

/// What a cluster asks of its clients.
#[derive(Deserialize)]
struct Secured {
    options: HashMap<String, String>,
    hidden: Vec<String>,
}

/// Those of worker.toml, over them the scenario's, over them what the cluster asks of clients. The last come out of a
/// pipe, so this can be asked once; the secrets among them are hidden from now on.
pub fn options_of(spec: &Spec) -> Result<BTreeMap<String, String>, Failure> {
    let text = env::var("BROKERSTORM_WORKER_OPTIONS").unwrap_or_else(|_| "{}".to_string());
    let mut by_role: HashMap<String, BTreeMap<String, String>> = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("BROKERSTORM_WORKER_OPTIONS: {error}"), ""))?;
    let mut options = by_role.remove(&spec.role).unwrap_or_default();
    for (name, value) in &spec.client.options {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        options.insert(name.clone(), shown);
    }
    if let Ok(path) = env::var("BROKERSTORM_SECURITY") {
        let unusable = |why: &str| Failure::new(format!("BROKERSTORM_SECURITY: {path}: {why}"), "");
        let text = fs::read_to_string(&path).map_err(|error| unusable(&reason(&error)))?;
        let secured: Secured = serde_json::from_str(&text).map_err(|_| unusable("not as the protocol has it"))?;
        hide(secured.hidden);
        options.extend(secured.options);
    }
    Ok(options)
}
