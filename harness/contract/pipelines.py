"""Contract of members of a pipeline: one output of each input, which it names, and positions that
follow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from harness.contract.checks import check
from harness.contract.driving import Rows, dense, equal, expect
from harness.contract.rig import Rig
from harness.contracts.worker import StatsLine, TransactionsPart
from harness.records import Event, Outcome, TableId


@check("pipeline")
def of_each_message_one_is_made(rig: Rig) -> None:
    """Check that a pipeline without transactions makes one output of each message."""
    _makes_one_of_each(rig, None)


@check("pipeline", supports={"transactions": "produce"})
def outputs_and_positions_are_in_one_transaction(rig: Rig) -> None:
    """Check that outputs and positions are committed together, and that an aborted transaction is
    made again.
    """
    _makes_one_of_each(
        rig, TransactionsPart(id="contract", messages=50, every_s=0.2, abort_every=4)
    )


def _makes_one_of_each(rig: Rig, transactions: TransactionsPart | None) -> None:
    """Two sessions, the second after what the first has settled."""
    source, to = rig.topic(), rig.topic(partitions=2)
    wanted: list[tuple[int, int]] = []
    for session in (1, 2):
        member = rig.pipeline(source, to, transactions)
        sends = rig.feed(source).sends
        wanted += [(int(row["stream"]) - 1, int(row["position"])) for row in sends]
        ends = {f"{source}-{partition}": at + 1 for partition, at in sorted(wanted)}
        member.wait_stats(partial(_is_behind, ends))
        member.leave()
        made = member.sends
        expect(dense(made), "the sequences of a lane are not 0, 1, 2 ...")
        kept = made[made["outcome"] == Outcome.OK]
        equal(f"outputs of session {session} that count", len(kept), len(sends))
        aborted = len(member.events(Event.SEEK)) > 0
        equal("it aborts and reads again", aborted, transactions is not None)
    rig.stored(to)  # after the last marker
    rows = rig.audit(to, isolation="read_committed").rows(TableId.LOG)
    ours = rows[rows["header"]["kind"] > 0]
    equal("inputs that outputs name", sorted(map(_input, ours)), sorted(wanted))
    homes = {(int(row["stream"]) - 1, _input(row)[0] % rig.partitions[to]) for row in ours}
    equal("partitions of outputs beside those of inputs", {a == b for a, b in homes}, {True})


def _is_behind(ends: Mapping[str, int], stats: StatsLine) -> bool:
    return all(stats.positions.get(stream, 0) >= end for stream, end in ends.items())


def _input(row: Rows) -> tuple[int, int]:
    header = row["header"]
    return int(header["source_partition"]), int(header["source_position"])
