"""Pulsar clusters of others: who they are, and that a run has one namespace there and touches no
other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.plans import on_external
from harness.admin.failover import NotThere
from harness.clusters.external.cluster import External, FoundCluster
from harness.clusters.external.made import MadeNames
from harness.connections.file import Connection, ConnectionFile
from harness.connections.security import Access, Security, Tls
from harness.errors import ScenarioError, UsageError
from harness.plan.build import build_plan
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.scenario.model import Scenario
from harness.systems.pulsar.external import EXTERNAL
from harness.systems.pulsar.external_admin import MARK, ExternalPulsarAdmin
from harness.systems.pulsar.names import bundle_of, bundles_between, full_name
from harness.systems.pulsar.questions import PulsarIdentity, client_of, endpoint_of, lacks_of

OURS = "public/storm-00000007"
AT = Endpoint("127.0.0.1", 1)
BROKER = Node("broker-1", 1, AT, AT, AT, Path(), ("broker",))


class Brokers:
    """Namespaces and topics of a cluster, asked as by `Rest`."""

    def __init__(self) -> None:
        self.policies: dict[str, dict[str, Any]] = {"public/theirs": {"retention_policies": None}}
        self.topics = {"public/theirs": {"orders", "clicks-partition-0"}}
        self.overruled: dict[str, Any] = {}
        self.before_put = lambda: None

    def get(self, path: str, **_: Any) -> Any:
        what, _, rest = path.strip("/").partition("/")
        if what == "namespaces" and "/" not in rest:
            return [name for name in self.policies if name.startswith(f"{rest}/")]
        if what == "namespaces":
            if rest not in self.policies:
                raise NotThere(rest)
            return {**self.policies[rest], **self.overruled}
        if rest.endswith("/partitioned"):
            return []
        return [f"persistent://{rest}/{topic}" for topic in sorted(self.topics[rest])]

    def put(self, path: str, body: Any = None, **_: Any) -> None:
        what, _, rest = path.strip("/").partition("/")
        if what == "namespaces":
            self.before_put()
            self.policies[rest], self.topics[rest] = body, set()
        else:
            namespace, _, topic = rest.rpartition("/")
            self.topics[namespace].add(topic)

    def post(self, path: str, body: Any = None) -> None:
        namespace, _, what = path.removeprefix("/namespaces/").rpartition("/")
        self.policies[namespace][what] = body

    def delete(self, path: str) -> None:
        what, _, rest = path.strip("/").partition("/")
        if what == "namespaces":
            assert not self.topics.pop(rest), "it is not empty"
            del self.policies[rest]
        else:
            namespace, _, topic = rest.rpartition("/")
            self.topics[namespace].remove(topic.removesuffix("?force=true"))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeNames:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    return MadeNames("staging@h:1", "run-1", tmp_path)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def admin(made: MadeNames, brokers: Brokers) -> ExternalPulsarAdmin:
    found = ExternalPulsarAdmin([BROKER], cluster="staging", copies=2, access=Access(), made=made)
    found._rest = brokers  # type: ignore[assignment]
    return found


def test_a_run_has_a_namespace_which_is_in_the_ledger_before_and_out_of_it_after(
    admin: ExternalPulsarAdmin, brokers: Brokers, made: MadeNames
) -> None:
    theirs = (
        dict(brokers.policies),
        {name: set(topics) for name, topics in brokers.topics.items()},
    )
    noted: list[str] = []
    brokers.before_put = lambda: noted.extend(made.names["namespace"])
    admin.enter_namespace(OURS)
    assert noted == [OURS]
    admin.create_topics([TopicSettings("orders", 1, 2), TopicSettings("clicks", 1, 2)])
    assert brokers.topics[OURS] == {"orders", "clicks"}
    assert "persistence" not in brokers.policies[OURS]  # as the brokers have it anyway
    again = ExternalPulsarAdmin([BROKER], cluster="staging", copies=2, access=Access(), made=made)
    assert again.namespace == OURS  # as `clean` finds it
    admin.delete_made({kind: list(names) for kind, names in made.names.items()})
    assert made.names == {"namespace": []}
    assert (brokers.policies, brokers.topics) == theirs


def test_copies_are_those_that_were_asked_for(admin: ExternalPulsarAdmin, brokers: Brokers) -> None:
    admin.enter_namespace(OURS)
    admin.create_topics([TopicSettings("orders", 1, 3)])
    kept = brokers.policies[OURS]["persistence"]
    assert {kept[f"bookkeeper{which}"] for which in ("Ensemble", "WriteQuorum", "AckQuorum")} == {3}


def test_a_namespace_that_is_there_already_is_never_ours(
    admin: ExternalPulsarAdmin, brokers: Brokers, made: MadeNames
) -> None:
    with pytest.raises(UsageError, match="is there already, and not ours"):
        admin.enter_namespace("public/theirs")
    assert not made.names
    admin.drop_namespace("public/theirs")
    assert "public/theirs" in brokers.policies


def test_a_namespace_that_somebody_else_made_under_our_name_is_left_alone(
    admin: ExternalPulsarAdmin, brokers: Brokers, made: MadeNames
) -> None:
    made.add("namespace", [OURS])
    brokers.policies[OURS] = {"properties": {MARK: "another run"}}
    admin.delete_made(made.names)
    assert OURS in brokers.policies
    assert made.names == {"namespace": []}


def test_brokers_that_make_it_otherwise_are_refused(
    admin: ExternalPulsarAdmin, brokers: Brokers, made: MadeNames
) -> None:
    brokers.overruled = {"message_ttl_in_seconds": 60}
    with pytest.raises(UsageError, match="message_ttl_in_seconds=60: it may drop messages"):
        admin.enter_namespace(OURS)
    assert made.names["namespace"] == [OURS]  # still to be deleted


PORTS = {"brokerServicePort": "Optional[6650]", "brokerServicePortTls": "Optional.empty"}


@pytest.mark.parametrize(
    ("settings", "tls", "at"),
    [
        (PORTS, None, "b1:6650"),
        ({**PORTS, "brokerServicePortTls": "Optional[6651]"}, Tls(), "b1:6651"),
        (
            {**PORTS, "advertisedListeners": "in:pulsar://b1.in:1,out:pulsar://b1.out:2"},
            None,
            "b1.in:1",
        ),
        (
            {
                **PORTS,
                "advertisedListeners": "a:pulsar://b1.a:1, b:pulsar+ssl://b1.b:2, b:pulsar://b1.b:3",
                "internalListenerName": "b",
            },
            None,
            "b1.b:3",
        ),
    ],
)
def test_clients_come_to_where_a_broker_says(
    settings: dict[str, str], tls: Tls | None, at: str
) -> None:
    assert client_of(settings, "b1", Security(tls)) == endpoint_of(at)


def test_a_cluster_is_its_name_at_the_address_on_record() -> None:
    found = PulsarIdentity("standalone", "https://pulsar.staging:8443", "4.0.8", {}, 2)
    assert found.cluster_id == "standalone@pulsar.staging:8443"


@pytest.mark.parametrize(
    ("changed", "tls", "reason"),
    [
        ({}, Tls(), r"bootstrap is pulsar://h:1, and tls is set"),
        (
            {"bootstrap": "pulsar+ssl://h:1"},
            None,
            r"bootstrap is pulsar\+ssl://h:1, and tls is not set",
        ),
        ({"admin_url": ""}, None, "admin_url is missing"),
        ({"admin_url": "http://h"}, None, "admin_url is http://h, in which a port is missing"),
    ],
)
def test_urls_and_tls_agree(changed: dict[str, str], tls: Tls | None, reason: str) -> None:
    said = {"system": "pulsar", "bootstrap": "pulsar://h:1", "admin_url": "http://h:2", **changed}
    with pytest.raises(UsageError, match=reason):
        EXTERNAL.find(
            Connection(Path("staging.yaml"), ConnectionFile.model_validate(said), Security(tls))
        )


def test_owners_are_looked_up_by_a_topic_of_each_bundle(
    admin: ExternalPulsarAdmin, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they own brokers must not be asked: one whose bundles come and go meanwhile may hang for
    good."""
    bounds, asked = ["0x00000000", "0x80000000", "0xffffffff"], []
    low, high = bundles_between(bounds)
    admin.enter_namespace(OURS)
    admin.create_topics([TopicSettings(f"orders-{n}", 1, 2) for n in range(20)])
    topics = [full_name(OURS, topic) for topic in brokers.topics[OURS]]

    def owner_of(topic: str, **_: Any) -> str | None:
        asked.append(topic)
        return "broker-1" if bundle_of(topic, [low, high]) == low else "broker-2"

    def get(path: str, **_: Any) -> Any:
        return {
            f"/namespaces/{OURS}/bundles": {"boundaries": bounds},
            f"/persistent/{OURS}": topics,
        }[path]

    monkeypatch.setattr(brokers, "get", get)
    monkeypatch.setattr(brokers, "owner_of", owner_of, raising=False)
    monkeypatch.setattr(admin, "answers", {"broker-1"}.__contains__)
    assert admin.bundle_owners() == {low: "broker-1", high: None}, (
        "broker-2 is dead, and its session lasts"
    )
    assert len(asked) == 2


def test_transactions_are_not_ours_to_switch_on() -> None:
    off = {"transactionCoordinatorEnabled": "false", "systemTopicEnabled": "true"}
    assert lacks_of(off) == {"transactionCoordinatorEnabled": "false"}
    said = {"system": "pulsar", "bootstrap": "pulsar://h:1", "admin_url": "http://h:2"}
    connection = Connection(
        Path("staging.yaml"), ConnectionFile.model_validate(said), Security(None)
    )
    producer = {"client": "pulsar-client-java", "transactions": {"messages": 5}}
    scenario = {"name": "x", "system": "pulsar", "load": {"producers": {"shop": producer}}}
    plan = build_plan(Scenario.model_validate(scenario), seed=1)
    lacking = FoundCluster("a@h:2", "4.0.8", (), lacks=lacks_of(off))
    with pytest.raises(
        ScenarioError, match="have transactionCoordinatorEnabled=false, which only its owner"
    ):
        on_external([plan], External(connection, lacking))
    off["transactionCoordinatorEnabled"] = "true"
    (made,) = on_external([plan], External(connection, replace(lacking, lacks=lacks_of(off))))
    assert made.broker_config == {}
