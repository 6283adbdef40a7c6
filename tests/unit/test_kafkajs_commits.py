"""The worker of kafkajs journals a commit as confirmed only when the client asked the brokers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A consumer whose `commitOffsets` returns as that of kafkajs does: after a request, then without
#: one.
DRIVE = """
const { Member } = require(process.argv[1] + "/workers/kafkajs/consumer.js");
const { Journal } = require(process.argv[1] + "/workers/node_kit/journal.js");
const { EventEmitter } = require("events");

class Consumer extends EventEmitter {
  constructor() {
    super();
    this.events = { GROUP_JOIN: "join", CRASH: "crash", COMMIT_OFFSETS: "committed" };
    this.isRunning = true;
  }
  async commitOffsets(positions) {
    if (this.isRunning) this.emit("committed", { payload: positions });
  }
}

const [said, told] = [[], []];
const event = (kind, _text, more) => told.push([kind, more.stream, more.position]);
const report = { error: (text) => said.push(text), event };
const names = { id: () => 1 };
const part = { group: "billing", session: 1, work_s: 0 };
const spec = { capture_dir: process.argv[2], run_tag: 1, consumer: part };
const session = { spec, names, report };
const consumer = new Consumer();
const member = new Member(session, consumer);
const written = [];
member.journal.write = (stream, fields) => written.push([stream, fields.position]);

(async () => {
  for (const isRunning of [true, false]) {
    consumer.isRunning = isRunning;
    written.length = 0;
    member.journal.uncommitted.set("orders-0", isRunning ? 5 : 9);
    await member.commit();
    const counts = { rows: written.length, said: said.length, told };
    console.log(JSON.stringify({ ...counts, ...report.counts().exposure }));
  }
})();
"""


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node")
def test_a_commit_that_was_never_sent_is_not_confirmed(tmp_path: Path) -> None:
    done = subprocess.run(
        ["node", "-e", DRIVE, str(ROOT), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    sent, unsent = map(json.loads, done.stdout.splitlines())
    assert sent == {"rows": 2, "said": 0, "told": []}  # asked, and confirmed
    told = [["commit-not-sent", "orders-0", 9]]
    assert unsent == {"rows": 1, "said": 1, "told": told, "commits_never_sent": 1}  # asked only
