"""Leader epochs of Kafka's partitions: who led since when, and at which offset each epoch begins in
the log.

Two sources. The metadata log (`kafka_metadata_log`) has every leader with its epoch and time, also
of epochs in which nothing was written. Where an epoch begins is asked of the leader of now, by the
request that a follower truncates its log by (OffsetsForLeaderEpoch, KIP-101): so it says what
became of the log, not what a node that was deposed believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.admin.failover import ASK_S, POLL_S
from harness.contracts.rows import Leadership
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Node
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.metadata_log import METADATA_LOG, NOBODY, Epoch, LeaderHistory
from harness.waiting import wait_while
from harness.wall_clock import WallClock

_LOG = logging.getLogger(__name__)
#: A file below a node's data folder, None when it is not there (`NodeRuntime.read_data`).
NodeData = Callable[[str, str], bytes | None]
Partition = tuple[str, int]
#: Leader (a node's name) and leader epoch of each partition, as brokers describe it now.
Described = Mapping[Partition, tuple[str | None, int]]


@dataclass(frozen=True, slots=True)
class _Look:
    """The view of both sources at one moment; ``starts`` has the offset at which each epoch begins
    in the log.
    """

    described: Described
    history: LeaderHistory | None
    starts: Mapping[Partition, Mapping[int, int]]

    def is_settled(self, one: Partition) -> bool:
        """Whether both know the same last epoch: soon after an election one of them may not."""
        leader, epoch = self.described[one]
        known = self.history.epochs(*one)[-1].number if self.history else epoch
        return leader is not None and known == epoch and epoch in self.starts.get(one, ())


def leaderships(
    ask: KafkaFailover,
    data: NodeData,
    nodes: Sequence[Node],
    describe: Callable[[], Described],
    *,
    within_s: float = ASK_S,
) -> list[Leadership]:
    """All epochs of the partitions, in order.

    Args:
        within_s: so long both sources may disagree; where they still do, no epoch is known to begin
            anywhere.

    Raises:
        EnvironmentNotReady: no broker answers.
    """
    looks: list[_Look] = []

    def unsettled() -> bool:
        described = describe()
        looks[:] = [
            _Look(described, _history(data, nodes, set(described)), _starts(ask, described))
        ]
        return not all(map(looks[0].is_settled, described))

    wait_while(unsettled, within_s, every_s=POLL_S)
    clock, found = WallClock.now(), []
    names: dict[int, str | None] = {NOBODY: None} | {node.number: node.name for node in nodes}
    for one in sorted(looks[0].described):
        first = looks[0].starts[one] if looks[0].is_settled(one) else {}
        known = looks[0].history.epochs(*one) if looks[0].history else ()
        found += [
            Leadership(
                stream=f"{one[0]}-{one[1]}",
                term=epoch.number,
                leader=names.get(epoch.leader, ""),
                t_ns=clock.t_ns_of_ms(epoch.since_ms),
                first=first.get(epoch.number),
                over_ns=clock.t_ns_of_ms(epoch.over_ms),
                unclean=epoch.unclean,
            )
            for epoch in known or [Epoch(epoch, 0, 0) for epoch in sorted(first)]
        ]
    return found


def _history(data: NodeData, nodes: Sequence[Node], wanted: set[Partition]) -> LeaderHistory | None:
    """Return the history from the first node whose log has all the partitions; None if no node has
    them."""
    for node in nodes:
        try:
            log = data(node.name, METADATA_LOG)
            history = LeaderHistory(log) if log else None
        except (EnvironmentNotReady, ValueError) as error:
            _LOG.warning("the metadata log of %s tells nothing: %s", node.name, error)
            continue
        if history and all(history.epochs(*partition) for partition in wanted):
            return history
    return None


def _starts(ask: KafkaFailover, described: Described) -> dict[Partition, dict[int, int]]:
    """Partition -> epoch -> offset at which it begins; only epochs that have messages, and the last
    one. Partitions without a leader that answers for them are left out."""
    starts: dict[Partition, dict[int, int]] = {}
    for leader in sorted({name for name, _ in described.values() if name}):
        own = {one: epoch for one, (name, epoch) in described.items() if name == leader}
        with suppress(EnvironmentNotReady):
            starts |= _walk(ask, leader, own)
    return starts


def _walk(
    ask: KafkaFailover, leader: str, current: Mapping[Partition, int]
) -> dict[Partition, dict[int, int]]:
    """From each partition's epoch of now back to its first: an epoch begins where the one before it
    ends."""
    starts: dict[Partition, dict[int, int]] = {one: {} for one in current}
    epochs = dict(current)
    while epochs:
        asked = {one: epoch - 1 for one, epoch in epochs.items()}
        ends = ask(lambda broker, asked=asked: broker.epoch_ends(asked), only=leader)  # type: ignore[misc]
        for one, epoch in list(epochs.items()):
            if one not in ends:  # it leads this one no longer
                del epochs[one], starts[one]
                continue
            before, end = ends[one]
            starts[one][epoch] = max(end, 0)
            epochs[one] = before
            if end <= 0 or before >= epoch or before < 0:
                del epochs[one]
    return starts
