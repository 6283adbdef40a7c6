// Payloads and their checks (docs/capture-format.md). All integers are little-endian.
"use strict";
const crypto = require("crypto");

const {
  TABLES, KIND, OUTCOME, CHECK, EVENT, HEADER_BYTES, MIN_PAYLOAD_BYTES,
} = require("./numbers.js");

// Bytes that no codec makes smaller, which compressible payloads are cut from.
const POOL_BYTES = 1 << 22;
const MASK = (1n << 64n) - 1n;

const CRC_TABLE = new Int32Array(256).map((_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

/** CRC-32 of bytes [0, end), unsigned. */
function crc32(bytes, end) {
  let crc = -1;
  for (let i = 0; i < end; i++) crc = CRC_TABLE[(crc ^ bytes[i]) & 0xff] ^ (crc >>> 8);
  return (crc ^ -1) >>> 0;
}

/** Filling of messages that are alike: a linear congruential generator (Numerical Recipes), its high byte. */
function filler(count) {
  const out = Buffer.alloc(count);
  for (let i = 0, state = 1; i < count; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    out[i] = state >>> 24;
  }
  return out;
}

let poolMade;
/** SHA-256 of 0, 1, 2 ... (32 bits, little-endian), one behind the other. */
function pool() {
  if (!poolMade) {
    poolMade = Buffer.alloc(POOL_BYTES);
    const number = Buffer.alloc(4);
    for (let k = 0; k * 32 < POOL_BYTES; k++) {
      number.writeUInt32LE(k);
      crypto.createHash("sha256").update(number).digest().copy(poolMade, k * 32);
    }
  }
  return poolMade;
}

/** Sizes of the payloads of a producer instance, and what fills them; `compressible` -1 = all are filled alike. */
class Sizes {
  constructor(least, most, instance, table = [], compressible = -1) {
    Object.assign(this, { least, most, instance: BigInt(instance), table, compressible });
    this.alike = filler(most);
  }

  /** A number of 64 bits for one message, the same in every language (SplitMix64). */
  mixed(lane, seq) {
    let x = ((BigInt(seq) + 1n) * 0x9e3779b97f4a7c15n + ((this.instance << 32n) | BigInt(lane))) & MASK;
    x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
    return x ^ (x >> 31n);
  }

  of(lane, seq) {
    if (this.least === this.most) return this.least;
    const high = this.mixed(lane, seq) >> 32n;
    if (this.table.length) return this.table[Number((high * BigInt(this.table.length)) >> 32n)];
    return this.least + Number((high * BigInt(this.most - this.least + 1)) >> 32n);
  }

  filling(lane, seq, length) {
    const room = length - MIN_PAYLOAD_BYTES;
    if (this.compressible < 0) return this.alike.subarray(0, room);
    const own = room - Math.min(room, Math.floor((length * this.compressible) / 1000));
    const at = Number(((this.mixed(lane, seq) & 0xffffffffn) * BigInt(POOL_BYTES - own)) >> 32n);
    const made = Buffer.alloc(room);
    pool().copy(made, 0, at, at + own);
    return made;
  }
}

/** One whole payload; header: runTag, instance, lane, seq, dueNs, kind, key, attempt. */
function encode(header, filling) {
  const length = MIN_PAYLOAD_BYTES + filling.length;
  const b = Buffer.alloc(length);
  b.write("BS", "latin1");
  b[2] = 1;
  b[3] = header.kind;
  b.writeUInt32LE(header.runTag, 4);
  b.writeUInt32LE(header.instance, 8);
  b.writeUInt32LE(header.lane, 12);
  b.writeBigUInt64LE(BigInt(header.seq), 16);
  b.writeBigInt64LE(BigInt(header.dueNs), 24);
  b.writeUInt32LE(header.key || 0, 32);
  b.writeUInt16LE(header.attempt || 0, 36);
  b.writeUInt32LE(length, 40);
  filling.copy(b, HEADER_BYTES);
  b.writeUInt32LE(crc32(b, length - 4), length - 4);
  return b;
}

/** What kind of payload a reader found. */
function check(value, runTag) {
  if (!value || value.length < 2 || value[0] !== 0x42 || value[1] !== 0x53) return CHECK.foreign;
  if (value.length < MIN_PAYLOAD_BYTES || value[2] !== 1 || value[3] > KIND.load) return CHECK.corrupt;
  const whole = value.readUInt32LE(40) === value.length;
  if (!whole || crc32(value, value.length - 4) !== value.readUInt32LE(value.length - 4)) return CHECK.corrupt;
  return value.readUInt32LE(4) === runTag ? CHECK.ok : CHECK.otherRun;
}

module.exports = {
  TABLES, KIND, OUTCOME, CHECK, EVENT, HEADER_BYTES, MIN_PAYLOAD_BYTES, Sizes, encode, check, filler,
};
