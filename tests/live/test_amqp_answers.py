"""Confirms and closings of brokers of AMQP 0-9-1 that are not what they said, as a client sees
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
)

from harness.clusters.cluster import BrokerCluster
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir
from tests.live.answers_rig import cluster_with, lying
from tests.live.cluster_rig import ClusterPool

pytestmark = [pytest.mark.live, pytest.mark.extended]

QUEUE = "answers-0"
TOPIC = TopicSettings("answers", 1, 1)


@pytest.fixture(scope="module", params=["rabbitmq", "qpid"])
def system(request: pytest.FixtureRequest) -> str:
    """All tests of one system, then all of the other: the pool has one cluster at a time."""
    return str(request.param)


@pytest.fixture
def cluster(pool: ClusterPool, system: str) -> BrokerCluster[Any]:
    return cluster_with(pool, system, TOPIC)


@pytest.fixture
def rabbitmq(pool: ClusterPool) -> BrokerCluster[Any]:
    """Qpid does not say that it can refuse messages, and pika asks for confirms only then."""
    return cluster_with(pool, "rabbitmq", TOPIC)


@contextmanager
def opened(cluster: BrokerCluster[Any], *, confirms: bool = False) -> Iterator[BlockingChannel]:
    at, _, host = cluster.bootstrap.partition("/")
    name, _, port = at.partition(",")[0].rpartition(":")
    where = pika.ConnectionParameters(
        name, int(port), host.partition("?")[0], blocked_connection_timeout=10, heartbeat=0
    )
    connection = pika.BlockingConnection(where)
    try:
        channel = connection.channel()
        if confirms:
            channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def sent(channel: BlockingChannel, count: int) -> list[bool]:
    """Publish messages one by one; whether each was confirmed."""
    found = []
    for number in range(count):
        try:
            channel.basic_publish("", QUEUE, b"%d" % number)
            found.append(True)
        except NackError:
            found.append(False)
    return found


def drained(cluster: BrokerCluster[Any]) -> list[bytes]:
    """Take all messages out of the queue."""
    with opened(cluster) as channel:
        found = []
        while (got := channel.basic_get(QUEUE, auto_ack=True))[0] is not None:
            found.append(got[2])
        return [each for each in found if each.isdigit()]


NACK = {"fault": "request-error", "requests": ["basic.publish"], "error": "basic.nack", "nth": 2}


@pytest.mark.parametrize(
    ("step", "kept"),
    [(NACK, [b"0", b"2"]), ({**NACK, "answered": "after"}, [b"0", b"1", b"2"])],
)
def test_a_message_is_refused_before_or_after_it_is_stored(
    rabbitmq: BrokerCluster[Any], tmp_path: Path, step: dict[str, Any], kept: list[bytes]
) -> None:
    drained(rabbitmq)
    with (
        opened(rabbitmq, confirms=True) as channel,
        lying(rabbitmq, TOPIC, RunDir(tmp_path / "run").create(), step),
    ):
        assert sent(channel, 3) == [True, False, True]
    assert drained(rabbitmq) == kept


def by_code(code: int, kind: type[AMQPError]) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kind) and error.args[0] == code


@pytest.mark.parametrize(
    ("step", "is_said"),
    [
        ({"says": "PRECONDITION_FAILED"}, by_code(406, ChannelClosedByBroker)),
        ({"says": "INTERNAL_ERROR"}, by_code(541, ConnectionClosedByBroker)),
        (
            {"fault": "request-error", "error": "NOT_FOUND"},
            by_code(404, ChannelClosedByBroker),
        ),
        (
            {"fault": "answer-drop", "then": "close", "carried_out": False},
            lambda error: isinstance(error, AMQPError),
        ),
    ],
)
def test_a_channel_or_a_connection_is_closed_before_a_message(
    rabbitmq: BrokerCluster[Any],
    tmp_path: Path,
    step: dict[str, Any],
    is_said: Callable[[BaseException], bool],
) -> None:
    drained(rabbitmq)
    whole = {"fault": "close-by-broker", "requests": ["basic.publish"], "nth": 3, **step}
    with (
        opened(rabbitmq, confirms=True) as channel,
        lying(rabbitmq, TOPIC, RunDir(tmp_path / "run").create(), whole),
    ):
        with pytest.raises(AMQPError) as caught:
            sent(channel, 5)
        assert is_said(caught.value), caught.value
        if channel.connection.is_open:  # the number of the channel can be used for another one
            again = channel.connection.channel(channel.channel_number)
            again.confirm_delivery()
            assert sent(again, 1) == [True]
    assert drained(rabbitmq)[:2] == [b"0", b"1"]


def sent_and_asked(channel: BlockingChannel) -> None:
    """Publish messages, and wait for an answer that shows that the channel is open."""
    for number in range(2):
        channel.basic_publish("", QUEUE, b"%d" % number)
    channel.queue_declare(QUEUE, passive=True)


def test_a_channel_is_closed_before_a_message_without_a_confirm(
    cluster: BrokerCluster[Any], tmp_path: Path
) -> None:
    drained(cluster)
    step = {"fault": "close-by-broker", "requests": ["basic.publish"], "says": "NOT_FOUND"}
    run = RunDir(tmp_path / "run").create()
    with (
        opened(cluster) as channel,
        lying(cluster, TOPIC, run, {**step, "nth": 2}),
        pytest.raises(ChannelClosedByBroker) as caught,
    ):
        sent_and_asked(channel)
    assert caught.value.reply_code == 404
    assert drained(cluster) == [b"0"]


def test_the_answer_of_a_commit_is_lost_although_it_was_carried_out(
    cluster: BrokerCluster[Any], tmp_path: Path
) -> None:
    drained(cluster)
    step = {"fault": "answer-drop", "requests": ["tx.commit"], "then": "close"}
    with (
        opened(cluster) as channel,
        lying(cluster, TOPIC, RunDir(tmp_path / "run").create(), step),
    ):
        committing = channel.connection.channel()
        committing.tx_select()
        committing.basic_publish("", QUEUE, b"7")
        with pytest.raises(AMQPError):
            committing.tx_commit()
    assert drained(cluster) == [b"7"]
