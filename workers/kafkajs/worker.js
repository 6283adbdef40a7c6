// kafkajs: one process, one role (docs/worker-protocol.md). Arguments: the folder that has the client, then those of
// the protocol.
"use strict";
const path = require("path");
const { main } = require(path.join(__dirname, "..", "node_kit", "process"));

const [build, ...args] = process.argv.slice(2);
const client = path.join(build, "node_modules", "kafkajs");
const kafkajs = require(client);
const roles = {
  producer: (session) => require("./producer").produce(session, kafkajs),
  consumer: (session) => require("./consumer").consume(session, kafkajs),
};
const { version } = require(path.join(client, "package.json"));
main(args, roles, { client_version: version, node: process.versions.node });
