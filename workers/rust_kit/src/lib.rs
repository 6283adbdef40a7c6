//! The worker's side of docs/worker-protocol.md and docs/capture-format.md. It knows no client.
//!
//! A session, a producer and what belongs to them live as long as the process: they are leaked, so that the answers of
//! a client find them on any thread.

mod clock;
mod failure;
mod golden;
mod journal;
pub mod kafka;
mod layout;
mod member;
mod message;
mod names;
mod open_loop;
mod options;
mod parts;
mod payload;
mod process;
mod protocol;
mod schedule;
mod segments;
mod sender;
mod spec;
mod template;
mod threads;
mod transactions;

pub use clock::{now_ns, sleep_ns};
pub use failure::Failure;
pub use journal::{Journal, Place};
pub use layout::Outcome;
pub use member::{run_member, Member};
pub use message::{Client, Message, Tally};
pub use open_loop::OpenLoop;
pub use process::{main, version_in, Role, Session};
pub use protocol::{Control, Reporter};
pub use spec::{Lane, Spec};
pub use template::{joined, parted, IDENTITY_HEADER};
pub use transactions::{Reaction, TransactionalClient};
