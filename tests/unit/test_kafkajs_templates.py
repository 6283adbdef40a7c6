"""The worker of kafkajs sends a template's body with its identity in a header, and reads both as
one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A producer that keeps the message of `sendBatch`, and a consumer that hands it over twice, once
#: damaged.
DRIVE = """
const [root, folder] = process.argv.slice(1);
const { Client } = require(root + "/workers/kafkajs/producer.js");
const { Member } = require(root + "/workers/kafkajs/consumer.js");
const { OpenLoop } = require(root + "/workers/node_kit/open_loop.js");
const { EventEmitter } = require("events");

const producer = {
  instance: 7, payload_bytes: 60, payload_max_bytes: 90, payload_template: '{"id": "{id}", "n": {n}}',
  lane_groups: [{ topic: "orders", mode: "partition", first: 3, count: 1 }], capture: false,
  rate_per_s: 1, warm_up_s: 0, load_s: 1, headers: [["trace", "x"]],
};
const consumer = { group: "billing", session: 1, work_s: 0 };
const spec = { capture_dir: folder, run_tag: 1, producer, consumer };
const session = { spec, names: { id: () => 1 }, report: { error: () => {}, event: () => {} } };

let sent;
const kept = {
  sendBatch: async ({ topicMessages }) => {
    sent = topicMessages[0].messages[0];
    return [];
  },
};
class Consumer extends EventEmitter {
  events = { GROUP_JOIN: "join", CRASH: "crash", COMMIT_OFFSETS: "committed" };
  async run({ eachMessage }) {
    const damaged = Buffer.from(sent.value);
    damaged[0] ^= 1;
    for (const value of [sent.value, damaged]) {
      const message = { offset: "5", value, headers: sent.headers };
      await eachMessage({ topic: "orders", partition: 0, message });
    }
  }
}

(async () => {
  const loop = new OpenLoop(session);
  const options = { app: { outstanding: 10 } };
  const client = new Client(loop, kept, options, { CompressionTypes: { None: 0 } });
  loop.complete = () => {};
  const [lane] = loop.lanes;
  await client.send([loop.written({ lane, seq: 42, dueNs: 5, kind: 2, attempt: 0 }, 5)]);
  const member = new Member(session, new Consumer());
  const checks = [];
  member.journal.write = (stream, fields) => checks.push(fields.check);
  await member.run({});
  console.log(JSON.stringify({ body: sent.value.toString(), headers: Object.keys(sent.headers), checks }));
})();
"""


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node")
def test_a_body_is_sent_and_read_with_its_identity(tmp_path: Path) -> None:
    done = subprocess.run(
        ["node", "-e", DRIVE, str(ROOT), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ok, corrupt = 0, 1
    assert json.loads(done.stdout) == {
        "body": '{"id": "7/3/42", "n": 42}',
        "headers": ["trace", "brokerstorm"],
        "checks": [ok, corrupt],
    }
