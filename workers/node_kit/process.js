// A worker process: spec, commands, lines, exit codes (docs/worker-protocol.md).
"use strict";
const fs = require("fs");
const readline = require("readline");
const { Names } = require("./capture");
const { nowNs, cpuNs } = require("./clock");
const { Failure, hide } = require("./failure");
const { selfTest } = require("./golden");

const EXIT = { usage: 2, environment: 4, bug: 70 };
// A gap this long in which the process used next to no CPU is a freeze.
const FREEZE_NS = 250e6;
const TICK_NS = 50e6;

/** The commands of the harness so far. `on` is called at each. */
class Control {
  constructor(report) {
    Object.assign(this, { t0Ns: 0, deadlineNs: Infinity, stopLoad: false, draining: false, stopped: false });
    this.started = new Promise((start) => (this.start = start));
    process.on("SIGINT", () => {});
    process.on("SIGTERM", () => this.stop());
    process.on("SIGQUIT", () => process.stderr.write(`${process.getActiveResourcesInfo().join(" ")}\n`));
    const lines = readline.createInterface({ input: process.stdin });
    lines.on("line", (line) => this.handle(line.trim(), report));
    lines.on("close", () => this.stop());
  }

  handle(line, report) {
    const [word, text] = line.split(/\s+/);
    const number = text === undefined ? NaN : Number(text);
    if (word === "start" && number >= 0) {
      this.t0Ns = number;
      this.start();
    } else if (line === "stop-load") this.stopLoad = true;
    else if (word === "drain" && number >= 0) {
      this.deadlineNs = number;
      this.stopLoad = this.draining = true;
    } else if (line === "stop") this.stop();
    else if (line) report.say("error", { name: "protocol", text: `unknown command "${line}"` });
  }

  stop() {
    this.stopLoad = this.draining = this.stopped = true;
    this.start(); // so that a worker that still waits for it ends, too
  }

  /** Stopped, or the deadline of the drain is past. */
  get over() {
    return this.stopped || nowNs() > this.deadlineNs;
  }
}

/** Says every line on stdout; a ticker looks for freezes and says `stats`. */
class Reporter {
  constructor() {
    Object.assign(this, { seen: new Set(), died: false, counts: () => ({}), frozenNs: 0 });
    Object.assign(this, { seenNs: nowNs(), cpu: cpuNs(), nextNs: nowNs() + 1e9 });
  }

  say(type, fields) {
    const line = { type, t_ns: nowNs(), wall_ns: Date.now() * 1e6, ...fields };
    try {
      fs.writeSync(1, `${JSON.stringify(line)}\n`);
    } catch (error) {
      if (error.code !== "EPIPE" && error.code !== "EAGAIN") throw error; // a harness that is gone: stdin tells
    }
  }

  begin() {
    this.ticker = setInterval(() => this.tick(), TICK_NS / 1e6);
  }

  tick() {
    this.lookForFreeze();
    if (nowNs() >= this.nextNs) {
      this.nextNs = Math.max(this.nextNs + 1e9, nowNs());
      this.stats();
    }
  }

  /** By the ticker, and by anyone who sees a long gap. */
  lookForFreeze() {
    const [now, cpu] = [nowNs(), cpuNs()];
    const [gap, worked] = [now - this.seenNs, cpu - this.cpu];
    Object.assign(this, { seenNs: now, cpu });
    if (gap < FREEZE_NS || worked > gap / 4) return;
    this.frozenNs += gap - TICK_NS;
    const text = `this process did not run for ${((gap - TICK_NS) / 1e9).toFixed(3)} s`;
    this.event("frozen", text, { frozen_ns: gap - TICK_NS });
  }

  stats() {
    const used = { cpu_s: cpuNs() / 1e9, rss_bytes: process.memoryUsage.rss(), frozen_ns: this.frozenNs };
    this.say("stats", { ...this.counts(), ...used });
  }

  event(kind, text, more = {}) {
    this.say("event", { kind, text, ...more });
  }

  /** The first error of a class; further ones of that name are only in the rows. */
  error(text) {
    const name = text.split(":")[0];
    if (!this.seen.has(name)) this.say("error", { fatal: false, name, text });
    this.seen.add(name);
  }

  /** Once: the client declared itself dead; why: "error", "fenced" or "asked". */
  clientDied(text, why) {
    if (!this.died) this.event("client-died", text, { name: text.split(":")[0], why });
    this.died = true;
  }

  end() {
    clearInterval(this.ticker);
  }
}

/** Options of the role: those of worker.toml, over them the scenario's, over them what the cluster asks of clients. */
function optionsOf(spec) {
  const byRole = JSON.parse(process.env.BROKERSTORM_WORKER_OPTIONS || "{}");
  let secured = {};
  if (process.env.BROKERSTORM_SECURITY) {
    const found = JSON.parse(fs.readFileSync(process.env.BROKERSTORM_SECURITY, "utf8"));
    hide(found.hidden);
    secured = found.options;
  }
  return { ...byRole[spec.role], ...spec.client.options, ...secured };
}

/** Spec, commands, reporter, names and options of one process. */
class Session {
  constructor(spec, report, versions) {
    Object.assign(this, { spec, report, versions });
    this.options = optionsOf(spec);
    this.control = new Control(report);
    this.names = new Names(spec.capture_dir, spec.streams);
  }

  ready() {
    this.report.say("ready", { pid: process.pid, client: this.spec.client.library, ...this.versions });
  }
}

function readSpec(path, roles) {
  let spec;
  try {
    spec = JSON.parse(fs.readFileSync(path, "utf8"));
  } catch (error) {
    throw new Failure(`spec ${path} cannot be used: ${error.message}`);
  }
  if (spec.protocol !== 1) throw new Failure(`spec asks for protocol ${spec.protocol}, this worker speaks 1`);
  if (!roles[spec.role] || !spec[spec.role]) {
    throw new Failure(`role "${spec.role}": the worker has ${Object.keys(roles).join(", ")}`);
  }
  return spec;
}

/** Runs one worker process: `roles` by name, each an async function of a Session that ends when all is captured. */
async function main(args, roles, versions) {
  if (args.length === 2 && args[0] === "--self-test") return selfTest(args[1]);
  if (args.length !== 1 || args[0].startsWith("-")) {
    process.stderr.write("usage: worker SPEC.json | worker --self-test FOLDER\n");
    process.exit(EXIT.usage);
  }
  const report = new Reporter();
  const fatal = (error) => {
    report.end();
    if (!(error instanceof Failure)) process.stderr.write(`${error.stack}\n`);
    const text = { name: error instanceof Failure ? "worker" : "crash", text: error.message, hint: error.hint || "" };
    report.say("error", { fatal: true, ...text });
    process.exit(error instanceof Failure ? EXIT.environment : EXIT.bug);
  };
  process.on("uncaughtException", fatal); // the last handler of this process: a crash must reach the harness
  process.on("unhandledRejection", fatal);
  try {
    const spec = readSpec(args[0], roles);
    const session = new Session(spec, report, versions);
    report.begin();
    await roles[spec.role](session);
    report.end();
    report.stats();
    report.say("done", report.counts());
    process.exit(0); // a client may hold connections open
  } catch (error) {
    fatal(error);
  }
}

module.exports = { main };
