// Options come as text; a client of JavaScript checks none of their names.
"use strict";
const { Failure } = require("./failure");

const PARSERS = {
  text: (text) => text,
  number: (text) => {
    const value = Number(text);
    if (text.trim() === "" || Number.isNaN(value)) throw new Error("a number");
    return value;
  },
  flag: (text) => {
    if (text !== "true" && text !== "false") throw new Error("true or false");
    return text === "true";
  },
};

/**
 * Nested objects of the options: `client.retry.retries` -> {client: {retry: {retries: 3}}}. known: type of each by
 * its path, or an object of the values that a word stands for.
 */
function nested(library, options, known) {
  const made = {};
  for (const [name, given] of Object.entries(options)) {
    const type = known[name];
    if (type === undefined) throw unknownOption(library, name, Object.keys(known));
    const steps = name.split(".");
    const last = steps.pop();
    const at = steps.reduce((object, step) => (object[step] ??= {}), made);
    at[last] = parsed(library, name, String(given), type);
  }
  return made;
}

function parsed(library, name, text, type) {
  if (typeof type === "object") {
    const word = Object.keys(type).find((each) => each.toLowerCase() === text.toLowerCase());
    if (word !== undefined) return type[word];
    throw new Failure(`${library}: option ${name}: "${text}" must be one of ${Object.keys(type).join(", ")}`);
  }
  try {
    return PARSERS[type](text);
  } catch (error) {
    throw new Failure(`${library}: option ${name}: "${text}" must be ${error.message}`);
  }
}

function unknownOption(library, name, known) {
  const near = [...known].sort((a, b) => distance(name, a) - distance(name, b)).slice(0, 3);
  return new Failure(`${library} has no option ${name}; near: ${near.join(", ")}`);
}

/** Levenshtein's, without regard to case. */
function distance(a, b) {
  [a, b] = [a.toLowerCase(), b.toLowerCase()];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const current = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = previous[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      current.push(Math.min(same, previous[j] + 1, current[j - 1] + 1));
    }
    previous = current;
  }
  return previous[b.length];
}

module.exports = { nested };
