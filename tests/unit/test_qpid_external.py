"""Qpid brokers that others started: which queues and clients are ours, who it is, and what is
refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.admin.failover import AlreadyThere, NotThere
from harness.admin.http_clock import clock_apart
from harness.clusters.external.made import MadeNames
from harness.connections.file import Connection, ConnectionFile
from harness.connections.security import ANYBODY, Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.systems.qpid import external
from harness.systems.qpid.external_admin import ExternalQpidAdmin
from harness.systems.qpid.rest import LockedOut, QueuePlace

AT = Endpoint("127.0.0.1", 1)
NODE = Node("left", 1, AT, AT, AT, Path("none"), ("broker",))
OURS, THEIRS = "storm-00000007-orders-0", "orders-0"


class Broker:
    """Answers as the REST side of one broker; ``queues``: name -> depth, at virtual host node
    "vhn"."""

    def __init__(self, made: MadeNames) -> None:
        self.made, self.queues = made, {THEIRS: 5, "storm-00000008-orders-0": 1}
        self.overruled: dict[str, Any] = {}

    def get(self, node: str, path: str) -> Any:
        if path.startswith("querybroker/virtualhostnode"):
            return {"results": [["vhn", "ACTIVE", None]]}
        if path == "connection":
            names = ("shop-00000007", "shop-00000008", "shop", None)
            return [
                {"name": f"[{n}]", "port": "amqp", "clientId": name} for n, name in enumerate(names)
            ]
        assert path.startswith("queryvhost/vhn/prod%2Fone/queue?")
        return {"results": [list(row) for row in self.queues.items()]}

    def post(self, node: str, path: str, body: Mapping[str, Any]) -> Any:
        if path == "exchange/vhn/prod%2Fone/amq.direct/bind":
            return None
        assert path == "queue/vhn/prod%2Fone"
        assert body["name"] in self.made.names["queue"]  # on disk before
        if body["name"] in self.queues:
            raise AlreadyThere("409")
        self.queues[str(body["name"])] = 0
        return {**body, **self.overruled}

    def delete(self, node: str, path: str) -> None:
        if path.rpartition("/")[2] not in self.queues:
            raise NotThere(path)
        del self.queues[path.rpartition("/")[2]]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeNames:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    return MadeNames("abc", "run-1", tmp_path / "runs" / "run-1")


@pytest.fixture
def broker(made: MadeNames, monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker(made)
    monkeypatch.setattr("harness.systems.qpid.admin.QpidRest", lambda urls, security: found)
    return found


@pytest.fixture
def admin(broker: Broker, made: MadeNames) -> ExternalQpidAdmin:
    place = QueuePlace("prod/one", {"left": "vhn"})
    found = ExternalQpidAdmin([NODE], {"left": "http://h:1"}, ANYBODY, place, made)
    found.name_topics({"orders": "storm-00000007-orders"}, ["app"])
    return found


def test_queues_of_others_are_neither_seen_nor_touched(
    admin: ExternalQpidAdmin, broker: Broker, made: MadeNames
) -> None:
    before = dict(broker.queues)
    admin.create_topics([TopicSettings("orders", 2, 1)])
    broker.queues["storm-00000007-orders-probe"] = 1  # that of the harness' own message
    assert admin.backlogs(["orders"]) == {"orders-0": {"": 0}, "orders-1": {"": 0}}
    assert admin.topics() == ["orders"]
    admin.delete_topics(["orders"])
    assert broker.queues == before
    with pytest.raises(UsageError, match="theirs is not a topic of this run"):
        admin.create_topics([TopicSettings("theirs", 1, 1)])
    made.close()
    assert not list(made.path.parent.iterdir())


def test_a_queue_that_is_there_already_stays(
    admin: ExternalQpidAdmin, broker: Broker, made: MadeNames
) -> None:
    broker.queues[OURS] = 3
    with pytest.raises(UsageError, match=f"queue {OURS} exists already"):
        admin.create_topics([TopicSettings("orders", 1, 1)])
    admin.delete_made(made.names)
    assert broker.queues[OURS] == 3


def test_a_queue_that_would_drop_messages_is_refused_and_gone(
    admin: ExternalQpidAdmin, broker: Broker
) -> None:
    broker.overruled = {"maximumDeliveryAttempts": 5}
    with pytest.raises(UsageError, match="maximumDeliveryAttempts=5: it may drop messages"):
        admin.create_topics([TopicSettings("orders", 1, 1)])
    assert OURS not in broker.queues


def test_only_clients_that_bear_the_tag_of_the_run_are_ours(admin: ExternalQpidAdmin) -> None:
    assert [(found.id, found.client_name) for found in admin.connections()] == [("[0]", "shop")]


def connection(**changed: Any) -> Connection:
    file = {
        "system": "qpid",
        "bootstrap": "a:1,b:2/prod",
        "admin_url": "http://a:8,https://b:9/",
        **changed,
    }
    return Connection(Path("staging.yaml"), ConnectionFile.model_validate(file), Security())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"bootstrap": "a:1,b:2"}, "which virtual host"),
        ({"bootstrap": "a:1,b/prod"}, "'b' is not HOST:PORT"),
        ({"admin_url": "http://a:8"}, "1 URLs, and bootstrap 2 brokers"),
        ({"admin_url": "a:8,b:9"}, "'a:8' is not a URL"),
    ],
)
def test_a_file_says_where_each_broker_is(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        external.EXTERNAL.find(connection(**changed))


class Answers:
    """Of one broker each: rows of its virtual hosts, or why it has none."""

    def __init__(self, **rows: Any) -> None:
        self.rows = {"a:1": rows["a"], "b:2": rows["b"]}

    def __call__(self, urls: Mapping[str, str], security: Security) -> Answers:
        assert urls == {"a:1": "http://a:8", "b:2": "https://b:9"}
        return self

    def get(self, at: str, path: str) -> Any:
        found = self.rows[at]
        if isinstance(found, Exception):
            raise found
        return {"productVersion": "9.2.1"} if path.startswith("broker") else {"results": found}

    def close(self) -> None:
        pass


def test_a_group_is_known_by_the_virtual_host_that_its_master_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, replica = (
        ["n2", "MASTER", "prod", "id", "BDB_HA"],
        ["n1", "REPLICA", "prod", "x", "BDB_HA_REPLICA"],
    )
    monkeypatch.setattr(
        external, "QpidRest", Answers(a=[replica], b=[["n9", None, "else", "y", "BDB"], master])
    )
    monkeypatch.setattr(external.Probe, "failure", lambda self, queues, through: "")
    found = external.EXTERNAL.find(connection(nodes={"left": {"address": "a:1"}}))
    assert (found.cluster_id, found.version) == ("id", "9.2.1")
    assert [(node.name, str(node.client), str(node.admin)) for node in found.nodes] == [
        ("left", "a:1", "a:8"),
        ("n2", "b:2", "b:9"),
    ]
    monkeypatch.setattr(
        external.Probe, "failure", lambda self, queues, through: "no AMQP connection"
    )
    with pytest.raises(EnvironmentNotReady, match="b:2: no AMQP connection"):
        external.EXTERNAL.find(connection())


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (
            [["n", None, "prod", "1", "BDB"]],
            [["n", None, "prod", "2", "BDB"]],
            "they are not a group",
        ),
        ([["n", None, "test", "1", "BDB"]], EnvironmentNotReady("away"), "no virtual host 'prod'"),
        (LockedOut("401"), LockedOut("401"), "401"),
        (EnvironmentNotReady("nobody"), EnvironmentNotReady("nobody"), "nobody"),
        (
            [["n", "WAITING", "prod", "1", "BDB_HA_REPLICA"]],
            EnvironmentNotReady("away"),
            "is the master now",
        ),
    ],
)
def test_who_cannot_be_told_is_refused(
    a: Any, b: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "QpidRest", Answers(a=a, b=b))
    with pytest.raises((EnvironmentNotReady, UsageError), match=reason):
        external.EXTERNAL.find(connection())


def test_a_clock_is_compared_when_its_second_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.9]
    monkeypatch.setattr("harness.admin.http_clock.time.time", lambda: now[0])
    monkeypatch.setattr("harness.admin.http_clock.time.sleep", lambda _s: None)

    def ask() -> str:
        now[0] += 0.01
        return f"Thu, 01 Jan 1970 00:01:{int(now[0] + 3.5) - 60:02d} GMT"  # 3.5 s ahead of ours

    apart = clock_apart(ask)
    assert apart
    assert abs(apart[0] - 3.5) <= apart[1] <= 0.011
    assert clock_apart(lambda: "") is None
