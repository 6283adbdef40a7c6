//! Threads of a worker, the signals of its process, and where the threads are.

use std::ffi::{c_int, CStr};
use std::fs;
use std::mem::{zeroed, MaybeUninit};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::clock::{now_ns, sleep_ns};

/// Asks a thread for its stack.
const ASK: c_int = libc::SIGUSR2;
/// A thread that runs answers at once.
const ANSWER_WITHIN_NS: i64 = 200_000_000;
const MOST_FRAMES: usize = 128;
const NO_ANSWER: usize = usize::MAX;

/// The thread that is asked, and what it answered.
static ASKED: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(NO_ANSWER);
static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);
static FRAMES: [AtomicUsize; MOST_FRAMES] = [const { AtomicUsize::new(0) }; MOST_FRAMES];

/// A thread that ends with the process. Its name is in dumps.
pub fn begin(name: &str, run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_string()).spawn(run).expect("the system has threads left");
}

fn handled() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGQUIT);
        set.assume_init()
    }
}

/// Before any thread is made: all of them leave these signals to the one that waits for them.
pub fn prepare_signals() {
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &handled(), ptr::null_mut());
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = answer as extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(ASK, &action, ptr::null_mut());
    }
}

/// SIGTERM calls `stop`, SIGQUIT writes the stacks of all threads to stderr.
pub fn on_signals(stop: impl Fn() + Send + 'static) {
    begin("signals", move || loop {
        let mut received = 0;
        unsafe { libc::sigwait(&handled(), &mut received) };
        if received == libc::SIGQUIT {
            eprintln!("{}", stacks());
        } else {
            stop();
        }
    });
}

/// Keeps the calls that a thread is in: in its signal handler, so that nothing may be allocated here.
extern "C" fn answer(_: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    unsafe {
        if libc::gettid() != ASKED.load(SeqCst) {
            return;
        }
        let before = *libc::__errno_location();
        INTERRUPTED.store(interrupted(&*context.cast()), SeqCst);
        let mut count = 0;
        backtrace::trace_unsynchronized(|frame| {
            FRAMES[count].store(frame.ip() as usize, SeqCst);
            count += 1;
            count < MOST_FRAMES
        });
        COUNT.store(count, SeqCst);
        *libc::__errno_location() = before;
    }
}

/// Where a thread was when the signal came; 0 = not known.
fn interrupted(context: &libc::ucontext_t) -> usize {
    #[cfg(target_arch = "x86_64")]
    return context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    return context.uc_mcontext.pc as usize;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return 0;
}

/// Of each thread its name, its state and its calls, innermost first, in the form of a JVM's. Threads that block the
/// signal, as those of librdkafka do, have no calls; nor have those that poll, which a signal ends: a client may take
/// that for an error.
fn stacks() -> String {
    let own = unsafe { libc::gettid() };
    let mut text = String::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let Ok(id) = task.file_name().to_string_lossy().parse::<i32>() else { continue };
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let waits_in = read("wchan");
        text += &format!("\"{}\" nid={id:#x} {}, {waits_in}\n", field("Name:"), field("State:"));
        let blocked = u64::from_str_radix(field("SigBlk:"), 16).unwrap_or_default();
        if id != own && blocked >> (ASK - 1) & 1 == 0 && !waits_in.contains("poll") {
            for frame in frames_of(id) {
                text += &calls_at(frame);
            }
        }
        text += "\n";
    }
    text
}

fn frames_of(id: i32) -> Vec<usize> {
    COUNT.store(NO_ANSWER, SeqCst);
    ASKED.store(id, SeqCst);
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, ASK) };
    let give_up_ns = now_ns() + ANSWER_WITHIN_NS;
    while COUNT.load(SeqCst) == NO_ANSWER && now_ns() < give_up_ns {
        sleep_ns(1_000_000);
    }
    ASKED.store(0, SeqCst);
    let count = match COUNT.load(SeqCst) {
        NO_ANSWER => 0,
        count => count,
    };
    let frames: Vec<usize> = FRAMES[..count].iter().map(|frame| frame.load(SeqCst)).collect();
    // The innermost are those of the handler.
    let first = frames.iter().position(|frame| *frame == INTERRUPTED.load(SeqCst)).unwrap_or(0);
    frames[first..].to_vec()
}

/// The calls at an address, more than one where some are inlined: name, and file or shared library.
fn calls_at(address: usize) -> String {
    let mut text = String::new();
    let within = (address - 1) as *mut libc::c_void; // the address is where the call returns to
    backtrace::resolve(within, |symbol| {
        let name = symbol.name().map_or("?".to_string(), |name| format!("{name:#}"));
        let file = symbol.filename().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let line = symbol.lineno().map_or(String::new(), |line| format!(":{line}"));
        let place = library_at(within).or(file.map(|file| file + &line)).unwrap_or_default();
        text += &format!("    at {}({place})\n", name.replace(['(', ')'], ""));
    });
    text
}

/// Name of the shared library that has an address; None: it is of the program itself.
fn library_at(address: *mut libc::c_void) -> Option<String> {
    let mut found: libc::Dl_info = unsafe { zeroed() };
    if unsafe { libc::dladdr(address, &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned();
    path.rsplit('/').next().filter(|name| name.contains(".so")).map(str::to_string)
}
