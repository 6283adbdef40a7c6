//! Byte layouts; harness/records.py is the same in Python. All integers are little-endian, as the machines are.

pub const HEADER_BYTES: usize = 48;
pub const TRAILER_BYTES: usize = 4;
pub const MIN_PAYLOAD_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;
pub const FORMAT_VERSION: u8 = 1;
pub const SEGMENT_HEADER_BYTES: usize = 64;

#[cfg(not(target_endian = "little"))]
compile_error!("rows are written in the byte order of the machine, which must be little-endian");

/// Table of the capture.
#[derive(Clone, Copy)]
pub enum Table {
    Sends = 1,
    Log = 2,
    Deliveries = 3,
    Transactions = 4,
}

impl Table {
    pub fn name(self) -> &'static str {
        ["sends", "log", "deliveries", "transactions"][self as usize - 1]
    }

    pub fn row_bytes(self) -> usize {
        [96, 104, 104, 64][self as usize - 1]
    }
}

/// Kinds of messages.
pub const PROBE: u8 = 0;
pub const WARM_UP: u8 = 1;
pub const LOAD: u8 = 2;

/// Outcome of a send: exactly one each. 0 in a row: the client never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok = 1,
    /// Certainly not stored.
    Fail = 2,
    /// Unknown.
    Info = 3,
    /// With its transaction, as the application wanted.
    Aborted = 4,
}

/// What a reader found a payload to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Ok = 0,
    Corrupt = 1,
    Foreign = 2,
    OtherRun = 3,
}

/// Event of a consumer's journal.
#[derive(Clone, Copy)]
pub enum Event {
    Deliver = 1,
    Commit = 5,
    CommitCalled = 6,
    Assign = 10,
    Revoke = 11,
}
