// Bodies in the user's shape: a text with places for the identity and the number of each message. The identity travels
// in a message header: the payload of a plain message without what is between its header and its trailer.
"use strict";
const { HEADER_BYTES, MIN_PAYLOAD_BYTES } = require("./layouts");

/** Name of the message header that has the identity of a body. */
const IDENTITY_HEADER = "brokerstorm";
const PLACE = /\{(id|n|key|lane|producer)\}/;

/** Makes the bodies of one producer instance. */
class Template {
  constructor(text, instance) {
    Object.assign(this, { instance, parts: text.split(PLACE) });
  }

  /** The body of one message, in UTF-8. Attempts begin with 0. */
  body(lane, seq, attempt) {
    const id = `${this.instance}/${lane.number}/${seq}${attempt ? `.${attempt}` : ""}`;
    const places = { id, n: seq, key: lane.key ?? "", lane: lane.number, producer: this.instance };
    // `split` gives text and names of places in turns.
    return Buffer.from(this.parts.map((part, i) => (i % 2 ? places[part] : part)).join(""));
  }
}

/** Body of a payload, and the identity for its header. */
function parted(payload) {
  const trailerAt = payload.length - (MIN_PAYLOAD_BYTES - HEADER_BYTES);
  return {
    body: payload.subarray(HEADER_BYTES, trailerAt),
    identity: Buffer.concat([payload.subarray(0, HEADER_BYTES), payload.subarray(trailerAt)]),
  };
}

/** The payload that was sent, of a value and the headers of its message; the value alone if they have no identity. */
function joined(value, headers) {
  const identity = (headers || {})[IDENTITY_HEADER];
  const isWhole = value && value.length >= 2 && value.toString("latin1", 0, 2) === "BS";
  if (isWhole || !Buffer.isBuffer(identity) || identity.length !== MIN_PAYLOAD_BYTES) return value;
  return Buffer.concat([
    identity.subarray(0, HEADER_BYTES), value || Buffer.alloc(0), identity.subarray(HEADER_BYTES),
  ]);
}

module.exports = { IDENTITY_HEADER, Template, parted, joined };
