//! Segments of rows: files that are mapped, so that a row belongs to the kernel as soon as it is written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::failure::{reason, Failure};
use crate::layout::{Check, Event, Outcome, Table, HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::payload::{head, Header};

/// Rows of a segment: 6 MB of sends, a file every 1.3 s at 50,000 messages a second.
pub const CAPACITY: u32 = 65_536;

/// What the second segment and later ones are filled with: the kernel makes their pages by the megabyte, in a fifth of
/// the CPU time that it takes for one page at a time, at the first row in it. The first segment is not filled: most of
/// it stays empty where a worker sends little.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// The files `<table>-<owner>-<index>.seg` of one table and owner. They stay mapped to the end, because an outcome may
/// come long after its row was written. One thread asks for rows.
pub struct Segments {
    pub folder: PathBuf,
    pub table: Table,
    pub owner: u32,
    pub run_tag: u32,
    pub subscription: u32,
    pub capacity: u32,
    /// Made so far, of all threads that write this table and owner.
    pub files: Arc<AtomicU32>,
    rows: *mut u8,
    left: u32,
}

// Whoever has it writes its rows: it goes to a thread as a whole.
unsafe impl Send for Segments {}

impl Segments {
    pub fn new(folder: &Path, table: Table, owner: u32, run_tag: u32) -> Segments {
        Segments {
            folder: folder.to_path_buf(),
            table,
            owner,
            run_tag,
            subscription: 0,
            capacity: CAPACITY,
            files: Arc::default(),
            rows: ptr::null_mut(),
            left: 0,
        }
    }

    /// A zeroed row, in a new file when the current one is full.
    ///
    /// # Errors
    /// The disk is full; rows already written stay.
    pub fn next(&mut self) -> Result<Row, Failure> {
        if self.left == 0 {
            self.rotate()?;
        }
        let found = Row(self.rows);
        self.left -= 1;
        self.rows = unsafe { self.rows.add(self.table.row_bytes()) };
        Ok(found)
    }

    fn rotate(&mut self) -> Result<(), Failure> {
        let index = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}-{}-{index:06}.seg", self.table.name(), self.owner));
        let mapped = self.allocate(&path, index).map_err(|error| {
            let text = format!("cannot write capture file {}: {}", path.display(), reason(&error));
            Failure::new(text, "free disk space, or point --run-dir at another disk")
        })?;
        self.rows = unsafe { mapped.add(SEGMENT_HEADER_BYTES) };
        self.left = self.capacity;
        Ok(())
    }

    /// Makes, fills, maps and only then names the file: a reader never meets a segment without a header, and a full
    /// disk is an error here and not a crash in the middle of a row.
    fn allocate(&self, path: &Path, index: u32) -> io::Result<*mut u8> {
        let part = path.with_extension("part");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&part)?;
        let made = self.fill(&file, index).and_then(|rows| fs::rename(&part, path).map(|()| rows));
        if made.is_err() {
            let _ = fs::remove_file(&part);
        }
        made
    }

    fn fill(&self, file: &File, index: u32) -> io::Result<*mut u8> {
        let size = SEGMENT_HEADER_BYTES + self.table.row_bytes() * self.capacity as usize;
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as libc::off_t) } {
            0 => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
        if index > 0 {
            for at in (0..size).step_by(ZEROS.len()) {
                file.write_all_at(&ZEROS[..ZEROS.len().min(size - at)], at as u64)?;
            }
        }
        file.write_all_at(&self.header(index), 0)?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let mapped = unsafe { libc::mmap(ptr::null_mut(), size, access, shared, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(mapped.cast())
    }

    fn header(&self, index: u32) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(b"BSTORM1\0");
        bytes[8..10].copy_from_slice(&(self.table as u16).to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.table.row_bytes() as u16).to_le_bytes());
        let words = [self.owner, index, self.capacity, self.run_tag, self.subscription];
        for (k, word) in words.iter().enumerate() {
            bytes[12 + 4 * k..16 + 4 * k].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// A row of a segment, which is mapped to the end of the process. The last field of each of its parts goes in with a
/// store that nothing may move before the others.
#[derive(Clone, Copy)]
pub struct Row(*mut u8);

// One part of a row is written by one thread at a time, and nothing is read but its last field.
unsafe impl Send for Row {}
unsafe impl Sync for Row {}

/// What the client told of a send.
pub struct Completion {
    pub done_ns: i64,
    pub position: i64,
    pub stream: i32,
    pub error: i32,
    /// None: it is that of the send's transaction.
    pub outcome: Option<Outcome>,
}

/// A row of a consumer's journal.
pub struct Delivery<'a> {
    pub t_ns: i64,
    pub position: i64,
    pub stream: i32,
    pub epoch: u32,
    pub value: &'a [u8],
    pub check: Check,
    pub event: Event,
}

impl Row {
    fn put<T>(self, at: usize, value: T) {
        unsafe { ptr::write_unaligned(self.0.add(at).cast(), value) }
    }

    fn word(self, at: usize) -> &'static AtomicU32 {
        debug_assert!(at % 4 == 0, "rows and their words are aligned");
        unsafe { &*self.0.add(at).cast::<AtomicU32>() }
    }

    fn seal(self, at: usize, word: u32) {
        self.word(at).store(word, Ordering::Release);
    }

    /// The part of a sends row that is known before the call.
    pub fn open_send(self, h: &Header, start_ns: i64, transaction: u32) {
        self.put(0, h.lane);
        self.put(4, h.attempt);
        self.put(6, h.kind);
        self.put(8, h.seq);
        self.put(16, h.due_ns);
        self.put(24, start_ns);
        self.put(36, transaction);
        self.seal(32, 1);
    }

    /// What the client told, outcome last.
    pub fn complete_send(self, done: &Completion) {
        self.put(40, done.done_ns);
        self.put(48, done.position);
        self.put(72, done.stream);
        self.put(84, done.error);
        if let Some(outcome) = done.outcome {
            self.seal(88, outcome as u32);
        }
    }

    /// Give a send the outcome of its transaction, unless it has one.
    pub fn end_send(self, now_ns: i64, error: i32, outcome: Outcome) {
        if self.word(88).load(Ordering::Acquire) != 0 {
            return;
        }
        if unsafe { ptr::read_unaligned(self.0.add(40).cast::<i64>()) } == 0 {
            self.put(40, now_ns);
        }
        self.put(84, error);
        self.seal(88, outcome as u32);
    }

    /// A second answer, beside the first; only the self-test has one: clients answer a message by giving it back.
    pub fn late_outcome(self, outcome: Outcome) {
        let first = self.word(88).load(Ordering::Acquire);
        self.seal(88, first | (outcome as u32) << 8);
    }

    pub fn begin_transaction(self, number: u32, id: u32, began_ns: i64) {
        self.put(0, number);
        self.put(4, id);
        self.put(8, began_ns);
        self.seal(16, 1);
    }

    pub fn ask_transaction(self, now_ns: i64, asked: u8) {
        if self.word(32).load(Ordering::Acquire) == 0 {
            self.put(24, now_ns);
        }
        self.seal(32, u32::from(asked));
    }

    pub fn end_transaction(self, done_ns: i64, error: i32, outcome: u32) {
        self.put(40, done_ns);
        self.put(48, error);
        self.seal(52, outcome);
    }

    /// A message of the log, as the self-test has some.
    pub fn write_log(self, position: i64, broker_time_ms: i64, stream: i32, check: Check, value: &[u8]) {
        self.put(0, position);
        self.put(16, -1i64); // client_seq: the client shows none
        self.put(24, broker_time_ms);
        self.put(32, stream);
        self.put(45, check as u8);
        self.put_head(value);
        self.seal(96, 1);
    }

    pub fn write_delivery(self, d: &Delivery) {
        self.put(0, d.t_ns);
        self.put(8, d.position);
        self.put(32, d.stream);
        self.put(40, d.epoch);
        self.put(44, -1i32); // redelivery: the client shows none
        self.put_head(d.value);
        self.seal(96, d.check as u32 | (d.event as u32) << 8);
    }

    fn put_head(self, value: &[u8]) {
        let first = head(value);
        debug_assert!(first.len() <= HEADER_BYTES);
        unsafe { ptr::copy_nonoverlapping(first.as_ptr(), self.0.add(48), first.len()) }
    }
}
