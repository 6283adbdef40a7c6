// --self-test: files of fixed content, to compare with harness/contract/golden byte by byte.
"use strict";
const fs = require("fs");
const path = require("path");
const capture = require("./capture");
const { check, encode, filler, Sizes, EVENT, KIND, OUTCOME } = require("./layouts");
const { Schedule } = require("./schedule");
const { IDENTITY_HEADER, Template, joined, parted } = require("./template");

const TAG = 0xc0ffee01;
const NS = 1_000_000_000_000;
const PROFILE = [[500_000_000, 0.55], [700_000_000, 0.1], [300_000_000, 0], [333_333_333, 1], [666_666_667, 0.37]];

function eight(sizes) {
  return Buffer.concat(
    Array.from({ length: 8 }, (_, seq) => {
      const header = { runTag: TAG, instance: 7, lane: 3, seq, dueNs: NS + 20_000 * seq, kind: KIND.load };
      return encode(header, sizes.filling(3, seq, sizes.of(3, seq)));
    }),
  );
}

/** As a reader puts them together; the last two are second attempts. */
function eightFrom(template) {
  const lane = { number: 3, key: "k000005" };
  return Buffer.concat(
    Array.from({ length: 8 }, (_, seq) => {
      const attempt = Math.floor(seq / 6);
      const header = { runTag: TAG, instance: 7, lane: 3, seq, dueNs: NS + 20_000 * seq, kind: KIND.load };
      const { body, identity } = parted(encode({ ...header, key: 5, attempt }, template.body(lane, seq, attempt)));
      return joined(body, { [IDENTITY_HEADER]: identity });
    }),
  );
}

function dueTimes() {
  const due = new Schedule(97.3, 0.5, 2, PROFILE);
  due.t0Ns = NS;
  const numbers = [due.warmUp, due.total, ...Array.from({ length: due.total }, (_, i) => due.dueNs(i))];
  const b = Buffer.alloc(8 * numbers.length);
  numbers.forEach((number, k) => b.writeBigUInt64LE(BigInt(number), 8 * k));
  return b;
}

function selfTest(folder) {
  fs.mkdirSync(folder, { recursive: true });
  const small = { runTag: TAG, instance: 7, lane: 3, seq: 42, dueNs: NS, kind: KIND.load };
  const large = {
    runTag: TAG, instance: 7, lane: 4, seq: 2 ** 40 + 1, dueNs: NS + 20_000, key: 17, attempt: 2, kind: KIND.warmUp,
  };
  const [payload52, payload150] = [encode(small, filler(0)), encode(large, filler(98))];
  const order = '{"order": {"id": "{id}"}, "n": {n}, "key": "{key}", "by": "{producer}/{lane}"}';
  const bytes = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)).join("");
  const encoded = `${bytes}{id:24}{n:5}{lane:3}{producer:10}%d{n}`;
  const files = {
    "payload-52.bin": payload52,
    "payload-150.bin": payload150,
    "payload-60-90.bin": eight(new Sizes(60, 90, 7)),
    "payload-mixed.bin": eight(new Sizes(60, 90, 7, [60, 61, 61, 90])),
    "payload-compressible.bin": eight(new Sizes(60, 300, 7, [], 600)),
    "payload-template.bin": eightFrom(new Template(order, 7)),
    "payload-encoded.bin": eightFrom(new Template(encoded, 7, "latin-1")),
    "due-times.bin": dueTimes(),
  };
  for (const [name, bytes] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), bytes);
  const names = new capture.Names(folder, { "orders-0": 1, "orders-1": 2 });
  const error = names.id("error", "_MSG_TIMED_OUT: Local: Message timed out");
  const subscription = names.id("subscription", "group");
  const segments = (table, owner, more = {}) =>
    new capture.Segments(folder, table, owner, TAG, { capacity: 4, ...more });

  const sends = segments("sends", 7);
  const rows = [small, large, { ...small, seq: 43, dueNs: NS + 40_000 }].map((header) => {
    const row = sends.next();
    capture.openSend(row, header, header.dueNs + 1_500);
    return row;
  });
  capture.completeSend(rows[0], { doneNs: NS + 9_000_000, position: 1234, stream: 1, outcome: OUTCOME.ok });
  capture.completeSend(rows[1], { doneNs: NS + 5e9, error, outcome: OUTCOME.info });
  capture.lateOutcome(rows[1], OUTCOME.ok);

  const log = segments("log", 1);
  const damaged = Buffer.concat([payload150.subarray(0, 149), Buffer.from("!")]);
  [[1234, 1, payload52], [1235, 1, damaged], [7, 2, Buffer.from("hello")]].forEach(([position, stream, value]) => {
    const found = { position, stream, value, check: check(value, TAG), brokerTimeMs: 1_700_000_000_123 };
    capture.writeLog(log.next(), found);
  });

  const deliveries = segments("deliveries", 2, { subscription });
  const events = [[EVENT.assign, -1], [EVENT.deliver, 1234, payload52], [EVENT.commit, 1235]];
  events.forEach(([event, position, value], k) => {
    capture.writeDelivery(deliveries.next(), { tNs: NS + k, position, stream: 1, epoch: 1, value, event });
  });
}

module.exports = { selfTest };
