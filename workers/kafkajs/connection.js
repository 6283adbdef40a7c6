// The client as its options ask for it, and what its errors mean.
"use strict";
const fs = require("fs");
const path = require("path");

const kit = (name) => require(path.join(__dirname, "..", "node_kit", name));
const { Failure, errorText } = kit("failure");
const { nested } = kit("options");
const { outcomeOf } = kit("kafka_codes");
const { OUTCOME } = kit("layouts");

const RETRY = { maxRetryTime: "number", initialRetryTime: "number", factor: "number", multiplier: "number" };

function under(prefix, table) {
  return Object.fromEntries(Object.entries(table).map(([name, type]) => [`${prefix}.${name}`, type]));
}

// Names as in the client's documentation: of `new Kafka`, `kafka.producer`, `producer.send`, `kafka.consumer` and
// `consumer.run`. The client looks at none of them. `app` is the worker's own.
const OF_KAFKA = under("kafka", {
  connectionTimeout: "number", authenticationTimeout: "number", requestTimeout: "number", enforceRequestTimeout: "flag",
  ...under("retry", { ...RETRY, retries: "number" }),
});
const SECURED = under("security", {
  tls: "flag", ca: "text", certificate: "text", key: "text", key_password: "text", any_host: "flag", mechanism: "text",
  user: "text", secret: "text",
});
const KNOWN = {
  producer: {
    ...under("producer", {
      idempotent: "flag", maxInFlightRequests: "number", metadataMaxAge: "number", allowAutoTopicCreation: "flag",
      transactionTimeout: "number", ...under("retry", { ...RETRY, retries: "number" }),
    }),
    ...under("send", { acks: "number", timeout: "number", compression: { None: 0, GZIP: 1 } }),
    "app.outstanding": "number",
  },
  consumer: {
    ...under("consumer", {
      sessionTimeout: "number", rebalanceTimeout: "number", heartbeatInterval: "number", metadataMaxAge: "number",
      maxBytesPerPartition: "number", minBytes: "number", maxBytes: "number", maxWaitTimeInMs: "number",
      maxInFlightRequests: "number", readUncommitted: "flag", ...under("retry", { ...RETRY, retries: "number" }),
    }),
    ...under("run", { partitionsConsumedConcurrently: "number" }),
  },
};

/** Options of the role, by the call that takes them, and the client. */
function connected(session, kafkajs) {
  const { spec } = session;
  const options = nested("kafkajs", session.options, { ...OF_KAFKA, ...SECURED, ...KNOWN[spec.role] });
  const { Kafka, logLevel } = kafkajs;
  const config = {
    clientId: spec.name, brokers: spec.bootstrap.split(","), logLevel: logLevel.INFO, logCreator: () => log,
    ...options.kafka, ...secure(options.security || {}),
  };
  return { options, kafka: new Kafka(config) };
}

function log({ label, log: { timestamp, message, logger, ...more } }) {
  const level = label.replace("WARNING", "WARN");
  process.stderr.write(`${timestamp.replace("Z", "")} ${level} ${message} ${JSON.stringify(more)}\n`);
}

function secure(asked) {
  const made = {};
  const read = (file) => (file ? fs.readFileSync(file, "utf8") : undefined);
  if (asked.tls) {
    made.ssl = { ca: read(asked.ca), cert: read(asked.certificate), key: read(asked.key) };
    if (asked.key_password) made.ssl.passphrase = asked.key_password;
    if (asked.any_host) made.ssl.checkServerIdentity = () => undefined;
  }
  if (asked.mechanism === "oauthbearer") {
    made.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: asked.secret }) };
  } else if (asked.mechanism) {
    made.sasl = { mechanism: asked.mechanism, username: asked.user, password: asked.secret };
  }
  return made;
}

/** The error that was met: those of retries are around it (`cause`; `originalError` before 2.0). */
function met(error) {
  for (let inner; (inner = error.cause || error.originalError) instanceof Error; ) error = inner;
  return error;
}

function textOf(error) {
  const inner = met(error);
  return errorText(inner.type || inner.name, inner.message);
}

/** fail (certainly not stored) or info (unknown), in doubt info. */
function meaning(error, retries) {
  const { code } = met(error);
  return typeof code === "number" ? outcomeOf(code, retries) : OUTCOME.info;
}

function refused(what, error) {
  return new Failure(`kafkajs ${what}: ${met(error).message}`, "see also the client's log (stderr.log)");
}

module.exports = { kit, connected, textOf, meaning, refused };
