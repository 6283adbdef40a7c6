"""Contract of producers in transactions: their journal, the outcomes of their sends, and what can
be read."""

from __future__ import annotations

from harness.contract.checks import check
from harness.contract.driving import Rows, dense, equal, expect, messages
from harness.contract.rig import Rig
from harness.records import Asked, Outcome, TableId

_IDS, _MESSAGES, _ABORT_EVERY = 2, 50, 3


@check("producer", supports={"transactions": "produce"})
def sends_have_the_outcome_of_their_transaction(rig: Rig) -> None:
    """Check that every send has the outcome of its transaction: committed or aborted."""
    topic = rig.topic()
    asked = {"id": topic, "messages": _MESSAGES, "every_s": 0.0, "abort_every": _ABORT_EVERY}
    options = {**rig.worker.transactional, **rig.worker.contract.durable}
    producer = rig.producer(
        topic, options=options, asked={"threads": _IDS, "transactions": asked}
    ).send_all()
    sends, rows = producer.sends, producer.rows(TableId.TRANSACTIONS)
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    numbers = rows["number"].tolist()
    equal("numbers that occur twice", len(numbers) - len(set(numbers)), 0)
    equal(
        "transactions of sends without a row",
        set(sends["transaction"].tolist()) - set(numbers),
        set(),
    )
    for row in rows:
        _check(row, sends[sends["transaction"] == row["number"]])
    kept = sends[sends["outcome"] == Outcome.OK]
    equal("ok", producer.done_line.ok, len(kept))
    equal("aborted", producer.done_line.aborted, len(sends) - len(kept))
    rig.stored(topic)  # after the last marker
    seen = rig.audit(topic, isolation="read_committed").rows(TableId.LOG)
    ours = seen["header"][seen["header"]["kind"] > 0]
    equal(
        "messages that readers of committed data see",
        sorted(messages(ours)),
        sorted(messages(kept)),
    )


def _check(row: Rows, sends: Rows) -> None:
    """One transaction and its sends."""
    number = int(row["number"])
    turn, thread = divmod(number - 1, _IDS)
    is_aborted = (turn + 1) % _ABORT_EVERY == 0
    wanted = Outcome.ABORTED if is_aborted else Outcome.OK
    equal(f"id of transaction {number}", int(row["id"]), thread)
    equal(
        f"what was asked of transaction {number}",
        row["asked"],
        Asked.ABORT if is_aborted else Asked.COMMIT,
    )
    equal(f"outcome of transaction {number}", row["outcome"], wanted)
    equal(f"outcomes of its {len(sends)} sends", set(sends["outcome"].tolist()), {int(wanted)})
    expect(0 < len(sends) <= _MESSAGES, f"transaction {number} has {len(sends)} sends")
    in_order = (
        row["t_begin_ns"] <= sends["t_start_ns"].min()
        and sends["t_start_ns"].max() <= row["t_asked_ns"]
    )
    expect(in_order, f"sends of transaction {number} began before or after it")
    expect(
        row["t_asked_ns"] <= row["t_done_ns"],
        f"transaction {number} was answered before it was asked",
    )
