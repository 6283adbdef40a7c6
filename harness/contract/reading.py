"""Contract of readers of the log: to the end that was fixed, and no further."""

from __future__ import annotations

from harness.contract.checks import check
from harness.contract.driving import equal, expect
from harness.contract.rig import Rig
from harness.records import TableId


@check("audit")
def every_stream_is_read_to_its_last_message(rig: Rig) -> None:
    topic = rig.topic()
    count = rig.feed(topic, rate=0, warm_up_s=0, load_s=1).done_message["ok"]
    expect(count >= rig.partitions[topic], f"the producer sent {count} messages only")
    audit = rig.audit(topic, worker=rig.worker)
    log, bounds = audit.rows(TableId.LOG), audit.bounds()
    probes = 0 if rig.system.is_queue else rig.partitions[topic]
    equal("messages read", len(log), count + probes)
    equal(
        "streams of the bounds", sorted(bounds), sorted(f"{topic}-{p}" for p in range(rig.partitions[topic]))
    )
    equal("why it stopped", {row["why"] for row in bounds.values()}, {"end"})
    equal("read_to beside end", [name for name, row in bounds.items() if row["read_to"] != row["end"]], [])
    equal("ends in sum", sum(row["end"] - row["begin"] for row in bounds.values()), len(log))
