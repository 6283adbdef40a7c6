//! --self-test: files of fixed content, to compare with harness/contract/golden byte by byte. docs/worker-protocol.md
//! lists the inputs.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::failure::{reason, Failure};
use crate::layout::{Check, Event, Outcome, Table, ABORT_ASKED, COMMIT_ASKED, LOAD, WARM_UP};
use crate::names::Names;
use crate::payload::{check, encode_body, Header, Sizes};
use crate::schedule::Schedule;
use crate::segments::{Completion, Delivery, Segments};
use crate::template::{joined, parted, Template};

const TAG: u32 = 0xC0FF_EE01;
const NS: i64 = 1_000_000_000_000;
const SMALL: Header =
    Header { run_tag: TAG, instance: 7, lane: 3, seq: 42, due_ns: NS, key: 0, attempt: 0, kind: LOAD };
const LARGE: Header =
    Header { lane: 4, seq: (1 << 40) + 1, due_ns: NS + 20_000, key: 17, attempt: 2, kind: WARM_UP, ..SMALL };
const PROFILE: [(f64, f64); 5] = [(5e8, 0.55), (7e8, 0.1), (3e8, 0.0), (333_333_333.0, 1.0), (666_666_667.0, 0.37)];

/// Writes them into a folder.
pub fn self_test(folder: &Path) -> Result<(), Failure> {
    let [small, large] = [(52, SMALL), (150, LARGE)].map(|(length, header)| {
        let mut payload = Vec::new();
        Sizes::new(length, length, 7, Vec::new(), None).encode(&header, &mut payload);
        payload
    });
    let order = r#"{"order": {"id": "{id}"}, "n": {n}, "key": "{key}", "by": "{producer}/{lane}"}"#;
    let bytes: String = (0..=255u8).map(char::from).collect();
    let encoded = bytes + "{id:24}{n:5}{lane:3}{producer:10}%d{n}";
    let files = [
        ("payload-52.bin", small.clone()),
        ("payload-150.bin", large.clone()),
        ("payload-60-90.bin", eight(&Sizes::new(60, 90, 7, Vec::new(), None))),
        ("payload-mixed.bin", eight(&Sizes::new(60, 90, 7, vec![60, 61, 61, 90], None))),
        ("payload-compressible.bin", eight(&Sizes::new(60, 300, 7, Vec::new(), Some(600)))),
        ("payload-template.bin", eight_from(&Template::new(order, 7, ""))),
        ("payload-encoded.bin", eight_from(&Template::new(&encoded, 7, "latin-1"))),
        ("due-times.bin", due_times()),
    ];
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, bytes))
            .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), reason(&error)), ""))?;
    }
    let streams = HashMap::from([("orders-0".to_string(), 1), ("orders-1".to_string(), 2)]);
    let names = Names::new(folder, &streams)?;
    let error = names.id("error", "_MSG_TIMED_OUT: Local: Message timed out");
    let group = names.id("subscription", "group") as u32;
    names.check()?;
    sends(folder, error)?;
    transactions(folder, error)?;
    log(folder, &small, large)?;
    deliveries(folder, group, &small)
}

/// Payloads of these sizes, one behind the other.
fn eight(sizes: &Sizes) -> Vec<u8> {
    let (mut all, mut payload) = (Vec::new(), Vec::new());
    for seq in 0..8 {
        sizes.encode(&Header { seq, due_ns: NS + 20_000 * seq as i64, ..SMALL }, &mut payload);
        all.extend_from_slice(&payload);
    }
    all
}

/// Payloads around bodies of a template, as a reader puts them together; the last two are second attempts.
fn eight_from(template: &Template) -> Vec<u8> {
    let (mut all, mut payload) = (Vec::new(), Vec::new());
    for seq in 0..8 {
        let header = Header { seq, due_ns: NS + 20_000 * seq as i64, key: 5, attempt: (seq / 6) as u16, ..SMALL };
        encode_body(&header, &template.body(3, "k000005", seq, header.attempt), &mut payload);
        let (body, identity) = parted(&payload);
        all.extend_from_slice(&joined(body, Some(&identity)));
    }
    all
}

/// Messages in the warm-up and in all, then when each is due.
fn due_times() -> Vec<u8> {
    let mut due = Schedule::new(97.3, 0.5, 2.0, &PROFILE);
    due.t0_ns = NS;
    let mut numbers = vec![due.warm_up, due.total];
    numbers.extend((0..due.total).map(|i| due.due_ns(i)).collect::<Vec<_>>());
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn segments(folder: &Path, table: Table, owner: u32) -> Segments {
    let mut made = Segments::new(folder, table, owner, TAG);
    made.capacity = 4;
    made
}

fn sends(folder: &Path, error: i32) -> Result<(), Failure> {
    let mut segments = segments(folder, Table::Sends, 7);
    let unanswered = Header { seq: 43, due_ns: NS + 40_000, ..SMALL };
    let mut rows = Vec::new();
    for header in [SMALL, LARGE, unanswered] {
        let row = segments.next()?;
        row.open_send(&header, header.due_ns + 1_500, 0);
        rows.push(row);
    }
    let done_ns = NS + 9_000_000;
    let stored = Completion { done_ns, position: 1234, stream: 1, error: 0, outcome: Some(Outcome::Ok) };
    rows[0].complete_send(&stored);
    let done_ns = NS + 5_000_000_000;
    let lost = Completion { done_ns, position: -1, stream: 0, error, outcome: Some(Outcome::Info) };
    rows[1].complete_send(&lost);
    rows[1].late_outcome(Outcome::Ok);
    Ok(())
}

fn transactions(folder: &Path, error: i32) -> Result<(), Failure> {
    let mut segments = segments(folder, Table::Transactions, 7);
    let [first, second, third] = [segments.next()?, segments.next()?, segments.next()?];
    first.begin_transaction(1, 0, NS);
    first.ask_transaction(NS + 2_000_000, COMMIT_ASKED);
    first.end_transaction(NS + 9_000_000, 0, Outcome::Ok as u32);
    second.begin_transaction(6, 1, NS + 10_000_000);
    second.ask_transaction(NS + 20_000_000, COMMIT_ASKED);
    second.ask_transaction(NS + 21_000_000, COMMIT_ASKED | ABORT_ASKED);
    second.end_transaction(NS + 30_000_000, error, Outcome::Aborted as u32);
    third.begin_transaction(3, 0, NS + 40_000_000);
    Ok(())
}

fn log(folder: &Path, small: &[u8], mut damaged: Vec<u8>) -> Result<(), Failure> {
    damaged.pop();
    damaged.push(b'!');
    let mut segments = segments(folder, Table::Log, 1);
    for (position, stream, value) in [(1234, 1, small), (1235, 1, &damaged[..]), (7, 2, b"hello")] {
        segments.next()?.write_log(position, 1_700_000_000_123, stream, check(value, TAG), value);
    }
    Ok(())
}

fn deliveries(folder: &Path, group: u32, small: &[u8]) -> Result<(), Failure> {
    let mut segments = segments(folder, Table::Deliveries, 2);
    segments.subscription = group;
    let events: [(Event, i64, &[u8]); 3] =
        [(Event::Assign, -1, &[]), (Event::Deliver, 1234, small), (Event::Commit, 1235, &[])];
    for (t_ns, (event, position, value)) in (NS..).zip(events) {
        let row = Delivery { t_ns, position, stream: 1, epoch: 1, value, check: Check::Ok, event };
        segments.next()?.write_delivery(&row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_files_are_written() {
        let made = std::env::temp_dir().join(format!("brokerstorm-golden-{}", std::process::id()));
        self_test(&made).expect("the folder can be written to");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../harness/contract/golden");
        let mut count = 0;
        for file in fs::read_dir(golden).expect("it is there").flatten() {
            let wrote = fs::read(made.join(file.file_name())).expect("it was written, too");
            let wanted = fs::read(file.path()).expect("it can be read");
            if file.path().extension().is_some_and(|end| end == "jsonl") {
                let rows = |bytes: &[u8]| -> Vec<serde_json::Value> {
                    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                    lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
                };
                assert_eq!(rows(&wrote), rows(&wanted));
            } else {
                assert!(wrote == wanted, "{} differs", file.path().display());
            }
            count += 1;
        }
        fs::remove_dir_all(made).expect("it is ours");
        assert_eq!(count, 12);
    }
}
