// Numbers of docs/capture-format.md. Made from harness/records.py by `make docs`; do not edit.
"use strict";

const HEADER_BYTES = 48;
const TRAILER_BYTES = 4;
const MIN_PAYLOAD_BYTES = 52;
const SEGMENT_HEADER_BYTES = 64;
const FORMAT_VERSION = 1;
const TABLES = {
  sends: { number: 1, rowBytes: 96 },
  log: { number: 2, rowBytes: 104 },
  deliveries: { number: 3, rowBytes: 104 },
  transactions: { number: 4, rowBytes: 64 },
};
/** Kinds of messages. */
const KIND = {
  probe: 0,
  warmUp: 1,
  load: 2,
};
/** Outcomes of a send: exactly one each. 0: the client never answered. */
const OUTCOME = {
  none: 0,
  ok: 1,
  fail: 2,
  info: 3,
  aborted: 4,
};
/** What a reader found a payload to be. */
const CHECK = {
  ok: 0,
  corrupt: 1,
  foreign: 2,
  otherRun: 3,
};
/** Events of a consumer's journal. */
const EVENT = {
  deliver: 1,
  ackCalled: 2,
  ackConfirmed: 3,
  nack: 4,
  commit: 5,
  commitCalled: 6,
  rollbackBegin: 7,
  rollbackEnd: 8,
  recover: 9,
  assign: 10,
  revoke: 11,
  seek: 12,
};
/** Transactions of what lies in a log. */
const TXN = {
  noTxn: 0,
  committedTxn: 1,
};
/** What was asked for to end a transaction. */
const ASKED = {
  commitAsked: 1,
  abortAsked: 2,
};

module.exports = {
  HEADER_BYTES,
  TRAILER_BYTES,
  MIN_PAYLOAD_BYTES,
  SEGMENT_HEADER_BYTES,
  FORMAT_VERSION,
  TABLES,
  KIND,
  OUTCOME,
  CHECK,
  EVENT,
  TXN,
  ASKED,
};
