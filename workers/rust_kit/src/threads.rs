//! Threads of a worker, and the signals of its process.

use std::fs;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread;

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
pub fn block_signals() {
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &handled(), ptr::null_mut());
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
}

/// SIGTERM calls `stop`, SIGQUIT says where the threads are.
pub fn on_signals(stop: impl Fn() + Send + 'static) {
    begin("signals", move || loop {
        let mut received = 0;
        unsafe { libc::sigwait(&handled(), &mut received) };
        if received == libc::SIGQUIT {
            eprint!("{}", places());
        } else {
            stop();
        }
    });
}

/// Of every thread its name, its state, what the kernel waits for and in which system call (its number). Code of C and
/// Rust keeps no table of what it is in, as languages with a runtime do.
fn places() -> String {
    let mut text = String::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default().trim().to_string();
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:\t")).unwrap_or_default();
        let (name, call) = (read("comm"), read("syscall"));
        let number = call.split(' ').next().unwrap_or_default();
        text += &format!("thread {} {name:?} [{state}]\n", task.file_name().to_string_lossy());
        text += &format!("    waits in {}, system call {number}\n", read("wchan"));
    }
    text + "\n"
}
