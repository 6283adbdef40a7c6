// What ends a worker with a clear line, and what is written down of errors.
"use strict";

/** Ends the worker: an `error` line with "fatal": true, and exit code 4. */
class Failure extends Error {
  constructor(text, hint = "") {
    super(text.split(/\s+/).join(" "));
    this.hint = hint;
  }
}

// They stand in nothing that this process writes down; the longest first.
let secrets = [];
function hide(found) {
  secrets = found;
}

function withoutSecrets(text) {
  return secrets.reduce((left, secret) => left.split(secret).join("(secret)"), text);
}

const VARYING = /[0-9a-fA-F.:[\]]*:\d+|\d+/g;

/** The text behind an error id: class and first line, without addresses and numbers. */
function errorText(name, message) {
  const line = withoutSecrets(String(message)).split("\n")[0].replace(VARYING, "*");
  return `${name}: ${line.slice(0, 200)}`;
}

module.exports = { Failure, hide, withoutSecrets, errorText };
