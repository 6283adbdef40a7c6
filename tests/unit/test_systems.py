"""Scenarios of every system: their defaults, what has no meaning, and the plans they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.worker import TopicPart
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.run.worker_specs import Endpoints, audit_specs, client_spec
from harness.rundir import RunDir
from harness.scenario.file import load_scenario, variants
from harness.scenario.model import Scenario
from harness.systems import DEFAULT, SYSTEMS
from harness.workers import known_workers


def scenario(system: str, **keys: Any) -> Scenario:
    return Scenario.model_validate({"name": "mine", "system": system, **keys})


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_scenario_that_names_only_its_system_has_a_plan(system: str) -> None:
    made = scenario(system, load={"consumers": {"c": {}}})
    facts = SYSTEMS[system]
    plan = build_plan(made, seed=1)
    assert {made.load.producers["p"].client, made.load.consumers["c"].client} == {facts.client}
    assert [topic.partitions for topic in plan.topics] == [facts.partitions]
    assert plan.version == facts.version
    assert plan.topology == next(iter(facts.topologies), "")
    assert build_plan(made, seed=1).model_dump_json() == plan.model_dump_json()


def test_every_system_has_an_audit_client_and_clients_to_name() -> None:
    workers = known_workers()
    for name, worker in workers.items():
        assert set(worker.systems) <= set(SYSTEMS), name
    for system in SYSTEMS.values():
        assert system.name in workers[system.client].systems
        assert "audit" in workers[system.audit[0]].on_system(system.name).roles


def test_one_system_is_that_of_a_scenario_that_names_none() -> None:
    assert [system.is_default for system in SYSTEMS.values()].count(True) == 1
    assert Scenario.model_validate({"name": "mine"}).system == DEFAULT.name


def test_a_topic_may_stand_for_many() -> None:
    made = scenario(
        "pulsar",
        topics={"orders": {"count": 100}, "clicks": {"partitions": 3}},
        load={
            "producers": {"p": {"topics": ["orders"]}, "k": {"topics": ["clicks"], "lanes": "key"}}
        },
    )
    plan = build_plan(made, seed=1, run_tag=0xC0FFEE01)
    names = [topic.name for topic in plan.topics]
    assert names == [*(f"orders-{i:03d}" for i in range(100)), "clicks"]
    assert plan.topics[7].address == "persistent://public/bs-c0ffee01/orders-007"
    assert plan.namespace == "public/bs-c0ffee01"
    assert plan.streams()[6:8] == ["orders-006-0", "orders-007-0"]
    assert len(plan.producers[0].groups) == 100
    assert len(plan.producers[1].groups) == 1


def test_copies_follow_from_topology_or_settings() -> None:
    def copies(**cluster: Any) -> int:
        return build_plan(scenario("pulsar", cluster=cluster), seed=1).topics[0].replication

    assert copies() == 1
    assert copies(topology="bookies-3") == 2
    assert copies(topology="bookies-3", config={"managedLedgerDefaultWriteQuorum": 3}) == 3
    with pytest.raises(
        ScenarioError, match=r"managedLedgerDefaultWriteQuorum: must be 1, 2 or 3, got '9'"
    ):
        copies(config={"managedLedgerDefaultWriteQuorum": 9})


def test_auto_settlement_is_resolved_for_the_system() -> None:
    def settled(system: str) -> str:
        return (
            build_plan(scenario(system, load={"consumers": {"c": {}}}), seed=1).consumers[0].settle
        )

    assert [settled(system) for system in ("kafka", "pulsar", "qpid")] == ["auto", "ack", "auto"]


def test_a_variant_of_a_scenario_built_in_python_sets_nothing_by_itself() -> None:
    made = scenario(
        "pulsar", load={"consumers": {"c": {}}}, variants={"a": {"override": {"rounds": None}}}
    )
    with pytest.raises(ScenarioError, match="a variant cannot change rounds"):
        variants(made)
    made = scenario("pulsar", load={"consumers": {"c": {}}}, variants={"a": {}})
    assert [name for name, _, _ in variants(made)] == ["a"]


# ----- what has no meaning ------------------------------------------------------------------------


@dataclass(frozen=True)
class FakeWorker:
    system: str
    roles: tuple[str, ...] = ("producer", "consumer")
    supports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reserved: tuple[str, ...] = ()
    instead: dict[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    own_names: Mapping[str, str] = field(default_factory=dict)
    left_aside: Sequence[str] = ()
    exposure: tuple[str, ...] = ()

    @property
    def systems(self) -> tuple[str, ...]:
        return (self.system,)

    def on_system(self, system: str) -> FakeWorker:
        return self

    def first_able(self, key: str, client_version: str) -> str:
        return ""

    def first_taking(self, option: str, value: object, client_version: str) -> str:
        return ""

    def first_brokers(self, option: str, value: object, version: str) -> str:
        return ""

    def oldest_brokers(self, version: str) -> str:
        return ""


CLIENTS = {
    "confluent-kafka": FakeWorker("kafka"),
    "pulsar-client-java": FakeWorker(
        "pulsar", supports={"receive": ("loop", "listener")}, reserved=("serviceUrl",)
    ),
    "pulsar-client": FakeWorker("pulsar", roles=("producer",)),
    "qpid-jms-legacy": FakeWorker("qpid", supports={"settle": ("auto", "ack", "transacted")}),
}

PULSAR, QPID = "name: x\nsystem: pulsar\n", "name: x\nsystem: qpid\n"
REFUSED = [
    (
        PULSAR + "topics: {a: {replication: 2}}\n",
        "topics.a.replication: has no meaning on pulsar, got 2; BookKeeper keeps the copies: set cluster",
    ),
    (PULSAR + "topics: {a: {config: {x: 1}}}\n", "topics.a.config: has no meaning on pulsar"),
    (
        PULSAR + "cluster: {topology: node}\n",
        "cluster.topology: is not a topology of pulsar, got 'node'; small",
    ),
    (
        PULSAR + "cluster: {config: {managedLedgerDefaultAckQuorum: 2}}\n",
        "managedLedgerDefaultAckQuorum: must be 1 bookie, got 2; topology small has 1 of them: "
        "write cluster.topology: bookies-3",
    ),
    (
        PULSAR + "cluster: {topology: bookies-3, config: {managedLedgerDefaultWriteQuorum: 2, "
        "managedLedgerDefaultAckQuorum: 3}}\n",
        "AckQuorum: must be from 1 to 2 bookies, got 3; managedLedgerDefaultWriteQuorum is 2",
    ),
    (
        "name: x\ncluster: {topology: small}\n",
        "cluster.topology: is not a topology of kafka, got 'small'",
    ),
    (
        PULSAR + "cluster: {config: {defaultRetentionTimeInMinutes: 1}}\n",
        "cluster.config.defaultRetentionTimeInMinutes: is set by brokerstorm itself, got 1; the audit needs",
    ),
    (
        PULSAR + "load: {consumers: {c: {commit_every: 2s}}}\n",
        "load.consumers.c.commit_every: needs settle: cumulative, got '2s'; other settlements acknowledge",
    ),
    (
        PULSAR + "load: {consumers: {c: {settle: transacted}}}\n",
        "load.consumers.c.settle: is not supported by the pulsar-client-java worker",
    ),
    (
        PULSAR + "load: {consumers: {c: {per_transaction: 3}}}\n",
        "per_transaction: has no meaning on pulsar",
    ),
    (
        PULSAR + "load: {consumers: {c: {receive: batch}}}\n",
        "receive: is not supported by the pulsar-client-java worker, got 'batch'; supported: loop, listener",
    ),
    (
        PULSAR + "load: {consumers: {c: {client: pulsar-client}}}\n",
        "load.consumers.c.client: has no consumer worker, got 'pulsar-client'; it has: producer",
    ),
    (
        PULSAR + "load: {producers: {p: {client: confluent-kafka}}}\n",
        "load.producers.p.client: is a client of kafka, not of pulsar, got 'confluent-kafka'",
    ),
    (
        PULSAR + "load: {producers: {p: {client: pulsar-klient}}}\n",
        "load.producers.p.client: is not a known client, got 'pulsar-klient'; did you mean pulsar-client?",
    ),
    (
        PULSAR + "load: {producers: {p: {options: {serviceUrl: x}}}}\n",
        "load.producers.p.options.serviceUrl: is set by brokerstorm itself: leave it out, got 'x'",
    ),
    (
        "name: x\nload: {consumers: {c: {receive: listener}}}\n",
        "receive: is not supported by the confluent-kafka",
    ),
    (
        "name: x\nload: {consumers: {c: {nack_every: 3}}}\n",
        "nack_every: needs settle: ack, in a share group",
    ),
    (
        "name: x\nsystem: qpid\nload: {consumers: {c: {nack_every: 3}}}\n",
        "nack_every: needs settle: ack, got 3; a rollback gives back a transaction: see rollback_every",
    ),
    (
        "name: x\nload: {producers: {p: {batch: 3}}}\n",
        "load.producers.p.batch: needs calls: batch, got 3",
    ),
    (
        "name: x\nload: {producers: {p: {calls: sync}}}\n",
        "calls: is not supported by the confluent-kafka worker",
    ),
    (
        "name: x\nload: {producers: {p: {results: resent}}}\n",
        "results: is not supported by the confluent-kafka worker",
    ),
    (
        "name: x\ntopics: {a: {count: 2}, a-001: {}}\n",
        "topics.a-001.count: is the second a-001; the first is of topic a",
    ),
    ("name: x\ntopics: {a_b: {}, a.b: {}}\n", "topics.a.b: collides with a_b"),
    (
        "name: x\ntopics: {a: {count: 1000, partitions: 12}}\n",
        "makes 12000 partitions in all, got 1000",
    ),
    (
        QPID + "topics: {a: {partitions: 2}}\n",
        "topics.a.partitions: must be 1: a queue has no partitions, got 2; count makes several",
    ),
    (
        QPID + "topics: {orders: {count: 2}}\nload: {producers: {p: {threads: 2}}}\n",
        "threads: is not supported by the qpid-jms-legacy worker, got 2; supported: one",
    ),
    (QPID + "load: {producers: {p: {lanes: key}}}\n", "lanes: has no meaning on qpid, got 'key'"),
    (
        QPID + "load: {consumers: {c: {settle: transacted}}}\n",
        "load.consumers.c.per_transaction: must be at least 1 with settle: transacted",
    ),
    (
        QPID + "load: {consumers: {c: {rollback_every: 2}}}\n",
        "rollback_every: needs settle: transacted",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_means_nothing_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, clients=lambda folders: CLIENTS)
    assert message in str(caught.value)


# ----- what a worker is told ----------------------------------------------------------------------


def test_specs_say_where_things_are(tmp_path: Path) -> None:
    made = scenario(
        "pulsar",
        topics={"orders": {"partitions": 2}},
        load={
            "payload": "100..2000",
            "producers": {"p": {"results": "resent", "calls": "sync", "threads": 2}},
            "consumers": {"c": {"receive": "listener", "work": 0.05, "nack_every": 7}},
        },
    )
    plan, run = build_plan(made, seed=1, run_tag=0xAB), RunDir(tmp_path / "run")
    where = Endpoints("pulsar://h:1", "http://h:2")
    sent = client_spec(plan, run, plan.producers[0], where)
    assert (sent.system, sent.bootstrap, sent.admin_url) == ("pulsar", "pulsar://h:1", "http://h:2")
    address = "persistent://public/bs-000000ab/orders"
    assert sent.topics == {"orders": TopicPart(address=address, partitions=2)}
    keys = ("results", "calls", "batch", "threads", "payload_bytes", "payload_max_bytes")
    assert [getattr(sent.producer, key) for key in keys] == ["resent", "sync", 1, 2, 100, 2000]
    read = client_spec(plan, run, plan.consumers[0], where).consumer
    keys = ("receive", "work_s", "settle", "nack_every")
    assert [getattr(read, key) for key in keys] == ["listener", 0.05, "ack", 7]
    audit = audit_specs(plan, run, where)
    parts = [spec.audit for spec in audit if spec.audit]
    assert sorted(stream for part in parts for stream in part.streams) == plan.streams()
    assert {spec.client.library for spec in audit} == {"pulsar-client-java"}
