"""An admin client of exactly one broker, every answer within a fixed time.

kafka-python's admin client spreads requests over the brokers that it knows. While brokers are dead
or frozen that is the wrong thing: a frozen one accepts a connection and never answers.
`SingleBrokerAdmin` sends every request to its own broker (a KRaft broker forwards what the
controller must do), so the caller decides whom to ask next when no answer came.

Leans on parts of kafka-python that are not public (`kafka.net`), so its version is bounded in
pyproject.toml, and tests/unit/test_private_apis.py names them.
"""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import UUID

from kafka import KafkaAdminClient
from kafka.errors import for_code
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import (
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeQuorumRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from harness.protocols.cluster import Node

ANSWER_TIMEOUT_S = 2.5  # a healthy broker answers in milliseconds; a starved one in about a second
CONNECT_TIMEOUT_S = 1.5
#: Bytes of an answer to a fetch: of a partition, and in all.
FETCH_PARTITION_BYTES, FETCH_BYTES = 4 << 20, 16 << 20
#: The last that names topics, and not their ids.
_FETCH_VERSION = 12
_FETCH_WAIT_MS = 100
#: The first that asks for groups (Kafka 3.0).
_OFFSET_FETCH_VERSION = 8
#: Messages that kafka-python lacks are described here as it describes the others.
_SCHEMAS = __package__


class PartitionRow(TypedDict):
    """A partition in an answer about topics."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]


class TopicRow(TypedDict):
    """An answer about a topic."""

    name: str
    error_code: int
    topic_id: UUID
    partitions: list[PartitionRow]


class SettingRow(TypedDict):
    """An answer about a setting."""

    value: str | None
    config_source: str


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Where a share group has got to; kafka-python does not have it."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Its answer, found by kafka-python by the number of the request."""


class UnregisterBrokerRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Forget a broker (KIP-500); kafka-python does not have it."""


class UnregisterBrokerResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Its answer, found by kafka-python by the number of the request."""


class AddRaftVoterRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Give a controller a vote (KIP-853); kafka-python does not have it."""


class AddRaftVoterResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Its answer, found by kafka-python by the number of the request."""


class RemoveRaftVoterRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Take a controller's vote (KIP-853); kafka-python does not have it."""


class RemoveRaftVoterResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    """Its answer, found by kafka-python by the number of the request."""


class _OneBroker(KafkaConnectionManager):  # type: ignore[misc]
    """A connection manager whose requests all go to one node."""

    def __init__(self, number: int, *arguments: Any, **configs: Any) -> None:
        super().__init__(*arguments, **configs)
        self._number = number

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:
        """Send a request to this node, whichever node the client would choose."""
        if node_id is None or isinstance(node_id, int):  # bootstrap ids are not ints
            node_id = self._number
        return super().send(request, node_id=node_id, request_timeout_ms=request_timeout_ms)

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Return a connection that does not search for other nodes when it breaks."""
        # A lost connection must not start a background search for metadata: the caller moves on.
        options["refresh_metadata_on_err"] = False
        return super().get_connection(*arguments, **options)


class SingleBrokerAdmin(KafkaAdminClient):  # type: ignore[misc]
    """A `KafkaAdminClient` that talks to one node only."""

    async def _refresh_controller_id(self, timeout_ms: int = 0) -> int:
        # The original waits up to 30 s for a controller; here every request goes to the one node
        # anyway.
        return 0

    def unfenced(self) -> list[int]:
        """Ids of the brokers that are registered and not fenced.

        `describe_cluster` does the same but fails on the answers of brokers before 3.7.
        """
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response = self._manager.run(self._manager.send, request)
        if response.error_code:
            raise for_code(response.error_code)(response.error_message)
        return [broker.broker_id for broker in response.brokers]

    def unregister(self, number: int) -> tuple[int, str | None]:
        """Code and message of the error with which a broker is not forgotten; 0 = it is."""
        response = self._manager.run(self._manager.send, UnregisterBrokerRequest(broker_id=number))
        return response.error_code, response.error_message

    def add_voter(
        self, number: int, directory: UUID, host: str, port: int
    ) -> tuple[int, str | None]:
        """Code and message of the error with which a controller gets no vote; 0 = it has one."""
        listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host=host, port=port)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=int(ANSWER_TIMEOUT_S * 800),
            voter_id=number,
            voter_directory_id=directory,
            listeners=[listener],
        )
        response = self._manager.run(self._manager.send, request)
        return response.error_code, response.error_message

    def remove_voter(self, number: int, directory: UUID) -> tuple[int, str | None]:
        """Code and message of the error with which a controller keeps its vote; 0 = it has none."""
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=number, voter_directory_id=directory
        )
        response = self._manager.run(self._manager.send, request)
        return response.error_code, response.error_message

    def controller(self) -> int:
        """Id of the active controller: the leader of the metadata quorum, -1 while there is
        none."""
        found = self.quorum()
        return int(found.leader_id) if found else -1

    def quorum(self) -> Any:
        """The metadata quorum, as a DescribeQuorumResponse says it of its one partition; None =
        nothing."""
        topic = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[
                topic(
                    topic_name="__cluster_metadata",
                    partitions=[topic.PartitionData(partition_index=0)],
                )
            ]
        )
        response = self._manager.run(self._manager.send, request)
        partition = response.topics[0].partitions[0] if response.topics else None
        code = response.error_code or (partition.error_code if partition else 0)
        if code:
            raise for_code(code)("describe quorum")
        return partition

    def epoch_ends(
        self, asked: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> the largest leader epoch in its log up to the one asked for, and
        the offset that this one ends before; -1 and -1 where there is none (KIP-101). Only a leader
        answers: partitions that this broker does not lead are left out."""
        by_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        partition = by_topic.OffsetForLeaderPartition
        topics: dict[str, list[Any]] = defaultdict(list)
        for (topic, number), epoch in asked.items():
            row = partition(partition=number, current_leader_epoch=-1, leader_epoch=epoch)
            topics[topic].append(row)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[by_topic(topic=name, partitions=rows) for name, rows in topics.items()],
        )
        response = self._manager.run(self._manager.send, request)
        return {
            (topic.topic, row.partition): (row.leader_epoch, row.end_offset)
            for topic in response.topics
            for row in topic.partitions
            if not row.error_code
        }

    def fetch(
        self, asked: Mapping[tuple[str, int], int], *, committed_only: bool
    ) -> dict[tuple[str, int], Any]:
        """(topic, partition) -> what the log has from that offset on, as a FetchResponse says it:
        batches with their headers, high watermark, last stable offset, aborted transactions; or an
        error."""
        topic, topics = FetchRequest.FetchTopic, defaultdict(list)
        for (name, number), offset in asked.items():
            row = topic.FetchPartition(
                partition=number, fetch_offset=offset, partition_max_bytes=FETCH_PARTITION_BYTES
            )
            topics[name].append(row)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(committed_only),
            session_epoch=-1,
            topics=[topic(topic=name, partitions=rows) for name, rows in topics.items()],
            max_version=_FETCH_VERSION,
        )
        response = self._manager.run(self._manager.send, request)
        return {
            (found.topic, row.partition_index): row
            for found in response.responses
            for row in found.partitions
        }

    def version(self) -> tuple[int, ...]:
        """Return the broker's version, as far as it follows from the requests that it knows: major,
        minor."""
        return tuple(self._manager.broker_version)

    def quotas(self) -> list[str]:
        """Return the quotas of clients, one line for each entity (KIP-546)."""
        request = DescribeClientQuotasRequest(components=[], strict=False)
        response = self._manager.run(self._manager.send, request)
        if response.error_code:
            raise for_code(response.error_code)(response.error_message)
        return [
            " ".join(
                [
                    *(
                        f"{part.entity_type} {part.entity_name or 'default'}"
                        for part in entry.entity
                    ),
                    *(f"{limit.key}={limit.value:g}" for limit in entry.values),
                ]
            )
            for entry in response.entries or ()
        ]

    def share_lags(self, group: str, partitions: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Stream -> messages that a share group has not settled; streams of which that is not known
        are left out. Only the group's coordinator answers (KIP-932, KIP-1226: since 4.2)."""
        by_group = DescribeShareGroupOffsetsRequest.Group
        topics = [
            by_group.Topic(topic_name=name, partitions=list(own))
            for name, own in partitions.items()
        ]
        request = DescribeShareGroupOffsetsRequest(
            groups=[by_group(group_id=group, topics=topics)], min_version=1
        )
        found = self._manager.run(self._manager.send, request).groups[0]
        if found.error_code:
            raise for_code(found.error_code)(found.error_message)
        return {
            f"{topic.topic_name}-{row.partition_index}": int(row.lag)
            for topic in found.topics
            for row in topic.partitions
            if not row.error_code and row.lag >= 0
        }

    def committed_offsets(
        self, group: str, partitions: Mapping[str, Sequence[int]]
    ) -> dict[str, int]:
        """Stream -> the next position that a group would read, -1 = none. Streams of which that is
        not known, or open in a transaction (KIP-447), are left out. Only the group's coordinator
        answers."""
        by_group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [
            by_group.OffsetFetchRequestTopics(name=name, partition_indexes=list(own))
            for name, own in partitions.items()
        ]
        request = OffsetFetchRequest(
            groups=[by_group(group_id=group, topics=topics)],
            require_stable=True,
            min_version=_OFFSET_FETCH_VERSION,
            max_version=_OFFSET_FETCH_VERSION,
        )
        found = self._manager.run(self._manager.send, request).groups[0]
        if found.error_code:
            raise for_code(found.error_code)(f"offsets of {group}")
        return {
            f"{topic.name}-{row.partition_index}": int(row.committed_offset)
            for topic in found.topics
            for row in topic.partitions
            if not row.error_code
        }

    def coordinator(self, kind: str, name: str) -> int:
        """Id of the node that coordinates a ``kind`` ("GROUP" or "TRANSACTION") of this name, -1
        while there is none. The first question makes the broker create its internal topic."""
        request = FindCoordinatorRequest(
            key_type=CoordinatorType[kind].value, coordinator_keys=[name], min_version=4
        )
        found = self._manager.run(self._manager.send, request).coordinators[0]
        return -1 if found.error_code else int(found.node_id)


def _net_client(number: int, **configs: Any) -> Any:
    connect_ms = int(CONNECT_TIMEOUT_S * 1000)
    configs["socket_connection_setup_timeout_ms"] = connect_ms
    configs["socket_connection_setup_timeout_max_ms"] = connect_ms
    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=_OneBroker(number, net, **configs), **configs)


def connect(node: Node, security: Mapping[str, Any]) -> SingleBrokerAdmin:
    """An admin client of one node.

    Args:
        security: as `kafka_security.admin_options`.

    Raises:
        kafka.errors.KafkaError: the node does not answer in time.
    """
    # Broken connections are this client's daily bread here; the caller reports what matters.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return SingleBrokerAdmin(
        bootstrap_servers=str(node.admin),
        client_id="brokerstorm-admin",
        request_timeout_ms=int(ANSWER_TIMEOUT_S * 1000),
        bootstrap_timeout_ms=int(ANSWER_TIMEOUT_S * 1000),
        reconnect_backoff_max_ms=250,
        kafka_client=functools.partial(_net_client, node.number),
        **security,
    )
