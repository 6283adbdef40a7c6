// What error codes of Kafka's protocol mean for a send; workers/python_kit/worker_kit/kafka_codes.py has the sources.
"use strict";
const { OUTCOME } = require("./layouts");

// Checked before the append, and not tried again by clients.
const REJECTED = new Set([10, 17, 18, 21, 29, 31, 32, 43, 44, 76, 87]);
// Checked before the append, but tried again: final only when nothing ever is.
const REJECTED_THIS_ATTEMPT = new Set([2, 3, 5, 6, 19, 74, 75]);

function outcomeOf(code, retries) {
  const refused = REJECTED.has(code) || (!retries && REJECTED_THIS_ATTEMPT.has(code));
  return refused ? OUTCOME.fail : OUTCOME.info;
}

module.exports = { outcomeOf };
