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

const PLACES: [(&str, Part); 5] =
    [("id", Part::Id), ("n", Part::Number), ("key", Part::Key), ("lane", Part::Lane), ("producer", Part::Producer)];

/// Makes the bodies of one producer instance.
pub struct Template {
    /// Each with the width of its text; 0 = as long as it is.
    parts: Vec<(Part, usize)>,
    instance: u32,
    /// A character is one byte; otherwise bodies are UTF-8.
    is_latin1: bool,
}

impl Template {
    pub fn new(text: &str, instance: u32, charset: &str) -> Template {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(open) = rest.find('{') {
            match place(&rest[open..]) {
                Some((part, width, length)) => {
                    parts.push((Part::Text(rest[..open].to_string()), 0));
                    parts.push((part, width));
                    rest = &rest[open + length..];
                }
                None => {
                    parts.push((Part::Text(rest[..=open].to_string()), 0));
                    rest = &rest[open + 1..];
                }
            }
        }
        parts.push((Part::Text(rest.to_string()), 0));
        Template { parts, instance, is_latin1: charset == "latin-1" }
    }

    /// The body of one message. `lane`: its number; `key`: empty = it has none. Attempts begin with 0.
    pub fn body(&self, lane: u32, key: &str, seq: u64, attempt: u16) -> Vec<u8> {
        let mut made = String::new();
        let before = format!("{}/{}/", self.instance, lane);
        for (part, width) in &self.parts {
            let text = match part {
                Part::Text(text) => {
                    made.push_str(text);
                    continue;
                }
                Part::Id => {
                    made.push_str(&before);
                    let again = if attempt == 0 { String::new() } else { format!(".{attempt}") };
                    let width = width.saturating_sub(before.len());
                    made.push_str(&format!("{:0>width$}", format!("{seq}{again}")));
                    continue;
                }
                Part::Number => seq.to_string(),
                Part::Key => key.to_string(),
                Part::Lane => lane.to_string(),
                Part::Producer => self.instance.to_string(),
            };
            made.push_str(&format!("{text:0>width$}", width = *width));
        }
        if self.is_latin1 {
            return made.chars().map(|char| char as u8).collect();
        }
        made.into_bytes()
    }
}

/// The place that a text begins with, its width, and its bytes: `{n}` or `{n:10}`.
fn place(text: &str) -> Option<(Part, usize, usize)> {
    let inner = &text[1..text.find('}')?];
    let (name, width) = match inner.split_once(':') {
        Some((name, digits)) => (name, width(digits)?),
        None => (inner, 0),
    };
    let (_, part) = PLACES.iter().find(|(known, _)| *known == name)?;
    Some((part.clone(), width, inner.len() + 2))
}

fn width(digits: &str) -> Option<usize> {
    let is_plain = digits.len() <= 2 && !digits.starts_with('0') && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_plain {
        digits.parse().ok()
    } else {
        None
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
