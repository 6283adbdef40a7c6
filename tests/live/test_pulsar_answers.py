"""Answers of Pulsar's brokers that are not what they said, as a client sees them and the proxy
counts them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pulsar
import pytest

from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir
from harness.systems.pulsar.assembly import PulsarCluster
from harness.systems.pulsar.names import full_name
from tests.live.answers_rig import cluster_with, lying
from tests.live.cluster_rig import ClusterPool

pytestmark = [pytest.mark.live, pytest.mark.extended]

TOPIC = TopicSettings("answers", 1, 1)
SENDS = 20


@pytest.fixture
def cluster(pool: ClusterPool) -> PulsarCluster:
    return cast("PulsarCluster", cluster_with(pool, "pulsar", TOPIC))


@pytest.mark.parametrize(
    "step",
    [
        {"fault": "request-error", "requests": ["SEND"], "error": "PersistenceError", "nth": 3},
        {
            "fault": "request-error",
            "requests": ["SEND"],
            "error": "ServiceNotReady",
            "answered": "after",
            "nth": 3,
        },
        {"fault": "answer-drop", "requests": ["SEND"], "nth": 3, "then": "close"},
        {"fault": "answer-delay", "requests": ["SEND"], "nth": 3, "delay": "500ms"},
        {"fault": "answer-close", "requests": ["SEND"], "nth": 3},
        {"fault": "close-by-broker", "requests": ["SEND"], "nth": 3},
        {"fault": "close-by-broker", "requests": ["ACK"], "nth": 1},
    ],
    ids=lambda step: "-".join(str(each) for each in step.values()).replace("'", ""),
)
def test_a_client_sends_and_reads_everything_through_false_answers(
    cluster: PulsarCluster, tmp_path: Path, step: dict[str, Any]
) -> None:
    client = pulsar.Client(cluster.bootstrap)
    topic = full_name(cluster.admin.namespace, TOPIC.name)
    sent = {f"{step} {number}".encode() for number in range(SENDS)}
    try:
        consumer = client.subscribe(topic, f"readers-{time.monotonic_ns()}")
        producer = client.create_producer(topic, send_timeout_millis=30_000)
        with lying(cluster, TOPIC, RunDir(tmp_path / "run").create(), step):
            for text in sorted(sent):
                producer.send(text)
            got = set()
            while got < sent:
                message = consumer.receive(30_000)
                got.add(message.data())
                consumer.acknowledge(message)
    finally:
        client.close()


@pytest.mark.parametrize("kind", ["SEND", "PRODUCER", "SUBSCRIBE"])
def test_a_client_that_is_told_twice_goes_by_the_first_answer(
    cluster: PulsarCluster, tmp_path: Path, kind: str
) -> None:
    step = {"fault": "answer-twice", "requests": [kind]}
    client = pulsar.Client(cluster.bootstrap)
    topic = full_name(cluster.admin.namespace, TOPIC.name)
    try:
        with lying(cluster, TOPIC, RunDir(tmp_path / "run").create(), step):
            consumer = client.subscribe(topic, f"readers-{time.monotonic_ns()}")
            producer = client.create_producer(topic)
            sent = [producer.send(f"{kind} {number}".encode()) for number in range(SENDS)]
            assert len(set(map(str, sent))) == SENDS
            got = [consumer.receive(30_000).data() for _ in range(SENDS)]
            assert got == [f"{kind} {number}".encode() for number in range(SENDS)]
    finally:
        client.close()


def busy(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "busy")


def fenced(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic)


def absent(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)


@pytest.mark.parametrize(
    ("request_kind", "error", "seen"),
    [
        ("SUBSCRIBE", "ConsumerBusy", busy),
        ("PRODUCER", "ProducerFenced", fenced),
        ("LOOKUP", "AuthorizationError", absent),
    ],
)
def test_a_client_is_told_the_error_of_each_kind_of_answer(
    cluster: PulsarCluster,
    tmp_path: Path,
    request_kind: str,
    error: str,
    seen: Callable[[pulsar.Client, str], None],
) -> None:
    client = pulsar.Client(cluster.bootstrap)
    step = {"fault": "request-error", "requests": [request_kind], "error": error}
    try:
        with lying(cluster, TOPIC, RunDir(tmp_path / "run").create(), step):
            seen(client, full_name(cluster.admin.namespace, TOPIC.name))
    finally:
        client.close()
