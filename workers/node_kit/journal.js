// The journal of one member of a consumer group, and its life.
"use strict";
const { Segments, writeDelivery } = require("./capture");
const { nowNs, sleep } = require("./clock");
const { Failure } = require("./failure");
const { check, CHECK, EVENT, KIND } = require("./layouts");

const ASSIGN_WITHIN_NS = 25e9;
const LEAVE_WITHIN_MS = 7000; // a fetch under way waits for up to five seconds

class Journal {
  constructor(session) {
    const { spec, names } = session;
    const part = spec.consumer;
    const subscription = names.id("subscription", part.group);
    this.segments = new Segments(spec.capture_dir, "deliveries", part.session, spec.run_tag, { subscription });
    Object.assign(this, { session, epoch: 0, delivered: 0, assigned: [] });
    Object.assign(this, { positions: new Map(), uncommitted: new Map(), exposure: {} });
    session.report.counts = () => ({
      delivered: this.delivered, epoch: this.epoch, positions: Object.fromEntries(this.positions),
      exposure: this.exposure,
    });
  }

  write(stream, fields) {
    const id = this.session.names.id("stream", stream);
    writeDelivery(this.segments.next(), { tNs: nowNs(), epoch: this.epoch, stream: id, ...fields });
  }

  /** Counts what only the client can know, by its name in `[exposure]` of worker.toml. */
  expose(counter) {
    this.exposure[counter] = (this.exposure[counter] || 0) + 1;
  }

  /** The client handed a message over. */
  handed(stream, position, value) {
    const found = check(value, this.session.spec.run_tag);
    this.write(stream, { event: EVENT.deliver, position, value, check: found });
    const isProbe = found === CHECK.ok && value[3] === KIND.probe;
    if (!isProbe) this.delivered++;
    this.positions.set(stream, position + 1);
  }

  /** The application is done with it, and the next commit covers it. */
  processed(stream, position) {
    if (this.assigned.includes(stream)) this.uncommitted.set(stream, position + 1);
  }

  /** The group gave these streams, and a new epoch begins; those before are for somebody else to read on. */
  nowHas(streams) {
    this.revoked();
    this.epoch++;
    this.assigned = streams;
    for (const stream of streams) this.write(stream, { event: EVENT.assign, position: -1 });
    this.session.report.event("assign", `${streams.length} partitions`, { epoch: this.epoch });
  }

  revoked() {
    for (const stream of this.assigned) {
      this.write(stream, { event: EVENT.revoke, position: this.positions.get(stream) ?? -1 });
      this.uncommitted.delete(stream);
    }
    if (this.assigned.length) {
      this.session.report.event("revoke", `${this.assigned.length} partitions`, { epoch: this.epoch });
    }
    this.assigned = [];
  }

  takeUncommitted() {
    const taken = [...this.uncommitted];
    this.uncommitted = new Map();
    for (const [stream, position] of taken) this.write(stream, { event: EVENT.commitCalled, position });
    return taken;
  }

  committed(stream, position) {
    this.write(stream, { event: EVENT.commit, position });
  }
}

/** From the first assignment to `stop`. member: async `commit()`, async `close()`, which leaves the group. */
async function runMember(session, journal, member) {
  const { control } = session;
  for (const giveUp = nowNs() + ASSIGN_WITHIN_NS; journal.epoch === 0 && !control.over; ) {
    const { group } = session.spec.consumer;
    if (nowNs() > giveUp) throw new Failure(`group ${group}: no assignment from ${session.spec.bootstrap} in 25 s`);
    await sleep(10);
  }
  session.ready();
  const every = session.spec.consumer.commit_every_s * 1e9;
  for (let next = nowNs() + every; !control.over; await sleep(2)) {
    if (nowNs() > next && !session.report.died) {
      await member.commit();
      next = nowNs() + every;
    }
  }
  await member.stop();
  await Promise.race([member.commit().then(() => member.close()), sleep(LEAVE_WITHIN_MS)]);
  journal.revoked();
}

module.exports = { Journal, runMember };
