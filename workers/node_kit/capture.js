// Capture files: segments of rows, and names.jsonl. Node maps no files, so rows are written with pwrite: from then on
// they belong to the kernel, and killing the process loses nothing. The kernel copies upwards, so the last field of a
// part of a row, which says that it is whole, comes last.
"use strict";
const fs = require("fs");
const path = require("path");
const { Failure, withoutSecrets } = require("./failure");
const { TABLES, OUTCOME } = require("./layouts");

const SEGMENT_HEADER_BYTES = 64;
// Rows of a segment: 6 MB of sends.
const CAPACITY = 65_536;

/** The files `<table>-<owner>-<index>.seg` of one table and owner. */
class Segments {
  constructor(folder, table, owner, runTag, { subscription = 0, capacity = CAPACITY } = {}) {
    Object.assign(this, { folder, table, owner, runTag, subscription, capacity, index: 0, left: 0 });
    this.rowBytes = TABLES[table].rowBytes;
  }

  /** Place of the next row: file and offset, in a new file when the current one is full. */
  next() {
    if (this.left === 0) this.rotate();
    const place = { file: this.file, at: this.at };
    this.at += this.rowBytes;
    this.left--;
    return place;
  }

  // Files stay open: an outcome may come long after its row was written.
  rotate() {
    const name = `${this.table}-${this.owner}-${String(this.index).padStart(6, "0")}.seg`;
    const whole = path.join(this.folder, name);
    const part = `${whole.slice(0, -4)}.part`;
    try {
      const file = fs.openSync(part, "wx+", 0o644);
      // Zeros reserve the blocks: a full disk is an error here, and not in the middle of a row.
      writeWhole(file, Buffer.alloc(SEGMENT_HEADER_BYTES + this.rowBytes * this.capacity), 0);
      writeWhole(file, this.header(), 0);
      fs.renameSync(part, whole);
      Object.assign(this, { file, at: SEGMENT_HEADER_BYTES, left: this.capacity });
      this.index++;
    } catch (error) {
      fs.rmSync(part, { force: true });
      throw new Failure(
        `cannot write capture file ${whole}: ${reason(error)}`, "free disk space, or point --run-dir at another disk",
      );
    }
  }

  header() {
    const b = Buffer.alloc(SEGMENT_HEADER_BYTES);
    b.write("BSTORM1\0", "latin1");
    b.writeUInt16LE(TABLES[this.table].number, 8);
    b.writeUInt16LE(this.rowBytes, 10);
    [this.owner, this.index, this.capacity, this.runTag, this.subscription].forEach((value, k) => {
      b.writeUInt32LE(value, 12 + 4 * k);
    });
    return b;
  }
}

function writeWhole(file, bytes, at) {
  for (let done = 0; done < bytes.length; ) done += fs.writeSync(file, bytes, done, bytes.length - done, at + done);
}

function reason(error) {
  const known = { ENOSPC: "No space left on device", ENOENT: "No such file or directory" };
  return known[error.code] || error.message;
}

/** The part of a sends row that is known before the call, state last. */
function openSend(row, header, startNs) {
  const b = Buffer.alloc(40);
  b.writeUInt32LE(header.lane, 0);
  b.writeUInt16LE(header.attempt || 0, 4);
  b[6] = header.kind;
  b.writeBigUInt64LE(BigInt(header.seq), 8);
  b.writeBigInt64LE(BigInt(header.dueNs), 16);
  b.writeBigInt64LE(BigInt(startNs), 24);
  b[32] = 1;
  fs.writeSync(row.file, b, 0, b.length, row.at);
}

/** What the client told, outcome last. */
function completeSend(row, { doneNs, position = -1, stream = 0, error = 0, outcome }) {
  const b = Buffer.alloc(49);
  b.writeBigInt64LE(BigInt(doneNs), 0);
  b.writeBigInt64LE(BigInt(position), 8);
  b.writeInt32LE(stream, 32);
  b.writeInt32LE(error, 44);
  b[48] = outcome;
  fs.writeSync(row.file, b, 0, b.length, row.at + 40);
}

/** A second answer for a row that has an outcome. */
function lateOutcome(row, outcome) {
  fs.writeSync(row.file, Buffer.from([outcome]), 0, 1, row.at + 89);
}

function writeDelivery(row, { tNs, position, stream, epoch, value, check = 0, event }) {
  const b = Buffer.alloc(TABLES.deliveries.rowBytes);
  b.writeBigInt64LE(BigInt(tNs), 0);
  b.writeBigInt64LE(BigInt(position), 8);
  b.writeInt32LE(stream, 32);
  b.writeUInt32LE(epoch, 40);
  b.writeInt32LE(-1, 44); // redelivery: the client shows none
  if (value) value.copy(b, 48, 0, 48);
  b[96] = check;
  b[97] = event;
  fs.writeSync(row.file, b, 0, 98, row.at);
}

/** The row of a reader's log; the self-test writes some. */
function writeLog(row, { position, brokerTimeMs, stream, check, value }) {
  const b = Buffer.alloc(TABLES.log.rowBytes);
  b.writeBigInt64LE(BigInt(position), 0);
  b.writeBigInt64LE(-1n, 16);
  b.writeBigInt64LE(BigInt(brokerTimeMs), 24);
  b.writeInt32LE(stream, 32);
  b[45] = check;
  value.copy(b, 48, 0, 48);
  b[96] = 1;
  fs.writeSync(row.file, b, 0, b.length, row.at);
}

/** names.jsonl: the text of every id used in rows, on disk before the id's first use. */
class Names {
  constructor(folder, streams) {
    this.path = path.join(folder, "names.jsonl");
    this.ids = new Map();
    this.nextId = 1;
    try {
      this.file = fs.openSync(this.path, "a", 0o644);
    } catch (error) {
      throw new Failure(`cannot write ${this.path}: ${reason(error)}`);
    }
    for (const [text, id] of Object.entries(streams).sort((a, b) => a[1] - b[1])) {
      this.add("stream", text, id);
      this.nextId = Math.max(this.nextId, id + 1);
    }
  }

  id(kind, text) {
    const known = this.ids.get(`${kind} ${text}`);
    if (known) return known;
    this.add(kind, text, this.nextId);
    return this.nextId++;
  }

  add(kind, text, id) {
    this.ids.set(`${kind} ${text}`, id);
    const line = { id, kind, text: kind === "error" ? withoutSecrets(text) : text };
    try {
      fs.writeSync(this.file, `${JSON.stringify(line)}\n`);
    } catch (error) {
      throw new Failure(`cannot write ${this.path}: ${reason(error)}`, "free disk space");
    }
  }
}

module.exports = { Segments, Names, OUTCOME, openSend, completeSend, lateOutcome, writeDelivery, writeLog };
