//! CLOCK_MONOTONIC, the clock of every time in the capture, and what else is asked of the system about time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const NEVER_NS: i64 = 1 << 62;
/// Shortest sleep between two looks at something.
pub const SLACK_NS: i64 = 2_000_000;

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Unix time in nanoseconds.
pub fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

pub fn sleep_ns(ns: i64) {
    std::thread::sleep(Duration::from_nanos(ns.max(0) as u64));
}

/// CPU time of this process, user and system.
pub fn cpu_ns() -> i64 {
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Memory of this process; 0 where /proc is missing.
pub fn resident_bytes() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: i64 = text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}
