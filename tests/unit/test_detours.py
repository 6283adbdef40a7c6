"""Where detours lead, and which flows a network fault is about: all of it is known before anything
starts."""

from __future__ import annotations

import ipaddress
import json
import socket
from pathlib import Path
from typing import Any

import pytest

import faults
from faults.kinds.answer_reorder import AnswerReorder, AnswerReorderParams
from faults.kinds.answer_twice import AnswerTwice
from faults.kinds.close_by_broker import CloseByBroker, CloseByBrokerParams
from faults.kinds.metadata_stale import MetadataStale, MetadataStaleParams
from faults.kinds.partition import Partition, PartitionParams, bridge, ring
from faults.kinds.request_error import RequestError, RequestErrorParams
from faults.kinds.request_stall import RequestStall, RequestStallParams
from faults.kit.answers import AnswerFault, AnswerParams
from faults.kit.errors import StepProblem
from faults.kit.network import flows_of, wires_of
from faults.kit.params import Inventory
from faults.schedule.timeline import needs_of
from harness.clusters.cluster import describe_cluster, spec_of
from harness.clusters.docker.wiring import DockerWiring
from harness.clusters.layout.detours import DetourMap, wires_of_routes
from harness.clusters.layout.node_layout import Layout, LoopbackWiring
from harness.clusters.network.proxied import detours_of, toxic_of
from harness.contracts.worker import ROLES
from harness.errors import ScenarioError, UsageError
from harness.protocols.cluster import Endpoint, TopicSettings
from harness.protocols.network import (
    ANSWERS,
    AUDIT,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    CLIENTS,
    CONSUMERS,
    PEER_CUTS,
    PEER_DETOURS,
    PRODUCERS,
    REQUESTS,
    Flow,
    Impairment,
    Wire,
    is_client_source,
)

BOTH = frozenset({CLIENT_DETOURS, PEER_DETOURS})
CLUSTERS = [
    ("kafka", ""),
    ("nats", ""),
    ("pulsar", "small"),
    ("pulsar", "bookies-3"),
    ("qpid", "group"),
]
NODES = ("kafka-1", "kafka-2", "kafka-3")


def plan(system: str = "kafka", topology: str = "", needs: frozenset[str] = BOTH) -> DetourMap:
    return DetourMap(spec_of(system, topology=topology), 7, needs)


@pytest.mark.parametrize(("system", "topology"), CLUSTERS)
def test_every_listener_has_a_loopback_address_of_its_own(system: str, topology: str) -> None:
    detours = plan(system, topology)
    listening = [str(route.listen) for route in detours.routes()] + [str(detours.api)]
    nodes = [s.number for s in spec_of(system, topology=topology).services]
    assert len(listening) == len(set(listening)) > 3
    hosts = {ipaddress.ip_address(listen.partition(":")[0]) for listen in listening}
    assert hosts <= set(ipaddress.ip_network("127.0.7.0/24").hosts())
    assert not hosts & {ipaddress.ip_address(f"127.0.7.{number}") for number in nodes}
    assert len({route.name for route in detours.routes()}) == len(detours.routes())


def test_a_pair_of_nodes_has_two_ways() -> None:
    pairs = {(wire.source, wire.target) for wire in plan().wires() if wire.source != CLIENTS}
    assert pairs == {(a, b) for a in NODES for b in NODES if a != b}
    assert [str(w) for w in plan(needs=frozenset({CLIENT_DETOURS})).wires()] == [
        f"clients -> {node}" for node in NODES
    ]


def test_pulsars_brokers_are_cut_from_storage_and_not_from_each_other() -> None:
    pairs = {
        (w.source, w.target) for w in plan("pulsar", "bookies-3").wires() if w.source != CLIENTS
    }
    assert ("broker-1", "zookeeper") in pairs
    assert ("broker-2", "bookie-3") in pairs
    assert ("broker-1", "broker-2") not in pairs


def test_a_hosts_file_knows_the_cluster_and_this_machine() -> None:
    names = dict(line.split()[::-1] for line in plan().hosts_file("kafka-2").splitlines())
    assert names["localhost"] == names[socket.gethostname()] == "127.0.0.1"
    assert names["kafka-2.peer"] == "127.0.7.2"
    routes = {(r.source, r.target): r.listen.host for r in plan().routes()}
    assert names["kafka-1.peer"] == routes["kafka-2", "kafka-1"] != routes["kafka-3", "kafka-1"]
    moved = plan().hosts_file("kafka-2", {"kafka-1": "127.0.7.9"})
    assert "127.0.7.9       kafka-1.peer\n" in moved


def test_a_step_of_the_start_is_never_cut_off() -> None:
    assert ["127.0.7.7", "zookeeper.peer"] in map(
        str.split, plan("pulsar", "small").hosts_file("init").splitlines()
    )


def test_brokers_advertise_the_detour_and_listen_where_they_always_did() -> None:
    spec = spec_of("kafka")
    detours = detours_of("run-1", Path("/tmp"), spec, 7, BOTH)
    assert detours is not None
    layout = Layout(spec, Path("/tmp"), 7, LoopbackWiring(detours.plan))
    node = layout.node("kafka-1")
    assert str(node.client) == "127.0.7.101:19092"
    assert str(node.admin) == "127.0.7.1:19094"
    text = layout.conf_text(node, "server.properties")
    assert "listeners=CLIENT://127.0.7.1:19092,PEER://127.0.7.1:19093" in text
    assert "CLIENT://127.0.7.101:19092,PEER://kafka-1.peer:19093,ADMIN://127.0.7.1:19094" in text
    assert "1@kafka-1.peer:19095,2@kafka-2.peer:19095" in text
    assert "ADMIN://127.0.7.1:19094,CONTROLLER://kafka-1.peer:19095\n" in text
    assert detours.jvm_flags("/x") == ["-Djdk.net.hosts.file=/x/hosts"]


@pytest.mark.parametrize(
    ("version", "says_so"), [("3.8.1", False), ("3.9.0", True), ("4.1.2", True)]
)
def test_the_leader_of_the_quorum_is_found_where_a_fault_can_stand(
    version: str, says_so: bool
) -> None:
    """Else it is announced by the name of its machine (KIP-853); older brokers refuse to be
    told."""
    spec = spec_of("kafka", version)
    layout = Layout(spec, Path("/tmp"), 7, DockerWiring(spec))
    text = layout.conf_text(layout.node("kafka-1"), "server.properties")
    settings = dict(
        line.partition("=")[::2] for line in text.splitlines() if not line.startswith("#")
    )
    assert settings["advertised.listeners"].endswith(",CONTROLLER://kafka-1-mesh:19095") == says_so
    assert settings["listener.security.protocol.map"].startswith("CLIENT:PLAINTEXT,")


def test_a_cluster_without_needs_has_no_proxy() -> None:
    assert detours_of("run-1", Path("/tmp"), spec_of("kafka"), 7, frozenset({"cpu-quota"})) is None


def test_a_version_that_has_one_address_only_is_refused() -> None:
    old = spec_of("pulsar", "2.8.1")
    with pytest.raises(UsageError, match="different addresses for clients") as caught:
        detours_of("run-1", Path("/tmp"), old, 7, frozenset({CLIENT_DETOURS}))
    assert "2.10 or newer" in caught.value.hint
    assert detours_of("run-1", Path("/tmp"), old, 7, frozenset({PEER_DETOURS})) is not None


def test_compose_files_that_name_no_such_port_are_refused(tmp_path: Path) -> None:
    from harness.clusters.layout.compose import read_compose

    path = tmp_path / "compose.yaml"
    shared = {
        "system": "kafka",
        "ports": {"client": 1},
        "detours": {"clients": {"broker": ["door"]}},
        "releases": [{"from": "4.0", "java": 17, "coordinates": ["a:b:1"]}],
    }
    service = {"x-brokerstorm": {"number": 1, "main": "M"}}
    path.write_text(json.dumps({"x-brokerstorm": shared, "services": {"a": service}}))
    with pytest.raises(UsageError, match="no port 'door'; there are client"):
        read_compose(path)


@pytest.mark.parametrize(("way", "expected"), [("both", 2), ("in", 1), ("out", 1)])
def test_ways_are_as_the_node_sees_them(way: str, expected: int) -> None:
    wires = plan().wires()
    flows = flows_of(wires, ["kafka-1"], "peers", way)
    assert len(wires_of(flows)) == 4
    assert len(flows) == 4 * expected
    if way == "in":
        assert {flow.receiver for flow in flows} == {"kafka-1"}
    if way == "out":
        assert {flow.sender for flow in flows} == {"kafka-1"}


def test_links_choose_wires() -> None:
    wires = plan().wires()
    assert {f.wire.source for f in flows_of(wires, ["kafka-1"], "clients", "both")} == {CLIENTS}
    assert len(wires_of(flows_of(wires, ["kafka-1"], "all", "both"))) == 5
    assert flows_of(wires, ["nobody"], "all", "both") == []


def test_a_link_of_one_role_is_a_wire_of_its_own() -> None:
    roles = plan(needs=BOTH | {CLIENT_ROLES})
    found = {
        link: {f.wire.source for f in flows_of(roles.wires(), ["kafka-1"], link, "both")}
        for link in ("producers", "consumers", "clients")
    }
    assert found == {
        "producers": {PRODUCERS},
        "consumers": {CONSUMERS},
        "clients": {CLIENTS, PRODUCERS, CONSUMERS},
    }
    assert len(wires_of(flows_of(roles.wires(), ["kafka-1"], "peers", "both"))) == 4


def test_readers_of_the_log_have_a_wire_of_their_own_where_answers_can_be_changed() -> None:
    def sources(needs: frozenset[str]) -> set[str]:
        return {wire.source for wire in plan(needs=needs).wires() if is_client_source(wire.source)}

    roles = frozenset({CLIENT_DETOURS, CLIENT_ROLES})
    assert sources(roles | {ANSWERS}) - sources(roles) == {AUDIT}
    assert AUDIT in ROLES, "the proxy finds the wire by what a process says that it is"


@pytest.mark.parametrize(("system", "topology"), CLUSTERS)
def test_clients_find_the_listener_that_tells_their_roles_apart(system: str, topology: str) -> None:
    roles = plan(system, topology, BOTH | {CLIENT_ROLES})
    routes = {str(route.listen) for route in roles.routes()}
    splits = roles.splits()
    usual = plan(system, topology)
    assert {str(split.listen) for split in splits} == {
        str(route.listen) for route in usual.routes() if route.source == CLIENTS
    }
    named = {route.name for route in roles.routes()}
    for split in splits:
        ends = {
            f"{source}.{split.target}.{split.port}" for source in (CLIENTS, PRODUCERS, CONSUMERS)
        }
        assert ends <= named
    assert not routes & {str(split.listen) for split in splits}
    assert usual.splits() == []


INSTANCES = ["application-billing-1", "application-billing-2", "application-my_app"]


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("applications", INSTANCES),
        ("application:billing", INSTANCES[:2]),
        ("application:billing-2", INSTANCES[1:2]),
        ("application:my.app", INSTANCES[2:]),
        ("clients", [CLIENTS, PRODUCERS, CONSUMERS, *INSTANCES]),
        ("consumers", [CONSUMERS]),
    ],
)
def test_a_link_of_applications_has_the_wires_of_their_instances(
    link: str, found: list[str]
) -> None:
    ways = plan(needs={CLIENT_DETOURS, CLIENT_ROLES})
    routes = [*ways.routes(), *(route for name in INSTANCES for route in ways.of_instance(name))]
    flows = flows_of(wires_of_routes(routes), ["kafka-1"], link, "both")
    assert {flow.wire.source for flow in flows} == set(found)
    assert {flow.wire.target for flow in flows} == {"kafka-1"}
    assert plan().of_instance(INSTANCES[0]) == []


def test_a_ring_of_three_leaves_each_a_majority_of_its_own() -> None:
    cut = {(flow.sender, flow.receiver) for flow in ring(plan().wires(), NODES)}
    heard = {node: {a for a in NODES if (a, node) not in cut} for node in NODES}
    assert all(len(heard[node]) == 2 and node in heard[node] for node in NODES)
    assert len({frozenset(each) for each in heard.values()}) == 3


def test_a_bridge_reaches_all() -> None:
    cut = {(flow.sender, flow.receiver) for flow in bridge(plan().wires(), NODES, "kafka-2")}
    assert cut == {("kafka-1", "kafka-3"), ("kafka-3", "kafka-1")}


WIRE = Wire(CLIENTS, "kafka-1", {"client": Endpoint("127.0.7.101", 1)})


@pytest.mark.parametrize(
    ("impairment", "kind", "attributes"),
    [
        (
            Impairment("delay", delay_s=0.25, jitter_s=0.05),
            "latency",
            {"latency": 250, "jitter": 50},
        ),
        (Impairment("throttle", kilobytes_per_s=64), "bandwidth", {"rate": 64}),
        (Impairment("swallow"), "timeout", {"timeout": 0}),
        (Impairment("reset"), "reset_peer", {"timeout": 0}),
        (
            Impairment("stall", delay_s=2.5, requests=("EndTxn", "Produce"), share=0.4),
            "stall",
            {"protocol": "kafka", "kinds": [26, 0], "share": 0.4, "hold_ms": 2500},
        ),
    ],
)
def test_impairments_are_toxics(
    impairment: Impairment, kind: str, attributes: dict[str, object]
) -> None:
    toxic = toxic_of("fault-1", Flow(WIRE, "source"), impairment, "kafka")
    assert toxic == {
        "name": "fault-1-downstream", "type": kind, "stream": "downstream", "attributes": attributes
    }  # fmt: skip


def timeline(*steps: dict[str, object]) -> faults.Timeline:
    topics = [TopicSettings("orders", 3, 3)]
    return faults.compile(
        [{"at": 1, **step} for step in steps],
        faults.inventory_of(
            topics=topics,
            nodes=NODES,
            client_roles={
                "p-1": "producer",
                "enrich-1": "pipeline",
                "application-billing-1": "application",
                "application-billing-2": "application",
            },
        ),
        seed=1,
        load_s=60,
    )


def test_needs_follow_from_the_link() -> None:
    assert needs_of([timeline({"fault": "latency"})]) == {CLIENT_DETOURS}
    assert needs_of([timeline({"fault": "partition", "link": "peers"})]) == {PEER_CUTS}
    assert needs_of([timeline({"fault": "partition", "link": "all"})]) == {
        CLIENT_DETOURS,
        PEER_CUTS,
    }
    assert needs_of([timeline({"fault": "name-change"})]) == {PEER_DETOURS}
    assert needs_of([timeline({"fault": "blackhole", "link": "all"})]) == BOTH
    stall = {"fault": "request-stall", "requests": ["EndTxn"], "link": "peers"}
    assert needs_of([timeline(stall)]) == {PEER_DETOURS, REQUESTS}
    drop = {"fault": "answer-drop", "requests": ["EndTxn"]}
    assert needs_of([timeline(drop)]) == {CLIENT_DETOURS, CLIENT_ROLES, ANSWERS}
    assert needs_of([timeline({"fault": "latency", "link": "producers"})]) == {
        CLIENT_DETOURS,
        CLIENT_ROLES,
    }
    for link in ("applications", "application:billing-2"):
        needs = needs_of([timeline({"fault": "bandwidth", "link": link})])
        assert needs == {CLIENT_DETOURS, CLIENT_ROLES}
    assert needs_of([timeline({"fault": "kill"})]) == frozenset()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"fault": "partition", "shape": "ring"}, "goes with link: peers"),
        (
            {"fault": "partition", "shape": "ring", "link": "peers", "target": "kafka-1"},
            "has no target",
        ),
        ({"fault": "partition", "shape": "bridge", "link": "peers", "way": "in"}, "both ways"),
        ({"fault": "partition", "link": "peers", "target": "all"}, "together: true"),
        ({"fault": "partition", "link": "brokers"}, "link"),
        ({"fault": "packet-loss", "link": "producers"}, "link"),
        (
            {"fault": "latency", "link": "consumers"},
            "no process of this scenario is only a consumer",
        ),
        (
            {"fault": "latency", "link": "application:shop"},
            "application:shop is not an application here; instances: billing-1, billing-2",
        ),
        ({"fault": "latency", "link": "application:"}, "link"),
        (
            {"fault": "latency", "delay": "10ms", "delay_jitter": "20ms"},
            "must not be more than delay",
        ),
        ({"fault": "bandwidth", "rate": 0}, "rate"),
        ({"fault": "request-stall", "requests": []}, "requests"),
        ({"fault": "request-stall", "requests": ["EndTxn"], "share": 0}, "share"),
    ],
)
def test_steps_that_mean_nothing_are_refused(step: dict[str, object], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        timeline(step)


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("kafka", "no request 'EndTnx' of kafka; did you mean EndTxn?"),
        ("qpid", "no request 'EndTnx' of qpid; they cannot be distinguished"),
    ],
)
def test_requests_are_those_of_the_protocol(system: str, said: str) -> None:
    cluster = describe_cluster(system, needs=frozenset({CLIENT_DETOURS, REQUESTS}))
    params = RequestStallParams(requests=("EndTnx",))
    assert said in RequestStall().refusal(params, cluster)


def test_nobody_reads_requests_in_tls() -> None:
    cluster = describe_cluster("kafka", needs=frozenset({CLIENT_DETOURS, REQUESTS}), secure=True)
    assert "TLS" in RequestStall().refusal(RequestStallParams(requests=("EndTxn",)), cluster)


def test_the_relays_of_answers_end_tls() -> None:
    needs = frozenset({CLIENT_DETOURS, ANSWERS})
    cluster = describe_cluster("kafka", needs=needs, secure=True)
    params = RequestErrorParams(requests=("EndTxn",), error="NOT_COORDINATOR")
    assert RequestError().refusal(params, cluster) == ""


@pytest.mark.parametrize(
    ("system", "step", "said"),
    [
        ("kafka", {"requests": ["Produc"], "error": "NOT_COORDINATOR"}, "did you mean Produce?"),
        (
            "kafka",
            {"requests": ["Produce"], "error": "NOT_A_LEADER"},
            "answers of kafka cannot say 'NOT_A_LEADER'",
        ),
        (
            "kafka",
            {"requests": ["EndTxn"], "error": "NOT_COORDINATOR", "after": "InitProduceId"},
            "after: no request 'InitProduceId' of kafka; did you mean InitProducerId?",
        ),
        ("nats", {"requests": ["PBU"], "error": "JSNotEnabledErr"}, "did you mean PUB?"),
        ("nats", {"requests": ["PUB"], "error": "JSNotEnabled"}, "did you mean JSNotEnabledErr?"),
        (
            "rabbitmq",
            {"requests": ["basic.publish"], "error": "basic.ack"},
            "did you mean basic.nack?",
        ),
        (
            "qpid",
            {"requests": ["tx.commit"], "error": "NOT_FOUND", "answered": "before"},
            "answered: before means nothing for answers of qpid",
        ),
        ("pulsar", {"requests": ["SENT"], "error": "PersistenceError"}, "did you mean SEND?"),
        (
            "pulsar",
            {"requests": ["SEND"], "error": "PersistentError"},
            "did you mean PersistenceError?",
        ),
        (
            "pulsar",
            {"requests": ["FLOW"], "error": "PersistenceError"},
            "requests: FLOW has no answer; allowed: SUBSCRIBE, PRODUCER, SEND, ACK",
        ),
        (
            "nats",
            {"requests": ["PUB", "CONSUMER.MSG.NEXT"], "error": "JSNotEnabledErr"},
            "the answer to CONSUMER.MSG.NEXT cannot say 'JSNotEnabledErr'; allowed in the answer to PUB",
        ),
        (
            "rabbitmq",
            {"requests": ["queue.declare"], "error": "basic.nack"},
            "cannot say 'basic.nack'; allowed in the answer to basic.publish",
        ),
        (
            "qpid",
            {"requests": ["basic.ack"], "error": "NOT_FOUND", "answered": "after"},
            "requests: basic.ack has no answer",
        ),
        ("qpid", {"requests": ["basic.ack"], "error": "NOT_FOUND"}, ""),
        ("nats", {"requests": ["CONSUMER.MSG.NEXT"], "error": "503 No Responders"}, ""),
    ],
)
def test_answers_are_those_of_the_protocol(system: str, step: dict[str, Any], said: str) -> None:
    cluster = describe_cluster(system, needs=frozenset({CLIENT_DETOURS, ANSWERS}))
    refusal = RequestError().refusal(RequestErrorParams(**step), cluster)
    assert said in refusal if said else refusal == ""


@pytest.mark.parametrize(
    ("system", "kind", "params"),
    [
        ("kafka", CloseByBroker(), CloseByBrokerParams()),
        ("kafka", AnswerTwice(), AnswerParams(requests=("Produce",))),
        ("pulsar", MetadataStale(), MetadataStaleParams()),
        ("pulsar", AnswerReorder(), AnswerReorderParams(requests=("SEND",))),
    ],
)
def test_an_act_that_answers_of_a_system_do_not_have_is_refused(
    system: str, kind: AnswerFault[Any], params: Any
) -> None:
    cluster = describe_cluster(system, needs=frozenset({CLIENT_DETOURS, ANSWERS}))
    assert (
        kind.refusal(params, cluster) == f"fault: {kind.kind} means nothing for answers of {system}"
    )


@pytest.mark.parametrize(
    ("system", "step", "said"),
    [
        ("pulsar", {"requests": ("LOOKUP",)}, "LOOKUP names nothing to close; allowed: SEND, ACK"),
        ("pulsar", {"says": "NOT_FOUND"}, "brokers of pulsar do not say 'NOT_FOUND'; leave it out"),
        ("nats", {"requests": ("PUB",)}, "brokers of nats do not say ''; allowed: "),
        ("nats", {"requests": ("PUB",), "says": "SlowConsumer"}, "did you mean Slow Consumer?"),
        ("rabbitmq", {"requests": ("basic.ack",), "says": "NOT_FOUND"}, ""),
        ("qpid", {"requests": ("basic.ack",), "says": "connection.blocked"}, ""),
    ],
)
def test_a_broker_closes_as_its_protocol_can(system: str, step: dict[str, Any], said: str) -> None:
    cluster = describe_cluster(system, needs=frozenset({CLIENT_DETOURS, ANSWERS}))
    refusal = CloseByBroker().refusal(CloseByBrokerParams(**step), cluster)
    assert said in refusal if said else refusal == ""


@pytest.mark.parametrize("system", ["nats", "rabbitmq", "qpid"])
def test_requests_that_are_known_by_their_answers_only_cannot_be_held(system: str) -> None:
    cluster = describe_cluster(system, needs=frozenset({CLIENT_DETOURS, REQUESTS}))
    params = RequestStallParams(requests=("PUB",))
    assert "they cannot be distinguished" in RequestStall().refusal(params, cluster)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"share": 0.5, "nth": 3}, "share and nth exclude each other"),
        ({"nth": 3, "after": "JoinGroup"}, "nth and after exclude each other"),
        ({"delay": "2s"}, "delay means nothing with answered: instead"),
        ({"partitions": 0.5}, "a request is answered as a whole"),
        ({"link": "peers"}, "must be about clients"),
        ({"fault": "metadata-stale", "error": ..., "requests": ["Fetch"]}, "requests"),
        ({"fault": "wrong-bytes", "error": ..., "requests": ["Metadata"]}, "requests"),
    ],
)
def test_a_change_of_answers_that_means_nothing_is_refused(
    step: dict[str, object], said: str
) -> None:
    error = {"fault": "request-error", "requests": ["Produce"], "error": "NOT_COORDINATOR"}
    made = {key: value for key, value in {**error, **step}.items() if value is not ...}
    with pytest.raises(ScenarioError, match=said):
        timeline(made)


def test_all_nodes_may_be_cut_from_clients_at_once() -> None:
    assert timeline({"fault": "partition", "target": "all"}).firings[0].target == "all"


def test_a_ring_is_told_of_all() -> None:
    params = PartitionParams(shape="ring", link="peers")
    inventory = Inventory((), NODES)
    assert Partition().target(Partition().complete(params, inventory)) == "all"
    assert "outside of its majority" in Partition().commands(params, inventory)[0]
    with pytest.raises(StepProblem):
        Partition().complete(PartitionParams(target="kafka-9"), inventory)
