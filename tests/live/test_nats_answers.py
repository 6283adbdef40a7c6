"""Answers of NATS servers that are not what they said, as a client sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.admin.failover import NoAnswer
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir
from harness.systems.nats.assembly import NatsCluster
from harness.systems.nats.link import Link, NoResponders, server_at
from tests.live.answers_rig import cluster_with, lying
from tests.live.cluster_rig import UP_S, ClusterPool

pytestmark = [pytest.mark.live, pytest.mark.extended]

TOPIC = TopicSettings("answers", 1, 3)
SUBJECT = "answers-0"


@pytest.fixture
def cluster(pool: ClusterPool) -> NatsCluster:
    return cast("NatsCluster", cluster_with(pool, "nats", TOPIC))


@pytest.fixture
def client(cluster: NatsCluster) -> Iterator[Link]:
    with Link(server_at(cluster.bootstrap.partition(",")[0])) as found:
        yield found


def stored(cluster: NatsCluster) -> int:
    return int(cluster.admin.end_offsets([TOPIC.name])[SUBJECT])


ERROR = {"fault": "request-error", "requests": ["PUB"], "error": "JSStreamStoreFailedF"}
AFTER = {**ERROR, "answered": "after", "error": "JSClusterNotAvailErr"}
BEFORE = {**ERROR, "answered": "before", "delay": "200ms"}


@pytest.mark.parametrize(
    ("step", "code", "more"), [(ERROR, 10077, 2), (AFTER, 10008, 3), (BEFORE, 10077, 3)]
)
def test_a_publish_is_refused_before_or_after_it_is_stored(
    cluster: NatsCluster, client: Link, tmp_path: Path, step: dict[str, Any], code: int, more: int
) -> None:
    before = stored(cluster)
    with lying(cluster, TOPIC, RunDir(tmp_path / "run").create(), {**step, "nth": 2}):
        said = [client.ask(SUBJECT, b"x").get("error", {}).get("err_code") for _ in range(3)]
    assert said == [None, code, None]
    assert stored(cluster) == before + more


def test_a_request_has_the_errors_of_its_answers(
    cluster: NatsCluster, client: Link, tmp_path: Path
) -> None:
    step = {"fault": "request-error", "requests": ["STREAM.INFO"], "error": "JSStreamNotFoundErr"}
    with lying(cluster, TOPIC, RunDir(tmp_path / "json").create(), step):
        said = client.ask(f"$JS.API.STREAM.INFO.{SUBJECT}")
        assert (said["error"]["code"], said["error"]["err_code"]) == (404, 10059)
    step = {"fault": "request-error", "requests": ["PUB"], "error": "503 No Responders"}
    with (
        lying(cluster, TOPIC, RunDir(tmp_path / "status").create(), step),
        pytest.raises(NoResponders),
    ):
        client.ask(SUBJECT, b"x")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"fault": "answer-drop", "requests": ["PUB"]}, "in time"),
        ({"fault": "answer-drop", "requests": ["PUB"], "then": "close"}, "closed|reset"),
        (
            {"fault": "close-by-broker", "requests": ["PUB"], "says": "Stale Connection"},
            "Stale Connection",
        ),
        ({"fault": "close-by-broker", "requests": ["PUB"], "says": "lame duck"}, "closed"),
    ],
)
def test_a_client_waits_in_vain_for_a_message_that_is_stored(
    cluster: NatsCluster, client: Link, tmp_path: Path, step: dict[str, Any], said: str
) -> None:
    before = stored(cluster)
    run = RunDir(tmp_path / "run").create()
    with lying(cluster, TOPIC, run, step), pytest.raises(NoAnswer, match=said):
        client.ask(SUBJECT, b"x", within_s=1)
    assert stored(cluster) == before + 1


@pytest.mark.parametrize(
    ("step", "order"),
    [
        ({"fault": "answer-twice", "nth": 1}, [0, 0, 1]),
        ({"fault": "answer-reorder", "nth": 1, "delay": "300ms"}, [1, 0]),
        ({"fault": "answer-delay", "nth": 1, "delay": "300ms"}, [0, 1]),
    ],
)
def test_answers_come_twice_or_in_another_order(
    cluster: NatsCluster, client: Link, tmp_path: Path, step: dict[str, Any], order: list[int]
) -> None:
    run = RunDir(tmp_path / "run").create()
    with lying(cluster, TOPIC, run, {**step, "requests": ["PUB"]}):
        replies = [client._publish(SUBJECT, b"x") for _ in range(2)]
        got = [client._message(time.monotonic() + UP_S)[0][0] for _ in order]
    assert [replies.index(each) for each in got] == order
