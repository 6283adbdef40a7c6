//! Commands of the harness, and the lines that it is told.

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::Mutex;

use serde_json::{json, Map, Value};

use crate::clock::{cpu_ns, now_ns, resident_bytes, sleep_ns, wall_ns, NEVER_NS, SLACK_NS};
use crate::threads;

/// A gap this long in which the process used next to no CPU is a freeze: above what a busy machine's scheduler does to
/// a thread that sleeps `TICK_NS`, far below the pauses that faults make.
const FREEZE_NS: i64 = 250_000_000;
const TICK_NS: i64 = 50_000_000;

/// Commands so far.
pub struct Control {
    pub(crate) t0_ns: AtomicI64,
    deadline_ns: AtomicI64,
    has_started: AtomicBool,
    stop_load: AtomicBool,
    draining: AtomicBool,
    stopped: AtomicBool,
}

impl Control {
    pub(crate) fn new() -> Control {
        Control {
            t0_ns: AtomicI64::new(0),
            deadline_ns: AtomicI64::new(NEVER_NS),
            has_started: AtomicBool::new(false),
            stop_load: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    fn handle(&self, line: &str, report: &Reporter) {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        let number = words.next().and_then(|text| text.parse::<i64>().ok()).filter(|number| *number >= 0);
        match (word, number) {
            ("start", Some(t0_ns)) => {
                self.t0_ns.store(t0_ns, SeqCst);
                self.has_started.store(true, SeqCst);
            }
            ("stop-load", None) => self.stop_load.store(true, SeqCst),
            ("drain", Some(deadline_ns)) => {
                self.deadline_ns.store(deadline_ns, SeqCst);
                self.stop_load.store(true, SeqCst);
                self.draining.store(true, SeqCst);
            }
            ("stop", None) => self.stop(),
            ("", _) => {}
            _ => report.say("error", json!({"name": "protocol", "text": format!("unknown command {line:?}")})),
        }
    }

    fn stop(&self) {
        // Who still waits for `start` ends, too.
        for told in [&self.stop_load, &self.draining, &self.stopped, &self.has_started] {
            told.store(true, SeqCst);
        }
    }

    pub(crate) fn await_start(&self) {
        while !self.has_started.load(SeqCst) {
            sleep_ns(SLACK_NS);
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }

    /// No further message shall be offered.
    pub fn stops_load(&self) -> bool {
        self.stop_load.load(SeqCst)
    }

    /// Stopped, or the deadline of the drain is past.
    pub fn is_over(&self) -> bool {
        self.stopped.load(SeqCst) || now_ns() > self.deadline_ns.load(SeqCst)
    }

    /// Obey stdin until its end, which means that the harness is gone. SIGTERM means `stop`, SIGQUIT shows where all
    /// threads are, Ctrl-C is left to the harness.
    pub(crate) fn listen(&'static self, report: &'static Reporter) {
        threads::on_signals(move || self.stop());
        threads::begin("commands", move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                self.handle(line.trim(), report);
            }
            self.stop();
        });
    }
}

type Counts = Box<dyn Fn() -> Value + Send + Sync>;

/// Says every line on stdout. A harness that no longer reads is not an error here: stdin tells.
pub struct Reporter {
    seen: Mutex<HashSet<String>>,
    has_died: AtomicBool,
    has_ended: AtomicBool,
    counts: Mutex<Option<Counts>>,
    freezes: Mutex<Freezes>,
}

/// Time in which this process did not run (SIGSTOP, a paused container).
struct Freezes {
    seen_ns: i64,
    cpu_ns: i64,
    total_ns: i64,
}

impl Reporter {
    pub(crate) fn new() -> Reporter {
        Reporter {
            seen: Mutex::default(),
            has_died: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            counts: Mutex::default(),
            freezes: Mutex::new(Freezes { seen_ns: now_ns(), cpu_ns: cpu_ns(), total_ns: 0 }),
        }
    }

    pub(crate) fn say(&self, kind: &str, fields: Value) {
        let mut line = Map::from_iter([("type".to_string(), json!(kind))]);
        line.insert("t_ns".to_string(), json!(now_ns()));
        line.insert("wall_ns".to_string(), json!(wall_ns()));
        if let Value::Object(more) = fields {
            line.extend(more);
        }
        let text = format!("{}\n", Value::Object(line));
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// The ticker looks for freezes and says the `stats` line, also while the client blocks the role.
    pub(crate) fn begin(&'static self) {
        threads::begin("ticker", move || {
            let mut next_ns = now_ns() + 1_000_000_000;
            while !self.has_ended.load(SeqCst) {
                sleep_ns(TICK_NS);
                self.look_for_freeze();
                if now_ns() >= next_ns {
                    next_ns = (next_ns + 1_000_000_000).max(now_ns());
                    self.stats();
                }
            }
        });
    }

    /// Where the role's own numbers of `stats` and `done` come from.
    pub(crate) fn set_counts(&self, counts: impl Fn() -> Value + Send + Sync + 'static) {
        *self.counts.lock().expect("no panic") = Some(Box::new(counts));
    }

    fn numbers(&self) -> Value {
        self.counts.lock().expect("no panic").as_ref().map_or_else(|| json!({}), |counts| counts())
    }

    fn stats(&self) {
        let mut fields = self.numbers();
        fields["cpu_s"] = json!((cpu_ns() / 100_000) as f64 / 10_000.0);
        fields["rss_bytes"] = json!(resident_bytes());
        fields["frozen_ns"] = json!(self.frozen_ns());
        self.say("stats", fields);
    }

    /// By the ticker, and by anyone who sees a long gap.
    pub(crate) fn look_for_freeze(&self) {
        let frozen_ns = {
            let mut freezes = self.freezes.lock().expect("no panic");
            let (now, cpu) = (now_ns(), cpu_ns());
            let (gap, worked) = (now - freezes.seen_ns, cpu - freezes.cpu_ns);
            (freezes.seen_ns, freezes.cpu_ns) = (now, cpu);
            if gap < FREEZE_NS || worked > gap / 4 {
                return;
            }
            freezes.total_ns += gap - TICK_NS;
            gap - TICK_NS
        };
        let text = format!("this process did not run for {:.3} s", frozen_ns as f64 / 1e9);
        self.event("frozen", &text, json!({"frozen_ns": frozen_ns}));
    }

    pub(crate) fn frozen_ns(&self) -> i64 {
        self.freezes.lock().expect("no panic").total_ns
    }

    /// A mark on the time line of the run.
    pub fn event(&self, kind: &str, text: &str, more: Value) {
        let mut fields = more;
        fields["kind"] = json!(kind);
        fields["text"] = json!(text);
        self.say("event", fields);
    }

    /// The first error of a class, which its text begins with; further ones are only in the rows.
    pub fn error(&self, text: &str) {
        let name = class_of(text);
        if self.seen.lock().expect("no panic").insert(name.to_string()) {
            self.say("error", json!({"fatal": false, "name": name, "text": text}));
        }
    }

    /// The client declared itself dead; said once. `text`: its words, which begin with the name of the error; `why`:
    /// "error", "fenced" (another client has its name) or "asked" (its settings ask for it).
    pub fn client_died(&self, text: &str, why: &str) {
        if !self.has_died.swap(true, SeqCst) {
            self.event("client-died", text, json!({"name": class_of(text), "why": why}));
        }
    }

    /// Nothing more is asked of the client.
    pub fn has_died(&self) -> bool {
        self.has_died.load(SeqCst)
    }

    pub(crate) fn fatal(&self, name: &str, text: &str, hint: &str) {
        self.has_ended.store(true, SeqCst);
        self.say("error", json!({"fatal": true, "name": name, "text": text, "hint": hint}));
    }

    /// Last numbers; the capture of this worker is complete.
    pub(crate) fn done(&self) {
        self.has_ended.store(true, SeqCst);
        self.stats();
        self.say("done", self.numbers());
    }
}

fn class_of(text: &str) -> &str {
    text.split(':').next().unwrap_or_default()
}
