"""A real Pulsar cluster as processes: it works, bundles move, owners die, and what goes wrong is
said."""

from __future__ import annotations

import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
import urllib3

from harness.clusters import leftovers, open_cluster
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import HasNamespaces, HasTransfers, TopicSettings
from harness.rundir import RunDir
from harness.systems.pulsar import SETTINGS
from harness.systems.pulsar.assembly import PulsarCluster
from harness.waiting import wait_until
from tests.live.cluster_rig import UP_S, ClusterPool, fire, make_whole, new_run_id, up
from tests.live.zookeeper_stranger import assert_a_stranger_is_refused

pytestmark = pytest.mark.live

TOPICS = [*(TopicSettings(f"orders-{n}", 1, 1) for n in range(6)), TopicSettings("clicks", 4, 1)]
NAMES = [topic.name for topic in TOPICS]
#: Every policy that a fault may change, as it is by default nowhere.
CHANGED = {key: "true" if isinstance(default, bool) else "5" for key, default in SETTINGS.items()}


@pytest.fixture
def whole(pool: ClusterPool) -> PulsarCluster:
    found: PulsarCluster = pool.get("pulsar")
    if not set(NAMES) <= set(found.admin.topics()):
        found.admin.create_topics(TOPICS)
    make_whole(found, *NAMES)
    return found


@pytest.fixture
def inject(whole: PulsarCluster, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Fires one step and returns its last effect row; it must be healed."""

    def one(step: dict[str, Any]) -> dict[str, Any]:
        run = RunDir(tmp_path / f"run-{time.monotonic_ns()}").create()
        return fire(whole, run, TOPICS, step)["effect"]

    return one


def test_a_cluster_that_is_up_works(whole: PulsarCluster) -> None:
    admin = whole.admin
    assert isinstance(admin, HasTransfers)
    assert isinstance(admin, HasNamespaces)
    assert admin.registered() == {node.name for node in whole.runtime.nodes}
    assert admin.controller() in {"broker-1", "broker-2", "broker-3"}
    assert set(NAMES) <= set(admin.topics())
    before = admin.end_offsets(NAMES)
    assert set(before) == {*(f"orders-{n}-0" for n in range(6)), *(f"clicks-{n}" for n in range(4))}
    admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)
    assert {
        stream: n - before[stream] for stream, n in admin.end_offsets(NAMES).items()
    } == dict.fromkeys(before, 1), "one probe a stream"
    assert whole.bootstrap.startswith("pulsar://127.0.")
    assert len(whole.admin_url.split(",")) == 3


def test_administration_is_for_the_harness_alone(whole: PulsarCluster) -> None:
    """A broker reads files as our user for whoever may register a cluster. Clients need no
    token."""
    root = f"http://{whole.runtime.nodes[-1].admin}/admin/v2"
    stolen = {
        "serviceUrl": "http://127.0.0.1:1",
        "brokerServiceUrl": "pulsar://127.0.0.1:1",
        "authenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "authenticationParameters": "file:///etc/hostname",
    }
    asked: list[tuple[str, str, Any]] = [
        ("PUT", "clusters/stranger", stolen),
        ("PUT", "tenants/stranger", {"allowedClusters": ["brokerstorm"]}),
        ("POST", f"namespaces/{whole.admin.namespace}/retention", {"retentionTimeInMinutes": 0}),
        ("POST", f"namespaces/{whole.admin.namespace}/permissions/anonymous", ["functions"]),
        ("POST", "brokers/configuration/maxTenants/1", None),
    ]
    answers = {
        path: urllib3.request(how, f"{root}/{path}", json=body).status for how, path, body in asked
    }
    assert set(answers.values()) <= {401, 403}, answers
    ended = urllib3.request("POST", f"{root}/brokers/shutdown?maxConcurrentUnloadPerSec=1")
    assert ended.status in (401, 403)
    client = pulsar.Client(whole.bootstrap)
    try:
        for topic in ("persistent://public/default/own", whole.admin.address("orders-0-0")):
            consumer = client.subscribe(topic, "stranger")
            sent = client.create_producer(topic).send(b"by a client")
            assert consumer.receive(timeout_millis=10_000).message_id() == sent
    finally:
        client.close()


def test_zookeeper_is_for_the_nodes_and_the_harness_alone(whole: PulsarCluster) -> None:
    """Brokers trust what it says: a cluster that is registered there names files that they read."""
    assert_a_stranger_is_refused(whole)


@pytest.mark.extended
def test_brokers_and_harness_show_their_password_again_to_a_zookeeper_that_came_back(
    whole: PulsarCluster,
) -> None:
    def owners() -> set[str]:
        try:
            return {owner for owner in whole.admin.bundle_owners().values() if owner}
        except EnvironmentNotReady:  # it has not come back yet
            return set()

    whole.runtime.kill("zookeeper")
    assert owners() == set()
    whole.runtime.start("zookeeper")
    assert wait_until(owners, UP_S)
    whole.admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)
    assert_a_stranger_is_refused(whole)


def test_owners_are_those_that_a_lookup_finds(whole: PulsarCluster) -> None:
    admin = whole.admin
    states = admin.partition_states(NAMES)
    assert len(states) == 10
    for stream, state in states.items():
        where = admin.address(stream).replace("://", "/")
        found = admin._rest.get(f"/../../lookup/v2/topic/{where}")
        assert admin._rest.name_of(found["httpUrl"]) == state.leader
    assert len(set(admin.bundle_owners().values())) > 1, "not all bundles at one broker"


def test_unloads_make_streams_load_anew(
    whole: PulsarCluster, inject: Callable[..., dict[str, Any]]
) -> None:
    effect = inject({"fault": "unload", "target": "topic:clicks"})
    assert effect["effective"], effect
    effect = inject({"fault": "unload-storm", "times": 4, "pairs": True})
    assert effect["effective"], effect
    assert effect["details"]["done"] == 8
    # Asking loads a stream that nobody uses, which opens its next ledger.
    loaded = {
        stream: whole.admin.incarnation(stream) for stream in whole.admin.partition_states(NAMES)
    }
    assert {one.stream: one.term for one in whole.admin.leaderships(NAMES, {})} == loaded


def test_a_bundle_goes_where_it_is_sent(
    whole: PulsarCluster, inject: Callable[..., dict[str, Any]]
) -> None:
    owner = whole.admin.leaders("orders-1")[0]
    effect = inject({"fault": "transfer", "target": "bundle-of:orders-1"})
    assert effect["effective"], effect
    assert whole.admin.leaders("orders-1")[0] not in (owner, None)
    effect = inject({"fault": "split-bundle", "target": "bundle-of:orders-2"})
    assert effect["details"]["bundles"] == [12, 13]


@pytest.mark.extended
def test_a_killed_owner_is_missed_and_comes_back(
    whole: PulsarCluster, inject: Callable[..., dict[str, Any]]
) -> None:
    effect = inject({"fault": "kill", "target": "owner-of:orders-3", "for": "2s"})
    assert effect["effective"], effect
    assert effect["details"]["unled"] + effect["details"].get("leaders_moved", 0) > 0
    whole.admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)
    assert None not in {state.leader for state in whole.admin.partition_states(NAMES).values()}


@pytest.mark.extended
def test_brokers_are_asked_what_they_own_only_when_a_scenario_says_so(
    whole: PulsarCluster, inject: Callable[..., dict[str, Any]]
) -> None:
    effect = inject({"fault": "admin-question", "at": "0s", "for": "1s", "gap": "200ms"})
    assert effect["effective"], effect
    assert effect["details"]["answers"] >= 3, "each of three brokers"
    assert set(whole.admin.bundle_owners().values()) <= {"broker-1", "broker-2", "broker-3"}


@pytest.mark.extended
def test_a_bookie_that_stands_still_answers_nobody(inject: Callable[..., dict[str, Any]]) -> None:
    effect = inject({"fault": "pause", "target": "role:bookie", "for": "2s"})
    assert effect["effective"], effect
    assert effect["details"]["silent"] == ["bookie-1"]


@pytest.mark.extended
def test_policies_change_and_are_put_back(
    whole: PulsarCluster, inject: Callable[..., dict[str, Any]]
) -> None:
    before = whole.admin.own_settings("namespace", list(CHANGED))
    effect = inject({"fault": "change-config", "config": CHANGED, "for": "1s"})
    assert {key: pair[1] for key, pair in effect["details"]["changed"].items()} == CHANGED
    assert whole.admin.own_settings("namespace", list(CHANGED)) == before


def test_what_pulsar_refuses_is_told_in_its_words(whole: PulsarCluster) -> None:
    with pytest.raises(UsageError, match="already exists"):
        whole.admin.create_topics([TOPICS[0]])
    with pytest.raises(UsageError, match="not valid"):
        whole.admin.enter_namespace("public/no such name!")
    with pytest.raises(UsageError, match="Tenant does not exist"):
        whole.admin.enter_namespace("nobody/there")
    with pytest.raises(UsageError, match="not found"):
        whole.admin.unload_stream("nothing-0")


@pytest.mark.extended
def test_a_namespace_goes_with_all_its_topics(whole: PulsarCluster) -> None:
    other = "public/bs-00000002"
    admin = whole.admin
    ours = admin.namespace
    try:
        admin.enter_namespace(other, bundles=4)
        admin.create_topics(TOPICS)
        admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=2)
        admin.drop_namespace(other)
        assert other not in admin.namespaces()
        admin.drop_namespace(other)  # twice is no error
    finally:
        admin._current, admin._partitions = ours, {}


@pytest.mark.extended
def test_a_dead_zookeeper_ends_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    run_id = new_run_id()
    cluster = open_cluster("pulsar", run_id=run_id, folder=tmp_path)

    def kill() -> None:
        while not cluster.runtime.is_running("zookeeper"):
            time.sleep(0.01)
        cluster.runtime.kill("zookeeper")

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(EnvironmentNotReady, match="zookeeper died"):
            cluster.up(timeout_s=UP_S)
    finally:
        killer.join()
        cluster.down()
    assert leftovers.find(run_id) == []


@pytest.mark.slow
@pytest.mark.parametrize(("version", "topology"), [("2.8.1", "small"), ("4.0.8", "bookies-3")])
def test_other_clusters_work_too(version: str, topology: str, tmp_path: Path) -> None:
    with up("pulsar", tmp_path, *TOPICS, version=version, topology=topology) as cluster:
        before = cluster.admin.incarnation("orders-0-0")
        cluster.admin.unload_stream("orders-0-0")
        assert cluster.admin.incarnation("orders-0-0") != before
        assert cluster.admin.registered() == {node.name for node in cluster.runtime.nodes}
        step = {"fault": "change-config", "config": CHANGED, "for": "1s"}
        run = RunDir(tmp_path / "run").create()
        assert (
            fire(cluster, run, TOPICS, step)["effect"]["details"]["changed"].keys()
            == CHANGED.keys()
        )


def test_a_broker_loads_no_code_from_a_folder_that_a_stranger_names(
    whole: PulsarCluster, tmp_path: Path
) -> None:
    """Any account of the machine may set policies; code in a broker has the rights of our user."""
    archive = tmp_path / "stranger.nar"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        made.writestr(
            "META-INF/services/pulsar-offloader.yaml", "offloaderFactoryClass: stranger.Code\n"
        )
    rest = whole.admin._rest
    rest.put("/namespaces/public/stranger", {"replication_clusters": ["brokerstorm"]})
    policy = {"managedLedgerOffloadDriver": "filesystem", "offloadersDirectory": str(tmp_path)}
    rest.post("/namespaces/public/stranger/offloadPolicies", policy)
    rest.put("/persistent/public/stranger/topic")
    # it is loaded, with the policies of its namespace
    rest.get("/persistent/public/stranger/topic/stats")

    logs = [(node.folder / "logs").rglob("*") for node in whole.runtime.nodes]
    lines = [path.read_text(errors="replace") for each in logs for path in each if path.is_file()]
    assert any("createManagedLedgerOffloader" in text for text in lines), (
        "a broker looked into the folder"
    )
    folder = whole.runtime.nodes[0].folder.parent
    assert not list(folder.rglob("stranger.nar-unpacked"))
