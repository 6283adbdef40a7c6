// When messages are due, whose turn they are, and how late their generator is (docs/worker-protocol.md).
"use strict";

/** When message i is due. Rate 0: everything at once, until the time is over. */
class Schedule {
  constructor(rate, warmUpS, loadS, profile) {
    Object.assign(this, { rate, t0Ns: 0, warmUpNs: warmUpS * 1e9, allNs: (warmUpS + loadS) * 1e9 });
    this.warmUp = Math.ceil(warmUpS * rate);
    this.total = Math.ceil((warmUpS + loadS) * rate);
    this.spans = [{ beginNs: 0, before: 0, periodNs: rate ? 1e9 / rate : 0 }];
    if (profile && profile.length) this.follow(profile);
  }

  follow(profile) {
    this.spans = [];
    let [beginNs, before] = [0, 0];
    profile.forEach(([durationNs, share], k) => {
      const rate = this.rate * share;
      this.spans.push({ beginNs, before, periodNs: rate ? 1e9 / rate : 0 });
      beginNs += durationNs;
      before += rate * (durationNs / 1e9);
      if (k === 0) this.warmUp = Math.ceil(before);
    });
    this.total = Math.ceil(before);
  }

  dueNs(i) {
    let at = this.spans.length - 1;
    while (this.spans[at].before > i) at--;
    const span = this.spans[at];
    return this.t0Ns + span.beginNs + Math.trunc((i - span.before) * span.periodNs);
  }

  /** How many are due: all i with dueNs(i) <= now. */
  dueCount(nowNs) {
    if (nowNs < this.t0Ns) return 0;
    const elapsed = nowNs - this.t0Ns;
    let at = this.spans.length - 1;
    while (this.spans[at].beginNs > elapsed) at--;
    const span = this.spans[at];
    const reached = span.before + (span.periodNs ? (elapsed - span.beginNs) / span.periodNs : 0);
    let count = Math.min(Math.trunc(reached) + 1, this.total);
    while (count < this.total && this.dueNs(count) <= nowNs) count++;
    while (count > 0 && this.dueNs(count - 1) > nowNs) count--;
    return count;
  }
}

/** Whose turn message i is: a round of lanes, over and over. */
class Turns {
  constructor(lanes, order) {
    const counts = new Map();
    this.order = order && order.length ? order : lanes.map((_, k) => k);
    this.before = this.order.map((k) => {
      counts.set(k, (counts.get(k) || 0) + 1);
      return counts.get(k) - 1;
    });
    Object.assign(this, { lanes, counts });
  }

  of(i) {
    const turn = i % this.order.length;
    const k = this.order[turn];
    return [this.lanes[k], Math.floor(i / this.order.length) * this.counts.get(k) + this.before[turn]];
  }
}

/** How late the generator itself would be had the client never blocked: a queue with one server. */
class Lateness {
  lateNs = 0;
  maxNs = 0;

  worked(ownNs, worthNs) {
    this.maxNs = Math.max(this.maxNs, this.lateNs);
    this.lateNs = Math.max(0, this.lateNs + ownNs - worthNs);
  }

  caughtUp(oversleptNs) {
    this.lateNs = Math.max(0, oversleptNs);
  }

  takeMaxNs() {
    const largest = Math.max(this.maxNs, this.lateNs);
    this.maxNs = 0;
    return Math.round(largest);
  }
}

module.exports = { Schedule, Turns, Lateness };
