"use strict";

/** CLOCK_MONOTONIC in ns. A double holds them exactly for 104 days after the machine started. */
function nowNs() {
  const [seconds, ns] = process.hrtime();
  return seconds * 1e9 + ns;
}

function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

/** Time the process has used, in ns. */
function cpuNs() {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

module.exports = { nowNs, sleep, cpuNs };
