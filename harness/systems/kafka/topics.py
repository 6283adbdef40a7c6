"""Kafka's topics: made, removed, grown, with other settings, and what their partitions and logs are
now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, for_code
from kafka.protocol.consumer import OffsetSpec

from harness.admin.failover import ASK_S, POLL_S
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node, PartitionState, TopicSettings
from harness.rundir import Document
from harness.systems.kafka import KEEPS, LEAST_RETENTION_MS, POLICIES
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.single import PartitionRow, SettingRow, SingleBrokerAdmin, TopicRow
from harness.waiting import wait_while

_CREATE_S = 30.0
# How long a change of topics takes to reach every broker, at most.
_SPREAD_S = 10.0
_BATCH_PARTITIONS = 200  # a create request that a starved controller still answers in time
_OF_TOPIC = "DYNAMIC_TOPIC_CONFIG"
_ALREADY_EXISTS, _UNKNOWN_TOPIC = 36, 3


class TopicAdmin:
    """The part of the admin that is about topics.

    Args:
        nodes: of the cluster, those that may join it too.
        ask: of the brokers.
    """

    def __init__(self, nodes: Sequence[Node], ask: KafkaFailover) -> None:
        self._names = {node.number: node.name for node in nodes}
        self._numbers = {node.name: node.number for node in nodes}
        self._ask = ask

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics that keep their whole log, and wait until every broker in reach knows them:
        the controller answers before they do.

        Raises:
            UsageError: a topic exists, has settings that drop records, or Kafka refuses it (its
                words).
            EnvironmentNotReady: no broker answers.
        """
        wanted = {topic.name: {**topic_config(topic)} for topic in topics}
        for batch in _batches(topics):
            self._create(batch, wanted)

    def _create(
        self, batch: Sequence[TopicSettings], configs: Mapping[str, dict[str, str]]
    ) -> None:
        request = {
            topic.name: {
                "num_partitions": topic.partitions,
                "replication_factor": topic.replication,
                "configs": configs[topic.name],
            }
            for topic in batch
        }
        before: set[str] | None = None  # topics of another, which are never used

        def ask(broker: SingleBrokerAdmin) -> Any:
            nonlocal before
            if before is None:
                before = set(broker.list_topics())
            return broker.create_topics(request, timeout_ms=2000, raise_errors=False)

        def lacking() -> str:
            try:
                answer = self._ask(ask)
            except EnvironmentNotReady as error:
                return str(error)
            for row in answer["topics"]:
                # A request of ours may have been carried out although its answer never came: the
                # client sends it again by itself.
                ours = row["error_code"] == _ALREADY_EXISTS and row["name"] not in (before or ())
                if row["error_code"] == 0 or ours:
                    request.pop(row["name"], None)
                elif not for_code(row["error_code"]).retriable:
                    raise _refused("create", row)
            return ", ".join(request)

        if why := wait_while(lacking, _CREATE_S, every_s=POLL_S):
            raise EnvironmentNotReady(f"topics not created in {_CREATE_S:.0f} s: {why}")
        names = {topic.name for topic in batch}
        wait_while(lambda: any(names - known for known in self._known()), _SPREAD_S, every_s=POLL_S)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and wait until every broker in reach has forgotten them, so that their
        names can be used again at once; it is not an error if one does not exist.
        """
        if not names:
            return
        answer = self._ask(
            lambda broker: broker.delete_topics(list(names), timeout_ms=2000, raise_errors=False)
        )
        for row in answer["topics"]:
            if row["error_code"] not in (0, _UNKNOWN_TOPIC):
                raise _refused("delete", row)
        gone = set(names)
        wait_while(lambda: any(gone & known for known in self._known()), _SPREAD_S, every_s=POLL_S)

    def _known(self) -> Iterator[set[str]]:
        """The topics that each broker in reach knows."""
        for name in self._ask.reachable():
            with suppress(EnvironmentNotReady):
                yield set(self._ask(lambda broker: broker.list_topics(), only=name))

    def grow(self, topic: str, to: int) -> None:
        """Add partitions; see `GrowsTopics.grow`."""
        try:
            self._ask(methodcaller("create_partitions", {topic: to}, timeout_ms=2000))
        except UsageError:
            if len(self._partitions(topic)) < to:  # else a request of ours whose answer never came
                raise
        wait_while(
            lambda: any(count < to for count in self._counts(topic)), _SPREAD_S, every_s=POLL_S
        )

    def _counts(self, topic: str) -> Iterator[int]:
        """The partitions of a topic that each broker in reach knows."""
        return (len(row["partitions"]) for row in self._rows(topic))

    def _rows(self, topic: str) -> Iterator[TopicRow]:
        """Yield each reachable broker's view of a topic."""
        for name in self._ask.reachable():
            with suppress(EnvironmentNotReady):
                yield from self._topic_rows([topic], only=name)

    def _topic_rows(self, topics: Sequence[str], only: str = "") -> list[TopicRow]:
        found: list[TopicRow] = self._ask(methodcaller("describe_topics", list(topics)), only=only)
        return found

    def topic_ids(self, topic: str) -> frozenset[str]:
        """Return a topic's ids; see `RemakesTopics.topic_ids`."""
        return frozenset(str(row["topic_id"]) for row in self._rows(topic) if not row["error_code"])

    def made_of(self, topic: str) -> TopicSettings:
        """Return the settings that create the same topic; see `RemakesTopics.made_of`."""
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, None)]
        rows = self._ask(lambda broker: broker.describe_configs(asked, config_filter="all"))[
            "topic"
        ][topic]
        own = {
            key: str(row["value"]) for key, row in rows.items() if row["config_source"] == _OF_TOPIC
        }
        copies = self.replicas(topic)
        return TopicSettings(topic, len(copies), len(copies[0]), own)

    def topics(self) -> list[str]:
        """Names of all topics, internal ones included."""
        return sorted(self._ask(lambda broker: broker.list_topics()))

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Stream ("orders-0") -> the offset after its last readable message, asked of its leader.

        Raises:
            EnvironmentNotReady: a partition has no leader or its leader does not answer.
        """
        return self._offsets(topics, OffsetSpec.LATEST)

    def settings(self, topic: str, keys: Sequence[str]) -> dict[str, str]:
        """Return the settings in force; see `ChangesTopics.settings`."""
        return {key: str(row["value"]) for key, row in self._settings(topic, keys).items()}

    def own_settings(self, topic: str, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the topic's own settings; see `ChangesTopics.own_settings`."""
        rows = self._settings(topic, keys)
        return {
            k: str(r["value"]) if r["config_source"] == _OF_TOPIC else None for k, r in rows.items()
        }

    def _settings(self, topic: str, keys: Sequence[str]) -> dict[str, SettingRow]:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, list(keys))]
        found = self._ask(lambda broker: broker.describe_configs(asked, config_filter="all"))[
            "topic"
        ][topic]
        if missing := [key for key in keys if key not in found]:
            raise UsageError(f"Kafka knows no setting {missing[0]} of a topic")
        return {key: found[key] for key in keys}

    def change_settings(self, topic: str, to: Mapping[str, str | None]) -> None:
        """Change settings of a topic; see `ChangesTopics.change_settings`."""
        steps = {k: ("DELETE", None) if v is None else ("SET", v) for k, v in to.items()}
        self._alter(ConfigResource(ConfigResourceType.TOPIC, topic, steps))

    def log_spans(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first and last offsets; see `TruncatesLogs.log_spans`."""
        begins, ends = (
            self._offsets([topic], spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        return {int(stream.rpartition("-")[2]): (begins[stream], ends[stream]) for stream in begins}

    def truncate(self, topic: str, to: Mapping[int, int]) -> None:
        """Remove the beginning of logs with DeleteRecords, each sent to the leader of that moment;
        see `TruncatesLogs.truncate`.
        """
        left = dict(to)
        if why := wait_while(lambda: self._truncate(topic, left), ASK_S, every_s=POLL_S):
            raise EnvironmentNotReady(f"no leader removes messages of {topic}-{min(left)}: {why}")

    def _truncate(self, topic: str, left: dict[int, int]) -> str:
        """Ask the leaders once; why some of it is still to be done."""
        why = "it has no leader"
        leaders = self.leaders(topic)
        for name in sorted({leader for p, leader in leaders.items() if leader and p in left}):
            mine = {
                TopicPartition(topic, p): offset
                for p, offset in left.items()
                if leaders.get(p) == name
            }
            number = self._numbers[name]
            ask = methodcaller("delete_records", mine, timeout_ms=2000, partition_leader_id=number)
            try:
                self._ask(ask, only=name)
            except (EnvironmentNotReady, KafkaError) as error:
                why = str(error)
                continue
            for partition in mine:
                left.pop(partition.partition)
        return why if left else ""

    def _offsets(self, topics: Sequence[str], spec: OffsetSpec) -> dict[str, int]:
        """Stream -> the offset that a spec means, of its leader."""
        ends: dict[str, int] = {}
        deadline = time.monotonic() + ASK_S
        for topic in topics:
            find = partial(self._find_offsets, topic, spec, ends)
            if missing := wait_while(find, deadline - time.monotonic(), every_s=POLL_S):
                raise EnvironmentNotReady(
                    f"no leader tells the log end of {', '.join(missing[:5])}"
                )
        return ends

    def _find_offsets(self, topic: str, spec: OffsetSpec, ends: dict[str, int]) -> list[str]:
        """Add what the leaders of a topic tell to ``ends``; the streams that are still not in
        it."""
        leaders = self.leaders(topic)
        open_now = {p: name for p, name in leaders.items() if name and f"{topic}-{p}" not in ends}
        for name in sorted(set(open_now.values())):
            mine = [TopicPartition(topic, p) for p, at in open_now.items() if at == name]
            with suppress(EnvironmentNotReady):
                ends.update(self._offsets_at(name, mine, spec))
        return [f"{topic}-{p}" for p in leaders if f"{topic}-{p}" not in ends]

    def _offsets_at(
        self, name: str, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[str, int]:
        wanted = dict.fromkeys(partitions, spec)
        answer = self._ask(
            lambda broker: broker.list_partition_offsets(wanted, timeout_ms=500), only=name
        )
        return {f"{tp.topic}-{tp.partition}": found.offset for tp, found in answer.items()}

    def leaders(self, topic: str) -> dict[int, str | None]:
        return {p: self._names.get(row["leader_id"]) for p, row in self._partitions(topic).items()}

    def replicas(self, topic: str) -> dict[int, list[str]]:
        return {p: self._named(row["replica_nodes"]) for p, row in self._partitions(topic).items()}

    def isr(self, topic: str) -> dict[int, list[str]]:
        return {p: self._named(row["isr_nodes"]) for p, row in self._partitions(topic).items()}

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Stream ("orders-0") -> its state, in one question; topics that do not exist are left
        out."""
        if not topics:
            return {}
        return {
            f"{row['name']}-{p['partition_index']}": PartitionState(
                self._names.get(p["leader_id"]),
                tuple(self._named(p["replica_nodes"])),
                tuple(self._named(p["isr_nodes"])),
            )
            for row in self._topic_rows(topics)
            for p in sorted(row["partitions"], key=lambda p: p["partition_index"])
        }

    def _alter(self, asked: ConfigResource, *, only: str | None = None) -> None:
        """Raises UsageError: refused, in Kafka's words."""
        ask = methodcaller("alter_configs", [asked], raise_on_unknown=False, incremental=True)
        said = self._ask(ask, only=only) if only else self._ask(ask)
        kind = asked.resource_type.name.lower()
        if (word := said[kind][asked.name]) != "OK":
            raise UsageError(f"Kafka refuses to change {kind} {asked.name}: {word}")

    def _partitions(self, topic: str) -> dict[int, PartitionRow]:
        row = next((row for row in self._topic_rows([topic]) if row["name"] == topic), None)
        if row is None or row["error_code"] == _UNKNOWN_TOPIC:
            raise UsageError(
                f"unknown topic {topic!r}", hint=f"the cluster has: {', '.join(self.topics())}"
            )
        return {
            p["partition_index"]: p
            for p in sorted(row["partitions"], key=lambda p: p["partition_index"])
        }

    def _named(self, numbers: Iterable[int]) -> list[str]:
        return [self._names[number] for number in numbers if number in self._names]


def topic_config(topic: TopicSettings) -> dict[str, str]:
    """The settings a topic is created with: the user's, and retention as the audit needs it.

    Raises:
        UsageError: settings under which Kafka may drop records, so that the audit could not tell
            loss.
    """
    config = {key: str(value) for key, value in topic.config.items()}
    policy = config.get("cleanup.policy", "delete")
    if policy not in POLICIES:
        raise UsageError(
            f"topic {topic.name}: cleanup.policy={policy} drops records, so loss could not be detected",
            hint=f"write {' or '.join(POLICIES)}",
        )
    for key in ("retention.ms", "retention.bytes"):
        value = config.get(key, "-1")
        if value != "-1" and not (key == "retention.ms" and int(value) >= LEAST_RETENTION_MS):
            raise UsageError(
                f"topic {topic.name}: {key}={config[key]} drops records, so loss could not be detected",
                hint=f"leave {key} out or set it to -1; retention.ms may be {LEAST_RETENTION_MS} or more",
            )
    return {**KEEPS, **config}


def _refused(what: str, row: Document) -> UsageError:
    said = row.get("error_message") or for_code(row["error_code"]).__name__
    return UsageError(f"Kafka refuses to {what} topic {row['name']}: {said}")


def _batches(topics: Sequence[TopicSettings]) -> Iterator[list[TopicSettings]]:
    batch: list[TopicSettings] = []
    for topic in topics:
        if batch and sum(t.partitions for t in batch) + topic.partitions > _BATCH_PARTITIONS:
            yield batch
            batch = []
        batch.append(topic)
    if batch:
        yield batch
