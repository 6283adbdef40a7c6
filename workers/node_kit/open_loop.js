// One producer instance but for the client: its schedule, its rows, its numbers. The client is never helped.
"use strict";
const { Segments, openSend, completeSend, lateOutcome } = require("./capture");
const { nowNs, sleep } = require("./clock");
const { Failure } = require("./failure");
const { Sizes, encode, KIND, OUTCOME, MIN_PAYLOAD_BYTES } = require("./layouts");
const { Schedule, Turns, Lateness } = require("./schedule");
const { Template } = require("./template");

// Messages between two turns of the event loop.
const CHUNK = 50;
const SLACK_MS = 2;
const RESEND_NS = 500e6;
const MOST_ATTEMPTS = 10;
const SETTLE_NS = 10e9;
/** A call longer than this was blocked by the client, not just busy. */
const BLOCKED_NS = 5e6;

/** Key i: its text with the places filled. */
function keyOf(text, i) {
  return text.replaceAll("{key}", `k${String(i).padStart(6, "0")}`).replaceAll("{number}", String(i));
}

function lanesOf(groups) {
  return groups.flatMap(({ topic, mode, first, count, key = "{key}" }) =>
    Array.from({ length: count }, (_, i) => ({
      number: first + i,
      topic,
      partition: mode === "partition" ? i : -1,
      key: mode === "key" ? keyOf(key, i) : null,
      keyNumber: mode === "key" ? i : 0,
    })),
  );
}

class OpenLoop {
  constructor(session) {
    const part = session.spec.producer;
    const most = part.payload_max_bytes || part.payload_bytes;
    if (part.payload_bytes < MIN_PAYLOAD_BYTES || most < part.payload_bytes) {
      throw new Failure(`payload of ${part.payload_bytes}..${most} bytes: at least ${MIN_PAYLOAD_BYTES} are needed`);
    }
    Object.assign(this, { session, part, lanes: lanesOf(part.lane_groups), resends: [], resent: 0 });
    Object.assign(this, { attempted: 0, ok: 0, fail: 0, info: 0, blockedNs: 0, blockedSinceNs: 0 });
    this.sizes = new Sizes(
      part.payload_bytes, most, part.instance, part.payload_sizes || [], part.payload_compressible ?? -1,
    );
    this.template = part.payload_template
      ? new Template(part.payload_template, part.instance, part.payload_charset) : null;
    this.turns = new Turns(this.lanes, part.turns);
    this.schedule = new Schedule(part.rate_per_s, part.warm_up_s, part.load_s, part.rate_profile);
    this.lateness = new Lateness();
    this.segments = new Segments(session.spec.capture_dir, "sends", part.instance, session.spec.run_tag);
    this.again = part.results === "resent";
    this.names = new Map();
  }

  /**
   * Until every row it will ever complete is complete. The client: `callSize` messages a call; `waits`: the
   * next call is made when this one has returned; async `send(messages)` calls it once and tells what became of each
   * (`stored`, `failed`); `room()` is false while it takes no more; async `close()`.
   */
  async run(client) {
    const { control, report } = this.session;
    this.client = client;
    report.counts = () => this.counts();
    this.session.ready();
    await control.started;
    this.schedule.t0Ns = control.t0Ns;
    try {
      await (this.schedule.rate ? this.loadAtRate() : this.loadUnlimited());
      await this.resendRest();
    } catch (error) { // the capture cannot go on: calls in flight are waited for
      await this.settle(nowNs() + SETTLE_NS);
      throw error;
    }
    while (!control.draining) await sleep(SLACK_MS);
    await this.settle(Infinity);
    if (this.open === 0) await Promise.race([client.close(), sleep(2000)]);
  }

  async settle(deadlineNs) {
    while (this.open > 0 && !this.session.control.over && nowNs() < deadlineNs) await sleep(SLACK_MS);
  }

  get stopping() {
    return this.session.control.stopLoad;
  }

  get open() {
    return Math.max(0, this.attempted - this.ok - this.fail - this.info);
  }

  blocked() {
    return this.blockedNs + (this.blockedSinceNs ? nowNs() - this.blockedSinceNs : 0);
  }

  async loadAtRate() {
    const { schedule, lateness, client } = this;
    const { report } = this.session;
    for (let sent = 0; sent < schedule.total && !this.stopping; ) {
      const [begun, blocked, frozen] = [nowNs(), this.blocked(), report.frozenNs];
      const own = () => nowNs() - begun - (this.blocked() - blocked) - (report.frozenNs - frozen);
      const edge = sent < schedule.warmUp ? schedule.warmUp : schedule.total;
      const last = Math.min(sent + client.callSize, edge) - 1; // of the next call: it is made when that is due
      const due = Math.min(schedule.dueCount(begun), edge);
      if (due <= last) {
        const wake = Math.max(schedule.dueNs(last), begun);
        await this.sleepUntil(wake);
        if (nowNs() - begun > TOO_LONG_NS) report.lookForFreeze();
        lateness.caughtUp(own() - (wake - begun));
        continue;
      }
      const first = sent;
      sent = await this.offer(sent, Math.min(due, sent + Math.max(CHUNK, client.callSize)), edge);
      await this.resendDue();
      await new Promise(setImmediate); // the client's own work
      if (nowNs() - begun > TOO_LONG_NS) report.lookForFreeze();
      lateness.worked(own(), schedule.dueNs(sent) - schedule.dueNs(first));
    }
  }

  async loadUnlimited() {
    const { schedule, client } = this;
    await this.sleepUntil(schedule.t0Ns);
    const loadNs = schedule.t0Ns + schedule.warmUpNs;
    for (let sent = 0; nowNs() < schedule.t0Ns + schedule.allNs && !this.stopping; ) {
      this.unlimitedKind = nowNs() < loadNs ? KIND.warmUp : KIND.load;
      sent = await this.offer(sent, sent + client.callSize, Infinity);
      await this.resendDue();
      if (sent % CHUNK < client.callSize) await new Promise(setImmediate);
    }
  }

  async sleepUntil(wakeNs) {
    for (let left = wakeNs - nowNs(); left > 0 && !this.stopping; left = wakeNs - nowNs()) {
      await sleep(Math.min(left / 1e6, this.again ? SLACK_MS : 100));
      await this.resendDue();
    }
  }

  /** Sends messages first .. stop-1, call by call, a row before each; the next one. */
  async offer(first, stop, edge) {
    const size = this.client.callSize;
    while (first < stop && !this.stopping) {
      const until = Math.min(first + size, edge);
      if (until > stop) break;
      const made = [];
      for (let i = first; i < until; i++) made.push(this.message(i, this.part.rate_per_s));
      await this.call(made);
      first = until;
    }
    return first;
  }

  message(i, rate) {
    const [lane, seq] = this.turns.of(i);
    const now = nowNs();
    const kind = rate ? (i < this.schedule.warmUp ? KIND.warmUp : KIND.load) : this.unlimitedKind;
    return this.written({ lane, seq, dueNs: rate ? this.schedule.dueNs(i) : now, kind, attempt: 0 }, now);
  }

  /** A message whose row is open. */
  written({ lane, seq, dueNs, kind, attempt }, startNs) {
    const header = {
      runTag: this.session.spec.run_tag, instance: this.part.instance, lane: lane.number, seq, dueNs, kind, attempt,
      key: lane.keyNumber,
    };
    const message = { lane, seq, dueNs, kind, attempt };
    message.payload = encode(header, this.filling(lane, seq, attempt));
    if (this.part.capture !== false) {
      message.row = this.segments.next();
      openSend(message.row, header, startNs);
    }
    return message;
  }

  /** What is between header and trailer of a payload. */
  filling(lane, seq, attempt) {
    if (this.template) return this.template.body(lane, seq, attempt);
    return this.sizes.filling(lane.number, seq, this.sizes.of(lane.number, seq));
  }

  async call(messages) {
    const { client } = this;
    this.attempted += messages.length;
    if (!client.room()) {
      if (this.part.when_full === "fail") {
        messages.forEach((message) => this.failed(message, OUTCOME.fail, "_QUEUE_FULL: the application's own limit"));
        return;
      }
      await this.blocking(async () => {
        while (!client.room() && !this.session.control.over) await sleep(1);
      });
    }
    const begun = nowNs();
    const answer = client.send(messages);
    const took = nowNs() - begun;
    if (took > BLOCKED_NS) this.blockedNs += took; // it held the only thread of this process
    if (client.waits) await this.blocking(() => answer);
  }

  /** Time in which the client holds the application. */
  async blocking(call) {
    this.blockedSinceNs = nowNs();
    try {
      await call();
    } finally {
      this.blockedNs += nowNs() - this.blockedSinceNs;
      this.blockedSinceNs = 0;
    }
  }

  /** The client reported the message as stored; position -1: it did not say where. */
  stored(message, stream, position) {
    const id = position >= 0 ? this.session.names.id("stream", stream) : 0;
    this.complete(message, { position, stream: id, outcome: OUTCOME.ok });
    this.ok++;
  }

  /** The client reported an error: what it means, and its text. */
  failed(message, outcome, text) {
    this.session.report.error(text);
    this.complete(message, { error: this.session.names.id("error", text), outcome });
    if (this.again && message.attempt + 1 < MOST_ATTEMPTS) this.resends.push({ message, dueNs: nowNs() + RESEND_NS });
    this[outcome === OUTCOME.fail ? "fail" : "info"]++;
  }

  complete(message, told) {
    if (!message.row) return;
    if (message.outcome) lateOutcome(message.row, told.outcome);
    else completeSend(message.row, { doneNs: nowNs(), ...told });
    message.outcome = told.outcome;
  }

  /** `results: resent`: the application sends what failed again, after a pause. */
  async resendDue() {
    for (let left = this.resends.length; left > 0 && !this.session.control.over; left--) {
      if (this.resends[0].dueNs > nowNs()) return;
      const { message } = this.resends.shift();
      this.resent++;
      await this.call([this.written({ ...message, attempt: message.attempt + 1 }, nowNs())]);
    }
  }

  async resendRest() {
    const { control } = this.session;
    while (this.again && !control.over && (!control.draining || this.open > 0 || this.resends.length)) {
      await this.resendDue();
      await sleep(SLACK_MS);
    }
  }

  counts() {
    const { attempted, ok, fail, info, open } = this;
    const counts = { attempted, ok, fail, info, open, blocked_ns: this.blocked() };
    counts.late_max_ns = this.lateness.takeMaxNs();
    return this.again ? { ...counts, resent: this.resent } : counts;
  }
}

// A span shorter than this cannot hold a freeze worth a look at the clocks.
const TOO_LONG_NS = 50e6;

module.exports = { OpenLoop };
