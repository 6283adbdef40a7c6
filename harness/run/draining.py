"""Decides when the consumers of a run have seen everything that was stored.

Where positions are dense (Kafka) a group is done when some member is at the end of each of its
partitions; a share group, whose members have no position, when the brokers say that it has settled
all of them. Elsewhere the brokers are asked what a subscription has not acknowledged yet (Pulsar)
or what a queue still holds (Qpid). A consumer that never acknowledges is done when it was handed as
many messages as were stored and nothing more comes. A subscription that is not durable is done when
the brokers have given out everything up to the end of the log, and nothing more comes out of its
clients.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from harness.contracts.plan import ConsumerPlan, PipelinePlan, Plan
from harness.contracts.worker import StatsLine
from harness.errors import BrokerstormError
from harness.protocols.cluster import Admin, HasBacklogs, HasShareGroups
from harness.run.worker_specs import group_id

#: A consumer that was handed nothing for this long gets nothing more.
QUIET_S = 3.0
#: Between two questions to the brokers: with a hundred topics one takes a while.
ASK_EVERY_S = 1.0
#: What a backlog is called that belongs to the stream and not to one subscription (a queue).
ANY_SUBSCRIPTION = ""


class DrainCheck:
    """Ask `is_done` until it says so. Make it when no producer can write any more."""

    def __init__(
        self, plan: Plan, admin: Admin, *, stored: int, remade: Collection[str] = frozenset()
    ) -> None:
        """
        Args:
            stored: messages that were acknowledged to producers.
            remade: topics that were recreated: a position above the end of one is of the one
                before.
        """
        self._remade = remade
        self._plan = plan
        self._admin = admin
        self._stored = stored
        self._ends: Mapping[str, int] | None = None
        self._next_question = 0.0
        self._delivered, self._delivered_since = -1, 0.0
        longest_work_s = max((consumer.work_s for consumer in plan.consumers), default=0.0)
        self._quiet_s = QUIET_S + longest_work_s

    def is_done(self, stats: Sequence[StatsLine]) -> bool:
        """``stats``: the latest of each consumer, in the order of the plan."""
        if self._ends is not None and not any(map(shares, self._plan.consumers)):
            return self._is_caught_up(stats)
        if time.monotonic() < self._next_question:
            return False
        self._next_question = time.monotonic() + ASK_EVERY_S
        if not isinstance(self._admin, HasBacklogs):
            # The brokers may still be busy with themselves; there is a deadline.
            with suppress(BrokerstormError):
                self._ends = self._ends or self._admin.end_offsets(_names(self._plan))
                return self._is_caught_up(stats)
            return False
        return self._is_quiet(stats) and self._is_settled(self._admin)

    def _is_caught_up(self, stats: Sequence[StatsLine]) -> bool:
        ends, lags = self._ends or {}, _share_lags(self._plan, self._admin)
        settled = {
            group: {stream: ends.get(stream, 0) - lag for stream, lag in own.items()}
            for group, own in lags.items()
        }
        reached = [
            settled.get(consumer.group) or _positions(self._plan, each)
            for each, consumer in zip(stats, self._plan.consumers, strict=True)
        ]
        return caught_up(self._plan, ends, [self._of_now(ends, each) for each in reached])

    def _of_now(self, ends: Mapping[str, int], reached: Mapping[str, int]) -> Mapping[str, int]:
        """Without positions in topics that do not exist any more."""
        gone = {
            s
            for s, at in reached.items()
            if s.rpartition("-")[0] in self._remade and at > ends.get(s, at)
        }
        return {stream: at for stream, at in reached.items() if stream not in gone}

    def _is_quiet(self, stats: Sequence[StatsLine]) -> bool:
        """Whether consumers of which no backlog tells what they were handed get nothing more.

        One that never acknowledges was handed at least as much as is stored. One whose subscription
        is not durable is given messages again, so its count says nothing; the brokers say what they
        did not send.
        """
        pairs = list(zip(stats, self._plan.consumers, strict=True))
        silent = [each for each, consumer in pairs if consumer.settle == "none"]
        watched = silent + [
            each for each, c in pairs if c.settle != "none" and not c.promise.durable
        ]
        if not watched:
            return True
        delivered = sum(each.delivered for each in watched)
        if delivered != self._delivered:
            self._delivered, self._delivered_since = delivered, time.monotonic()
            return False
        if silent and sum(each.delivered for each in silent) < self._stored:
            return False
        return time.monotonic() - self._delivered_since > self._quiet_s

    def _is_settled(self, admin: HasBacklogs) -> bool:
        try:
            backlogs = admin.backlogs(_names(self._plan))
        except BrokerstormError:
            return False
        return not any(True for _ in _behind(self._plan, backlogs))


def _names(plan: Plan) -> list[str]:
    return [topic.name for topic in plan.topics]


def _positions(plan: Plan, stats: StatsLine) -> dict[str, int]:
    """Stream -> the position after the last message that a consumer says it was handed."""
    names = plan.worker_streams
    return {names.get(told, told): at for told, at in stats.positions.items()}


def shares(consumer: ConsumerPlan) -> bool:
    """Whether it settles messages one by one where positions are dense: a share group (KIP-932)."""
    return consumer.promise.subscription == "shared"


def _share_lags(plan: Plan, admin: Admin) -> dict[str, Mapping[str, int]]:
    """Share group -> stream -> messages that it has not settled.

    Raises:
        BrokerstormError: the brokers cannot say now.
    """
    if not isinstance(admin, HasShareGroups):
        return {}
    topics = {consumer.group: consumer.topics for consumer in plan.consumers if shares(consumer)}
    return {group: admin.share_lags(group_id(plan, group), own) for group, own in topics.items()}


def _behind(plan: Plan, backlogs: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Streams of which a group that settles has not settled everything, or it is not known."""
    for group, topics in _group_topics(plan, {"none"}).items():
        name = group_id(plan, group)
        for topic in (each for each in plan.topics if each.name in topics):
            for partition in range(topic.partitions):
                stream = f"{topic.name}-{partition}"
                found = backlogs.get(stream, {})
                if found.get(name, found.get(ANY_SUBSCRIPTION, 1)):
                    yield stream


def _group_topics(plan: Plan, without: set[str]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for consumer in plan.consumers:
        if consumer.settle not in without:
            groups.setdefault(consumer.group, set()).update(consumer.topics)
    return groups


def waiting_for(plan: Plan, admin: Admin, stats: Sequence[StatsLine], number: int) -> int:
    """Messages that lie there for consumer ``number`` of the plan, by its own account and the
    brokers'.

    Where positions are dense: those above the last one handed over, in the partitions that it read
    last or that no member of its group has read yet. Elsewhere: what its subscription, or the
    queue, still holds.

    Raises:
        BrokerstormError: the brokers cannot say now.
    """
    consumer = plan.consumers[number]
    if isinstance(admin, HasBacklogs):
        if consumer.settle == "none":
            return 0  # it never gives back what it was handed: a backlog says nothing
        held = admin.backlogs(consumer.topics)
        name = group_id(plan, consumer.group)
        return sum(found.get(name, found.get(ANY_SUBSCRIPTION, 0)) for found in held.values())
    if shares(consumer):
        return sum(_share_lags(plan, admin).get(consumer.group, {}).values())
    members = [
        _positions(plan, each)
        for each, member in zip(stats, plan.consumers, strict=True)
        if member.group == consumer.group
    ]
    own = _positions(plan, stats[number])
    waiting = 0
    for stream, end in admin.end_offsets(consumer.topics).items():
        read_to = max(member.get(stream, 0) for member in members)
        if read_to == own.get(stream, 0):
            waiting += max(0, end - read_to)
    return waiting


def caught_up(plan: Plan, ends: Mapping[str, int], positions: Sequence[Mapping[str, int]]) -> bool:
    """True when, for every group, some member is at the end of each of its partitions."""
    members: dict[str, list[Mapping[str, int]]] = {}
    for consumer, position in zip(plan.consumers, positions, strict=True):
        members.setdefault(consumer.group, []).append(position)
    for group, topics in _group_topics(plan, set()).items():
        for stream, end in ends.items():
            if stream.rpartition("-")[0] not in topics:
                continue
            if end and max(int(member.get(stream, 0)) for member in members[group]) < end:
                return False
    return True


def stages(pipelines: Sequence[PipelinePlan]) -> list[list[PipelinePlan]]:
    """Members in the order in which they can come to the end of what they read: those that read
    what others make after these."""
    left, found = list(pipelines), list[list[PipelinePlan]]()
    while left:
        made = {member.to for member in left}
        found.append([member for member in left if member.source not in made])
        left = [member for member in left if member.source in made]
    return found
