//! names.jsonl: the text of every id used in rows, on disk before the id's first use.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde_json::json;

use crate::failure::{reason, without_secrets, Failure};

/// Streams keep the ids of the spec, everything else comes behind. Errors have no secrets.
pub struct Names(Mutex<Ids>);

struct Ids {
    file: File,
    known: HashMap<(&'static str, String), i32>,
    next: i32,
    fails: Option<String>,
}

impl Names {
    pub fn new(folder: &Path, streams: &HashMap<String, i32>) -> Result<Names, Failure> {
        let path = folder.join("names.jsonl");
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), reason(&error)), ""))?;
        let mut ids = Ids { file, known: HashMap::new(), next: 1, fails: None };
        let mut ordered: Vec<_> = streams.iter().collect();
        ordered.sort_by_key(|(_, id)| **id);
        for (text, id) in ordered {
            ids.add("stream", text, *id);
        }
        Ok(Names(Mutex::new(ids)))
    }

    /// Id of a text; a new one is written down before it is returned.
    pub fn id(&self, kind: &'static str, text: &str) -> i32 {
        let mut ids = self.0.lock().expect("no panic");
        if let Some(known) = ids.known.get(&(kind, text.to_string())) {
            return *known;
        }
        let id = ids.next;
        ids.add(kind, text, id);
        id
    }

    /// The first failure to write; ids given since are not on disk.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.0.lock().expect("no panic").fails {
            None => Ok(()),
            Some(why) => Err(Failure::new(format!("cannot write names.jsonl: {why}"), "free disk space")),
        }
    }
}

impl Ids {
    fn add(&mut self, kind: &'static str, text: &str, id: i32) {
        self.known.insert((kind, text.to_string()), id);
        self.next = self.next.max(id + 1);
        let shown = if kind == "error" { without_secrets(text) } else { text.to_string() };
        let line = format!("{}\n", json!({"id": id, "kind": kind, "text": shown}));
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.fails.get_or_insert(reason(&error));
        }
    }
}
