// A member of a consumer group: `run` with eachMessage; the worker commits what was handed over.
"use strict";
const { kit, connected, textOf, refused } = require("./connection");
const { sleep } = kit("clock");
const { Journal, runMember } = kit("journal");
const { joined } = kit("template");

class Member {
  constructor(session, consumer) {
    Object.assign(this, { session, consumer, stopping: false, answeredCommits: 0 });
    this.journal = new Journal(session);
    this.listen();
  }

  listen() {
    const { events } = this.consumer;
    this.consumer.on(events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
      const streams = Object.entries(memberAssignment).flatMap(([topic, each]) => each.map((p) => `${topic}-${p}`));
      this.journal.nowHas(streams);
    });
    this.consumer.on(events.COMMIT_OFFSETS, () => this.answeredCommits++);
    // Before 1.16 the client tells of a rebalance only when it is over.
    if (events.REBALANCING) this.consumer.on(events.REBALANCING, () => this.journal.revoked());
    this.consumer.on(events.CRASH, ({ payload: { error, restart } }) => {
      this.session.report.error(textOf(error));
      this.journal.revoked();
      if (!restart && !this.stopping) this.session.report.clientDied(textOf(error), "error");
    });
  }

  async run(options) {
    const work = this.session.spec.consumer.work_s * 1000;
    await this.consumer.run({
      autoCommit: false,
      ...options,
      eachMessage: async ({ topic, partition, message }) => {
        if (this.stopping) return;
        const [stream, position] = [`${topic}-${partition}`, Number(message.offset)];
        this.journal.handed(stream, position, joined(message.value, message.headers));
        if (work) await sleep(work);
        this.journal.processed(stream, position);
      },
    });
  }

  async commit() {
    const taken = this.journal.takeUncommitted();
    if (!taken.length) return;
    const positions = taken.map(([stream, position]) => {
      const dash = stream.lastIndexOf("-");
      return { topic: stream.slice(0, dash), partition: Number(stream.slice(dash + 1)), offset: String(position) };
    });
    // From 2.0.1 on commitOffsets returns without an error and without a request once the client's runner has stopped
    // (after a crash, before it starts again). COMMIT_OFFSETS is emitted when the brokers have answered.
    const before = this.answeredCommits;
    try {
      await this.consumer.commitOffsets(positions);
      if (this.answeredCommits === before) {
        this.journal.expose("commits_never_sent");
        const text = "commit never sent: commitOffsets returned without an error and sent no request";
        this.session.report.error(text);
        taken.forEach(([stream, position]) =>
          this.session.report.event("commit-not-sent", text, { stream, position })
        );
        return;
      }
      taken.forEach(([stream, position]) => this.journal.committed(stream, position));
    } catch (error) {
      this.session.report.error(`commit: ${textOf(error)}`);
    }
  }

  /** Nothing more is handed over. */
  async stop() {
    this.stopping = true;
  }

  async close() {
    await this.consumer.disconnect();
  }
}

async function consume(session, kafkajs) {
  const { options, kafka } = connected(session, kafkajs);
  const { group, topics } = session.spec.consumer;
  const consumer = kafka.consumer({ groupId: group, allowAutoTopicCreation: false, ...options.consumer });
  const member = new Member(session, consumer);
  try {
    await consumer.connect();
    for (const topic of topics) await consumer.subscribe({ topic, fromBeginning: true });
  } catch (error) {
    throw refused("refused to start", error);
  }
  await member.run(options.run);
  await runMember(session, member.journal, member);
}

module.exports = { consume, Member };
