//! A worker process: spec, commands, lines, exit codes (docs/worker-protocol.md).

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::panic;
use std::path::Path;

use serde_json::{json, Value};

use crate::failure::Failure;
use crate::golden;
use crate::names::Names;
use crate::options::options_of;
use crate::protocol::{Control, Reporter};
use crate::spec::Spec;
use crate::threads;

const EXIT_USAGE: i32 = 2;
const EXIT_ENVIRONMENT: i32 = 4;
const EXIT_BUG: i32 = 70;

/// Everything a role is run with.
pub struct Session {
    pub spec: Spec,
    /// By name, all that the client is given but what the worker decides.
    pub options: BTreeMap<String, String>,
    pub control: &'static Control,
    pub report: &'static Reporter,
    pub names: Names,
    versions: Vec<(&'static str, String)>,
    is_check: bool,
}

impl Session {
    /// Called by a role when the client took its options and no broker was asked yet.
    ///
    /// # Errors
    /// Under --check-options, with which the role ends.
    pub fn options_taken(&self) -> Result<(), Failure> {
        if self.is_check {
            Err(Failure::taken())
        } else {
            Ok(())
        }
    }

    /// The next command can be obeyed.
    pub fn ready(&self) {
        let mut fields = json!({"pid": std::process::id(), "client": self.spec.client.library});
        for (name, value) in &self.versions {
            fields[*name] = Value::String(value.clone());
        }
        self.report.say("ready", fields);
    }
}

/// Runs until everything is captured.
pub type Role = fn(&'static Session) -> Result<(), Failure>;

/// The version of a package in the text of a Cargo.lock: what the build took.
pub fn version_in(lock: &str, package: &str) -> String {
    let head = format!("name = \"{package}\"\nversion = \"");
    let found = lock.split_once(&head).map_or("", |(_, rest)| rest);
    found.split(['"', '+']).next().unwrap_or_default().to_string()
}

/// Runs one worker process and ends it: 0 after `done`, 2 wrong arguments, 4 the environment or an option, 70 a bug of
/// ours. `versions`: `client_version` and whatever else the `ready` line shall say.
pub fn main(roles: &[(&str, Role)], versions: Vec<(&'static str, String)>) -> ! {
    threads::prepare_signals();
    let args: Vec<String> = env::args().skip(1).collect();
    let code = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--self-test", folder] => golden::self_test(Path::new(folder)).map_or_else(
            |failure| {
                eprintln!("{}", failure.text);
                EXIT_ENVIRONMENT
            },
            |()| 0,
        ),
        ["--check-options", path] => played(path, roles, versions, true),
        [path] if !path.starts_with('-') => played(path, roles, versions, false),
        _ => {
            eprintln!("usage: worker [--check-options] SPEC.json | worker --self-test FOLDER");
            EXIT_USAGE
        }
    };
    let _ = io::stdout().flush();
    // At once: a client's threads may be in the middle of something while libraries are taken down around them.
    unsafe { libc::_exit(code) }
}

fn played(path: &str, roles: &[(&str, Role)], versions: Vec<(&'static str, String)>, is_check: bool) -> i32 {
    let report: &'static Reporter = Box::leak(Box::new(Reporter::new()));
    end_at_panics(report);
    match run(Path::new(path), roles, versions, report, is_check) {
        Ok(()) => report.done(),
        Err(failure) if failure.is_taken => {}
        Err(failure) => {
            report.fatal("worker", &failure.text, &failure.hint);
            return EXIT_ENVIRONMENT;
        }
    }
    0
}

/// A crash of any thread must reach the harness, and end the process.
fn end_at_panics(report: &'static Reporter) {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |crash| {
        usual(crash);
        report.fatal("panic", &crash.to_string(), "a bug in the worker; see stderr.log");
        unsafe { libc::_exit(EXIT_BUG) }
    }));
}

fn run(
    path: &Path,
    roles: &[(&str, Role)],
    versions: Vec<(&'static str, String)>,
    report: &'static Reporter,
    is_check: bool,
) -> Result<(), Failure> {
    let spec = Spec::read(path)?;
    let Some((_, role)) = roles.iter().find(|(name, _)| *name == spec.role) else {
        let names = roles.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!("role {:?}: {} has {names}", spec.role, spec.client.library), ""));
    };
    let options = options_of(&spec)?;
    let control: &'static Control = Box::leak(Box::new(Control::new()));
    control.listen(report);
    report.begin();
    let names = Names::new(&spec.capture_dir, &spec.streams)?;
    let session = Session { spec, options, control, report, names, versions, is_check };
    role(Box::leak(Box::new(session)))
}
