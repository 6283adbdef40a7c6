// Bodies in the user's shape: a text with places for the identity and the number of each message. The identity travels
// in a message header: the payload of a plain message without what is between its header and its trailer.
"use strict";
const { HEADER_BYTES, MIN_PAYLOAD_BYTES } = require("./layouts");

/** Name of the message header that has the identity of a body. */
const IDENTITY_HEADER = "brokerstorm";
const PLACE = /\{(id|n|key|lane|producer)(?::([1-9][0-9]?))?\}/;

/** Makes the bodies of one producer instance. */
class Template {
  /** charset: "utf-8", or "latin-1", with which a character is one byte. */
  constructor(text, instance, charset = "utf-8") {
    // `split` gives a text, the name of a place and its width in turns.
    Object.assign(this, { instance, parts: text.split(PLACE), encoding: charset === "latin-1" ? "latin1" : "utf8" });
  }

  /** The body of one message. Attempts begin with 0. */
  body(lane, seq, attempt) {
    const places = { n: `${seq}`, key: lane.key ?? "", lane: `${lane.number}`, producer: `${this.instance}` };
    let made = "";
    for (let i = 0; i < this.parts.length; i += 3) {
      const [text, name, width] = this.parts.slice(i, i + 3);
      made += text;
      if (name === "id") {
        const before = `${this.instance}/${lane.number}/`;
        made += before + `${seq}${attempt ? `.${attempt}` : ""}`.padStart((width ?? 0) - before.length, "0");
      } else if (name) {
        made += places[name].padStart(width ?? 0, "0");
      }
    }
    return Buffer.from(made, this.encoding);
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
