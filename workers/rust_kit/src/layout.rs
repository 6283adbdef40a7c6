//! Numbers of docs/capture-format.md. Made from harness/records.py by `make docs`; do not edit.
#![allow(dead_code)] // no worker has all roles

#[cfg(not(target_endian = "little"))]
compile_error!("rows are written in the byte order of the machine, which must be little-endian");

pub const HEADER_BYTES: usize = 48;
pub const TRAILER_BYTES: usize = 4;
pub const MIN_PAYLOAD_BYTES: usize = 52;
pub const SEGMENT_HEADER_BYTES: usize = 64;
pub const FORMAT_VERSION: u8 = 1;

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
        match self {
            Table::Sends => "sends",
            Table::Log => "log",
            Table::Deliveries => "deliveries",
            Table::Transactions => "transactions",
        }
    }

    pub fn row_bytes(self) -> usize {
        match self {
            Table::Sends => 96,
            Table::Log => 104,
            Table::Deliveries => 104,
            Table::Transactions => 64,
        }
    }
}

/// Kinds of messages.
pub const PROBE: u8 = 0;
pub const WARM_UP: u8 = 1;
pub const LOAD: u8 = 2;

/// Outcomes of a send: exactly one each. 0: the client never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok = 1,
    Fail = 2,
    Info = 3,
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

/// Events of a consumer's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Deliver = 1,
    AckCalled = 2,
    AckConfirmed = 3,
    Nack = 4,
    Commit = 5,
    CommitCalled = 6,
    RollbackBegin = 7,
    RollbackEnd = 8,
    Recover = 9,
    Assign = 10,
    Revoke = 11,
    Seek = 12,
}

/// Transactions of what lies in a log.
pub const NO_TXN: u8 = 0;
pub const COMMITTED_TXN: u8 = 1;

/// What was asked for to end a transaction.
pub const COMMIT_ASKED: u8 = 1;
pub const ABORT_ASKED: u8 = 2;
