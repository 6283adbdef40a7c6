// Producer: `send` of one message, or `sendBatch` of several. The client gathers nothing: a call is a request to each
// leader, which it tries again by itself (retry.retries).
"use strict";
const { kit, connected, textOf, meaning, refused } = require("./connection");
const { Failure } = kit("failure");
const { OpenLoop } = kit("open_loop");
const { IDENTITY_HEADER, parted } = kit("template");

class Client {
  constructor(loop, producer, options, kafkajs) {
    const { calls = "async", batch = 1, headers = [] } = loop.part;
    if (!["async", "sync", "batch"].includes(calls)) {
      throw new Failure(`calls "${calls}": kafkajs has async, sync, batch`);
    }
    if (calls === "batch" && batch < 1) throw new Failure(`calls: batch needs batch, at least 1; got ${batch}`);
    Object.assign(this, { loop, producer, open: 0, waits: calls !== "async" });
    this.callSize = calls === "batch" ? batch : 1;
    this.sending = { acks: -1, timeout: 30000, compression: kafkajs.CompressionTypes.None, ...options.send };
    this.outstanding = options.app.outstanding;
    this.headers = headers.length ? Object.fromEntries(headers) : undefined;
    const { retries = 5 } = { ...(options.kafka || {}).retry, ...(options.producer || {}).retry };
    this.retries = retries > 0;
  }

  room() {
    return this.open < this.outstanding;
  }

  /** Calls the client once. */
  async send(messages) {
    this.open += messages.length;
    const byTopic = new Map();
    for (const message of messages) {
      const { topic, key, partition } = message.lane;
      if (!byTopic.has(topic)) byTopic.set(topic, []);
      const made = { key, value: message.payload };
      if (this.headers) made.headers = { ...this.headers };
      if (this.loop.template) {
        const { body, identity } = parted(message.payload);
        made.value = body;
        made.headers = { ...this.headers, [IDENTITY_HEADER]: identity };
      }
      if (partition >= 0) made.partition = partition;
      byTopic.get(topic).push(made);
    }
    try {
      const topicMessages = [...byTopic].map(([topic, made]) => ({ topic, messages: made }));
      this.stored(messages, await this.producer.sendBatch({ ...this.sending, topicMessages }));
    } catch (error) {
      messages.forEach((message) => this.loop.failed(message, meaning(error, this.retries), textOf(error)));
    }
    this.open -= messages.length;
  }

  /** The client tells the first offset of each partition; its messages are in the order in which they were given. */
  stored(messages, answers) {
    const next = new Map();
    for (const { topicName, partition, baseOffset } of answers || []) {
      next.set(`${topicName}-${partition}`, baseOffset === undefined ? -1 : Number(baseOffset));
    }
    for (const message of messages) {
      const { topic, partition } = message.lane;
      const stream = partition >= 0 ? `${topic}-${partition}` : [...next.keys()][0];
      const position = next.get(stream) ?? -1;
      this.loop.stored(message, stream, this.sending.acks === 0 ? -1 : position);
      if (position >= 0) next.set(stream, position + 1);
    }
  }

  async close() {
    await this.producer.disconnect();
  }
}

async function produce(session, kafkajs) {
  const loop = new OpenLoop(session);
  const { options, kafka } = connected(session, kafkajs);
  const producer = kafka.producer({
    createPartitioner: (kafkajs.Partitioners || {}).DefaultPartitioner, allowAutoTopicCreation: false,
    ...options.producer,
  });
  const client = new Client(loop, producer, options, kafkajs);
  if (client.callSize > 1 && loop.lanes.some((lane) => lane.partition < 0)) {
    throw new Failure("calls: batch needs lanes: partition: the client does not tell where each message of a call is");
  }
  await knowsTopics(kafka, loop.lanes);
  try {
    await producer.connect();
  } catch (error) {
    throw refused("refused to start", error);
  }
  await loop.run(client);
}

/** Asks the brokers for the topics of the lanes. */
async function knowsTopics(kafka, lanes) {
  const admin = kafka.admin();
  try {
    await admin.connect();
  } catch (error) {
    throw refused("refused to start", error);
  }
  for (const topic of new Set(lanes.map((lane) => lane.topic))) {
    try {
      await admin.fetchTopicMetadata({ topics: [topic] });
    } catch (error) {
      throw refused(`knows no topic ${topic}`, error);
    }
  }
  await admin.disconnect();
}

module.exports = { produce, Client };
