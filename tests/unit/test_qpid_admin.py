"""Who is the master, and which settings a queue may have: Qpid's admin on answers of a group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faults.kinds.connection_close import ConnectionClose, ConnectionCloseParams
from faults.kinds.mastership_move import MastershipMove, MastershipMoveParams
from faults.kit.cluster_view import ability_of
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.params import Inventory
from harness.clusters import spec_of
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import ClientConnection, Endpoint, Node, TopicSettings
from harness.systems.qpid.admin import QpidAdmin, queue_config

NAMES = ("qpid-1", "qpid-2", "qpid-3")


def node(number: int) -> Node:
    at = Endpoint("127.0.0.1", 1)
    return Node(f"qpid-{number}", number, at, at, at, Path("none"), ("broker",))


class Answers:
    """Stands for the REST side: node -> (role, roles that it sees of others); others are silent."""

    def __init__(self, views: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
        self.views = dict(views)
        self.asked: list[tuple[str, str, Any]] = []

    def get(self, name: str, path: str) -> Any:
        if name not in self.views:
            raise EnvironmentNotReady(f"{name} does not answer")
        role, others = self.views[name]
        if path == "querybroker/virtualhostnode?select=name,state,role":
            rows = [["another", "STOPPED", "DETACHED"], [name, "ACTIVE", role]]
            return {"headers": ["name", "state", "role"], "results": rows, "total": 2}
        if path.startswith("remotereplicationnode/"):
            return [{"name": other, "role": seen} for other, seen in others.items()]
        assert path.startswith(f"queryvhost/{name}/brokerstorm/queue?")
        return {"results": [["orders-0", 7], ["brokerstorm.probe", 0]]}

    def put(self, name: str, path: str, body: Mapping[str, Any]) -> Any:
        self.asked.append((name, path, dict(body)))

    def close(self) -> None:
        pass


def admin(
    monkeypatch: pytest.MonkeyPatch, views: Mapping[str, tuple[str, Mapping[str, str]]]
) -> QpidAdmin:
    answers = Answers(views)
    monkeypatch.setattr("harness.systems.qpid.admin.QpidRest", lambda nodes, security: answers)
    return QpidAdmin([node(number) for number in (1, 2, 3)])


FOLLOWED = {"qpid-2": "REPLICA", "qpid-3": "REPLICA"}
WHOLE = {
    "qpid-1": ("MASTER", FOLLOWED),
    "qpid-2": ("REPLICA", {"qpid-1": "MASTER", "qpid-3": "REPLICA"}),
    "qpid-3": ("REPLICA", {"qpid-1": "MASTER", "qpid-2": "REPLICA"}),
}


def test_queues_are_led_by_the_master_and_held_by_those_who_follow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = admin(monkeypatch, WHOLE)
    state = group.partition_states(["orders"])["orders-0"]
    assert (state.leader, state.in_sync) == ("qpid-1", NAMES)
    assert group.backlogs(["orders"]) == {"orders-0": {"": 7}}
    assert group.backlogs(["clicks"]) == {}


def test_without_a_master_the_queues_seen_last_have_no_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = Answers(WHOLE)
    monkeypatch.setattr("harness.systems.qpid.admin.QpidRest", lambda nodes, security: answers)
    group = QpidAdmin([node(number) for number in (1, 2, 3)])
    group.partition_states(["orders"])
    answers.views = {"qpid-2": ("WAITING", {}), "qpid-3": ("WAITING", {})}
    state = group.partition_states(["orders"])["orders-0"]
    assert (state.leader, state.in_sync) == (None, ())
    assert group.registered() == set()


def test_of_two_who_say_they_are_the_master_the_others_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was frozen still believes it."""
    views = {
        "qpid-1": ("MASTER", FOLLOWED),
        "qpid-2": ("MASTER", {"qpid-1": "UNREACHABLE", "qpid-3": "REPLICA"}),
        "qpid-3": ("REPLICA", {"qpid-1": "UNREACHABLE", "qpid-2": "MASTER"}),
    }
    assert admin(monkeypatch, views).master() == "qpid-2"
    undecided = {**views, "qpid-3": ("REPLICA", {})}
    assert admin(monkeypatch, undecided).master() is None


@pytest.mark.parametrize(
    "config",
    [
        {"overflowPolicy": "RING"},
        {"maximumMessageTtl": "1000"},
        {"type": "lastvalue"},
        {"durable": "false"},
    ],
    ids=str,
)
def test_queues_that_drop_or_reorder_messages_are_refused(config: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="drops or reorders"):
        queue_config(TopicSettings("orders", 1, 1, config))


def test_a_queue_is_durable() -> None:
    made = queue_config(TopicSettings("orders", 1, 1, {"overflowPolicy": "flow_to_disk"}))
    assert (made["overflowPolicy"], made["durable"]) == ("flow_to_disk", True)
    assert made["maximumDeliveryAttempts"] == "0"  # whatever the broker's context says


def test_topologies_of_the_compose_file() -> None:
    assert [service.name for service in spec_of("qpid").nodes] == ["qpid-1"]
    assert [service.name for service in spec_of("qpid", topology="group").nodes] == list(NAMES)
    assert spec_of("qpid", "10.1.0").java == 17
    with pytest.raises(UsageError, match="no topology"):
        spec_of("qpid", topology="ring")


# -- faults


class Runtime:
    nodes = tuple(node(number) for number in (1, 2, 3))


class Cluster:
    system = "qpid"
    runtime = Runtime()

    def __init__(self, group: Any) -> None:
        self.admin = group


class Place:
    """As much of a view as these kinds use."""

    def __init__(self, group: Any, clients: Mapping[str, int] | None = None) -> None:
        self.cluster = Cluster(group)
        self.clients = lambda: dict(clients or {})

    def ability(self, ability: type) -> Any:
        return ability_of(self.cluster, ability)  # type: ignore[arg-type]

    @staticmethod
    def faulted() -> frozenset[str]:
        return frozenset()


def test_mastership_goes_to_a_replica_and_is_proved_by_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = Answers(WHOLE)
    monkeypatch.setattr("harness.systems.qpid.admin.QpidRest", lambda nodes, security: answers)
    place: Any = Place(QpidAdmin(Runtime.nodes))
    moved = MastershipMove().prepare(MastershipMoveParams(to="qpid-3"), place, draw=1)
    moved.apply()
    assert answers.asked == [("qpid-3", "virtualhostnode/qpid-3", {"role": "MASTER"})]
    assert not moved.proof().effective
    answers.views = {**WHOLE, "qpid-1": ("REPLICA", {}), "qpid-3": ("MASTER", {})}
    assert moved.proof().evidence == "master qpid-1 -> qpid-3"
    with pytest.raises(FiringSkipped, match="qpid-3 can"):
        MastershipMove().prepare(MastershipMoveParams(to="qpid-3"), place, draw=1)


def test_a_single_broker_has_no_mastership_to_move() -> None:
    with pytest.raises(StepProblem, match="one node"):
        MastershipMove().complete(MastershipMoveParams(), Inventory((), ("qpid-1",)))


class Listed:
    """Connections of a broker: of producer-1 by its process id, of consumer-1 by its name, and
    another's."""

    def __init__(self) -> None:
        self.there = [
            ClientConnection("[1] a", "client", "", 11),
            ClientConnection("[2] b", "client", "consumer-1", 0),
            ClientConnection("[3] c", "client", "brokerstorm-probe", 1),
        ]

    def connections(self) -> list[ClientConnection]:
        return list(self.there)

    def close_connection(self, connection: ClientConnection) -> None:
        self.there.remove(connection)


def test_connections_of_a_worker_are_closed_and_no_others() -> None:
    listed = Listed()
    place: Any = Place(listed, {"producer-1": 11, "consumer-1": 12})
    closed = ConnectionClose().prepare(
        ConnectionCloseParams(target="client:producer"), place, draw=1
    )
    assert not closed.proof().effective
    closed.apply()
    assert closed.proof().evidence == "1 of 1 connections of producer-1 closed"
    assert [found.id for found in listed.there] == ["[2] b", "[3] c"]
    both = ConnectionClose().prepare(ConnectionCloseParams(), place, draw=1)
    both.apply()
    assert [found.id for found in listed.there] == ["[3] c"]
    with pytest.raises(FiringSkipped, match="no connection"):
        ConnectionClose().prepare(ConnectionCloseParams(), place, draw=1)
