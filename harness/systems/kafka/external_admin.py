"""Kafka's admin on a cluster that others use too: topics have our names here and longer ones at the
brokers, and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from harness.admin.made_ledger import MadeLedger
from harness.contracts.rows import Bounds, Leadership, StreamTransactions
from harness.errors import UsageError
from harness.protocols.cluster import (
    PartitionState,
    SeenLeaders,
    StoredMessage,
    TopicSettings,
)
from harness.systems.kafka import KEEPS
from harness.systems.kafka.admin import KafkaAdmin
from harness.systems.kafka.questions import KafkaQuestions


class ExternalKafkaAdmin:
    """Admin, HasLeaders, HasLeaderships, HasHighWatermark, HasHealthProbe, HasGroupMembers and
    NamesTopics over a `KafkaAdmin`."""

    def __init__(self, admin: KafkaAdmin, questions: KafkaQuestions, made: MadeLedger) -> None:
        self._admin = admin
        self._questions = questions
        self._made = made
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._groups: tuple[str, ...] = ()
        self.controller = admin.controller
        self.coordinator = admin.coordinator
        self.answers = admin.answers
        self.registered = admin.registered
        self.topics = admin.topics
        self.close = admin.close

    @property
    def watch(self) -> Callable[[], None]:
        """What is called while the administrator waits."""
        return self._admin.watch

    @watch.setter
    def watch(self, look: Callable[[], None]) -> None:
        """What is called while the administrator waits."""
        self._admin.watch = look

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        self._addresses = dict(addresses)
        self._names = {address: name for name, address in addresses.items()}
        self._groups = tuple(groups)

    def _address(self, topic: str) -> str:
        """Only of topics of ours: no other topic can be named by what goes through here.

        Raises:
            UsageError: it is none of ours.
        """
        try:
            return self._addresses[topic]
        except KeyError:
            raise UsageError(
                f"{topic} is not a topic of this run", hint=", ".join(self._addresses)
            ) from None

    def _stream(self, address: str) -> str:
        topic, _, partition = address.rpartition("-")
        return f"{self._names.get(topic, topic)}-{partition}"

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `KafkaAdmin.create_topics`.

        Raises:
            UsageError: a topic of that name is there, whoever made it; or one of ours would drop
                messages.
        """
        wanted = [
            TopicSettings(self._address(t.name), t.partitions, t.replication, t.config)
            for t in topics
        ]
        if there := sorted({topic.name for topic in wanted} & set(self._admin.topics())):
            raise UsageError(
                f"{there[0]} is there already, and not ours", hint="choose another topics.prefix"
            )
        self._made.add("topic", [topic.name for topic in wanted])
        self._made.add("group", self._groups)
        self._admin.create_topics(wanted)
        self._refuse_dropping([topic.name for topic in wanted])

    def _refuse_dropping(self, addresses: Sequence[str]) -> None:
        """A policy of theirs may overrule what we ask for; a message that is dropped would look
        like a loss.

        Raises:
            UsageError: a topic of ours would not keep everything.
        """
        for address, settings in self._questions.settings(addresses).items():
            for key, wanted in KEEPS.items():
                if settings.get(key) != wanted:
                    raise UsageError(
                        f"topic {address} was made with {key}={settings.get(key)}: it may drop messages",
                        hint=f"the cluster must permit {key}={wanted} for topics with this prefix",
                    )

    def delete_topics(self, names: Sequence[str]) -> None:
        addresses = [self._address(name) for name in names]
        self.delete_made({"topic": addresses, "group": self._groups})

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the brokers' names, and strike it out."""
        topics, groups = made.get("topic", ()), made.get("group", ())
        self._admin.delete_topics(topics)
        self._made.remove("topic", topics)
        self._questions.delete_groups(groups)
        self._made.remove("group", groups)

    def grow(self, topic: str, to: int) -> None:
        self._admin.grow(self._address(topic), to)

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        found = self._admin.end_offsets([self._address(topic) for topic in topics])
        return {self._stream(stream): end for stream, end in found.items()}

    def share_lags(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        found = self._admin.share_lags(group, [self._address(topic) for topic in topics])
        return {self._stream(stream): lag for stream, lag in found.items()}

    def committed_offsets(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        found = self._admin.committed_offsets(group, [self._address(topic) for topic in topics])
        return {self._stream(stream): position for stream, position in found.items()}

    def read_messages(
        self, topic: str, take: Callable[[StoredMessage], None], *, timeout_s: float, last: int = 0
    ) -> list[Bounds]:
        found = self._admin.read_messages(
            self._address(topic), take, timeout_s=timeout_s, last=last
        )
        return [replace(one, stream=self._stream(one.stream)) for one in found]

    def group_members(self, group: str) -> dict[str, list[str]]:
        """Return member id -> its streams; see `HasGroupMembers`."""
        found = self._questions.group_members(group)
        return {
            member: [self._stream(stream) for stream in streams]
            for member, streams in found.items()
        }

    def leaders(self, topic: str) -> dict[int, str | None]:
        return self._admin.leaders(self._address(topic))

    def replicas(self, topic: str) -> dict[int, list[str]]:
        return self._admin.replicas(self._address(topic))

    def isr(self, topic: str) -> dict[int, list[str]]:
        return self._admin.isr(self._address(topic))

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        found = self._admin.partition_states([self._address(topic) for topic in topics])
        return {self._stream(stream): state for stream, state in found.items()}

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        found = self._admin.leaderships([self._address(topic) for topic in topics], seen)
        return [replace(one, stream=self._stream(one.stream)) for one in found]

    def transactions(self, topics: Sequence[str], *, timeout_s: float) -> list[StreamTransactions]:
        found = self._admin.transactions(
            [self._address(topic) for topic in topics], timeout_s=timeout_s
        )
        return [replace(one, stream=self._stream(one.stream)) for one in found]

    def move_leaders(self, topic: str, to: Mapping[int, str]) -> None:
        self._admin.move_leaders(self._address(topic), to)

    def elect_preferred(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        self._admin.elect_preferred(self._address(topic), partitions)

    def pass_high_watermark(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        addresses = [self._address(topic) for topic in topics]
        self._admin.pass_high_watermark(addresses, timeout_s=timeout_s, run_tag=run_tag)

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        self._admin.wait_ready(
            [self._address(topic) for topic in topics], timeout_s=timeout_s, run_tag=run_tag
        )
