//! Bodies in the user's shape: a text with places for the identity and the number of each message. The identity travels
//! in a message header: the payload of a plain message without what is between its header and its trailer.

use std::borrow::Cow;

use crate::layout::{HEADER_BYTES, MIN_PAYLOAD_BYTES, TRAILER_BYTES};

/// Name of the message header that has the identity of a body.
pub const IDENTITY_HEADER: &str = "brokerstorm";

#[derive(Clone)]
enum Part {
    Text(String),
    Id,
    Number,
    Key,
    Lane,
    Producer,
}

const PLACES: [(&str, Part); 5] = [
    ("{id}", Part::Id),
    ("{n}", Part::Number),
    ("{key}", Part::Key),
    ("{lane}", Part::Lane),
    ("{producer}", Part::Producer),
];

/// Makes the bodies of one producer instance.
pub struct Template {
    parts: Vec<Part>,
    instance: u32,
}

impl Template {
    pub fn new(text: &str, instance: u32) -> Template {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(open) = rest.find('{') {
            match PLACES.iter().find(|(place, _)| rest[open..].starts_with(place)) {
                Some((place, part)) => {
                    parts.push(Part::Text(rest[..open].to_string()));
                    parts.push(part.clone());
                    rest = &rest[open + place.len()..];
                }
                None => {
                    parts.push(Part::Text(rest[..=open].to_string()));
                    rest = &rest[open + 1..];
                }
            }
        }
        parts.push(Part::Text(rest.to_string()));
        Template { parts, instance }
    }

    /// The body of one message, in UTF-8. `lane`: its number; `key`: empty = it has none. Attempts begin with 0.
    pub fn body(&self, lane: u32, key: &str, seq: u64, attempt: u16) -> Vec<u8> {
        let mut made = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => made.push_str(text),
                Part::Id if attempt == 0 => made.push_str(&format!("{}/{}/{seq}", self.instance, lane)),
                Part::Id => made.push_str(&format!("{}/{}/{seq}.{attempt}", self.instance, lane)),
                Part::Number => made.push_str(&seq.to_string()),
                Part::Key => made.push_str(key),
                Part::Lane => made.push_str(&lane.to_string()),
                Part::Producer => made.push_str(&self.instance.to_string()),
            }
        }
        made.into_bytes()
    }
}

/// Body of a payload, and the identity for its header.
pub fn parted(payload: &[u8]) -> (&[u8], Vec<u8>) {
    let trailer_at = payload.len() - TRAILER_BYTES;
    let identity = [&payload[..HEADER_BYTES], &payload[trailer_at..]].concat();
    (&payload[HEADER_BYTES..trailer_at], identity)
}

/// The payload that was sent, of a value and what its identity header holds; the value alone if that is no identity.
pub fn joined<'a>(value: &'a [u8], identity: Option<&[u8]>) -> Cow<'a, [u8]> {
    match identity {
        Some(found) if found.len() == MIN_PAYLOAD_BYTES && !value.starts_with(b"BS") => {
            Cow::Owned([&found[..HEADER_BYTES], value, &found[HEADER_BYTES..]].concat())
        }
        _ => Cow::Borrowed(value),
    }
}
