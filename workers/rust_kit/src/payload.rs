//! Payloads of messages: their identity, their sizes, what fills them, and what a reader finds.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::layout::{Check, FORMAT_VERSION, HEADER_BYTES, LOAD, MIN_PAYLOAD_BYTES, PROBE, TRAILER_BYTES};

/// CRC-32 of any bytes followed by their own CRC-32: one call checks a payload, trailer included.
const RESIDUE: u32 = 0x2144_DF1C;
/// Bytes that no codec makes smaller, which compressible payloads are cut from.
const POOL_BYTES: usize = 1 << 22;

/// SHA-256 of 0, 1, 2 ... (32 bits, little-endian), one behind the other.
fn pool() -> &'static [u8] {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    MADE.get_or_init(|| (0..POOL_BYTES as u32 / 32).flat_map(|k| Sha256::digest(k.to_le_bytes())).collect())
}

/// Identity of a message.
#[derive(Clone, Copy)]
pub struct Header {
    pub run_tag: u32,
    pub instance: u32,
    pub lane: u32,
    pub seq: u64,
    pub due_ns: i64,
    pub key: u32,
    pub attempt: u16,
    pub kind: u8,
}

/// Filling of messages that are alike: a linear congruential generator (Numerical Recipes), its high byte.
pub fn filler(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Sizes of the payloads of a producer instance, from least to most, or those of a table; and what fills them.
pub struct Sizes {
    pub least: usize,
    pub most: usize,
    pub instance: u32,
    pub table: Vec<usize>,
    /// Thousandths of a payload that are zeros; None = the filling of all messages is alike.
    pub compressible: Option<usize>,
    alike: Vec<u8>,
}

impl Sizes {
    pub fn new(least: usize, most: usize, instance: u32, table: Vec<usize>, compressible: Option<usize>) -> Sizes {
        Sizes { least, most, instance, table, compressible, alike: filler(most) }
    }

    /// A number for one message, the same in every language (SplitMix64).
    fn mixed(&self, lane: u32, seq: u64) -> u64 {
        let own = u64::from(self.instance) << 32 | u64::from(lane);
        let mut x = seq.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(own);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// Bytes of one message, the same in every attempt.
    pub fn of(&self, lane: u32, seq: u64) -> usize {
        if self.least == self.most {
            return self.least;
        }
        let high = self.mixed(lane, seq) >> 32;
        if !self.table.is_empty() {
            return self.table[(high * self.table.len() as u64 >> 32) as usize];
        }
        self.least + (high * (self.most - self.least + 1) as u64 >> 32) as usize
    }

    /// Put the whole payload of a message into `out`.
    pub fn encode(&self, header: &Header, out: &mut Vec<u8>) {
        let length = self.of(header.lane, header.seq);
        put_header(header, length, out);
        let room = length - MIN_PAYLOAD_BYTES;
        match self.compressible {
            None => out.extend_from_slice(&self.alike[..room]),
            Some(share) => {
                let own = room - room.min(length * share / 1000);
                let low = self.mixed(header.lane, header.seq) & 0xFFFF_FFFF;
                let at = (low * (POOL_BYTES - own) as u64 >> 32) as usize;
                out.extend_from_slice(&pool()[at..at + own]);
                out.resize(length - TRAILER_BYTES, 0);
            }
        }
        out.extend_from_slice(&crc32fast::hash(out).to_le_bytes());
    }
}

/// Put a whole payload into `out` whose filling is `body`.
pub fn encode_body(header: &Header, body: &[u8], out: &mut Vec<u8>) {
    put_header(header, MIN_PAYLOAD_BYTES + body.len(), out);
    out.extend_from_slice(body);
    out.extend_from_slice(&crc32fast::hash(out).to_le_bytes());
}

fn put_header(h: &Header, length: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[b'B', b'S', FORMAT_VERSION, h.kind]);
    for word in [h.run_tag, h.instance, h.lane] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&h.seq.to_le_bytes());
    out.extend_from_slice(&h.due_ns.to_le_bytes());
    // Behind the attempt, and behind the length, is the place of a pipeline's input.
    for word in [h.key, u32::from(h.attempt), length as u32, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// What kind of payload a reader found.
pub fn check(value: &[u8], run_tag: u32) -> Check {
    let word = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().expect("four bytes"));
    if !value.starts_with(b"BS") {
        return Check::Foreign;
    }
    if value.len() < MIN_PAYLOAD_BYTES || value[2] != FORMAT_VERSION || value[3] > LOAD {
        return Check::Corrupt;
    }
    if word(40) as usize != value.len() || crc32fast::hash(value) != RESIDUE {
        return Check::Corrupt;
    }
    if word(4) == run_tag {
        Check::Ok
    } else {
        Check::OtherRun
    }
}

/// Whether the harness and no producer wrote this message, whose check is `found`.
pub fn is_probe(value: &[u8], found: Check) -> bool {
    found == Check::Ok && value[3] == PROBE
}

/// The first bytes of a payload, as a row keeps them.
pub fn head(value: &[u8]) -> &[u8] {
    &value[..value.len().min(HEADER_BYTES)]
}
