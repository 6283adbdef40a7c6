"""One partition with three replicas, acknowledged by its leader alone: what truly lost each
message.

Nodes follow the leader, are cut off while they still believe that they lead, acknowledge what will
be thrown away, and truncate when they come back, as Kafka's replicas do (KIP-101). Time is the
number of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.contracts.rows import Leadership

NODES = ("kafka-1", "kafka-2", "kafka-3")
Entry = tuple[int, int]  # leader epoch, message


@dataclass(frozen=True)
class Acked:
    message: int
    position: int
    epoch: int  # of the leader that acknowledged it
    t_ns: int


@dataclass
class Partition:
    logs: list[list[Entry]] = field(default_factory=lambda: [[] for _ in NODES])
    believes: list[int] = field(default_factory=lambda: [0, 0, 0])  # the epoch each node knows
    leaders: list[tuple[int, int]] = field(default_factory=lambda: [(0, 1)])  # by epoch: node, time
    # epoch -> its leader is known to follow again
    over: dict[int, int] = field(default_factory=dict)
    acked: list[Acked] = field(default_factory=list)
    now: int = 1

    @property
    def epoch(self) -> int:
        return len(self.leaders) - 1

    def append(self, node: int) -> None:
        """A node that believes that it leads takes a message and acknowledges it."""
        self.now += 1
        epoch = self.believes[node]
        if self.leaders[epoch][0] == node:
            self.logs[node].append((epoch, len(self.acked)))
            self.acked.append(Acked(len(self.acked), len(self.logs[node]) - 1, epoch, self.now))

    def replicate(self, node: int, count: int) -> None:
        """A node that knows the leader truncates to what both have and fetches some more."""
        self.now += 1
        leader = self.leaders[self.epoch][0]
        if node == leader or self.believes[node] != self.epoch:
            return
        log, source = self.logs[node], self.logs[leader]
        same = next(
            (i for i, (a, b) in enumerate(zip(log, source, strict=False)) if a != b),
            min(len(log), len(source)),
        )
        self.logs[node] = source[: same + count]

    def learn(self, node: int) -> None:
        """A node hears of the epoch of now: what it led before is over."""
        self.now += 1
        self.believes[node] = self.epoch
        for epoch, (leader, _) in enumerate(self.leaders[:-1]):
            if leader == node:
                self.over.setdefault(epoch, self.now)

    def elect(self, node: int) -> None:
        """Another node that follows the leader of now becomes it; nobody else knows yet."""
        if node == self.leaders[self.epoch][0] or self.believes[node] != self.epoch:
            return
        self.replicate(node, 0)
        self.leaders.append((node, self.now))
        self.learn(node)

    def settle(self) -> None:
        for node in range(len(NODES)):
            self.learn(node)
            self.replicate(node, len(self.acked) + 1)

    def terms(self, *, over: bool) -> tuple[Leadership, ...]:
        log = self.logs[self.leaders[self.epoch][0]]
        first = {epoch: i for i, (epoch, _) in reversed(list(enumerate(log)))}
        first.setdefault(self.epoch, len(log))
        return tuple(
            Leadership(
                term=epoch,
                leader=NODES[node],
                t_ns=t_ns,
                first=first.get(epoch),
                over_ns=self.over.get(epoch, 0) if over else 0,
            )
            for epoch, (node, t_ns) in enumerate(self.leaders)
        )

    def lost(self) -> Sequence[Acked]:
        """Acknowledged, and not in the log that was left."""
        kept = {message for _, message in self.logs[self.leaders[self.epoch][0]]}
        return [one for one in self.acked if one.message not in kept]
