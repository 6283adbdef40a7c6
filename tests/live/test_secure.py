"""Workers keep the contract on brokers with TLS and users as on plain ones, and nobody else gets
in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from harness.clusters import BrokerCluster
from harness.clusters.assembly import assembly_of, brokers
from harness.clusters.cluster import describe_cluster
from harness.clusters.layout.tokens import signed_token
from harness.clusters.security.certificates import Authority
from harness.clusters.security.made import CLIENT, GUEST
from harness.connections.secret import Secret
from harness.connections.security import Auth, Security, Tls
from harness.contract import WorkerCheck, checks_of
from harness.contract.driving import DrivenWorker, NotHere
from harness.contract.rig import CheckPlace, Rig
from harness.contract.secrets import REFUSED_S
from harness.protocols.cluster import Endpoint
from harness.records import Outcome
from harness.systems import DEFAULT
from harness.systems.kafka.assembly import TOKEN
from harness.systems.kafka.security import probe_options
from harness.workers import known_workers, load_worker
from harness.workers.spec import WorkerSpec
from tests.certificates import HOST, Flaw, flawed, tls_server, token_server, written
from tests.live.cluster_rig import ClusterPool

pytestmark = pytest.mark.live

#: Library and check that a secure cluster cannot be asked for.
LOCKED_OUT = {("confluent-kafka", "an older version writes the same rows")}


def asked() -> Iterator[Any]:
    """Every check of every worker; by day the first one of the system that scenarios are of by
    default."""
    by_day = load_worker(DEFAULT.client)
    for worker in sorted(
        known_workers().values(), key=lambda worker: (worker.system, worker.library)
    ):
        for number, check in enumerate(checks_of(worker)):
            marks = [] if worker == by_day and number == 0 else [pytest.mark.slow]
            if (worker.library, check.name) in LOCKED_OUT:
                marks = [pytest.mark.skip("librdkafka#4895: until 2.6.1 brokers refuse its SCRAM")]
            name = f"{worker.system} {worker.library}: {check.name}"
            if not check.missing(worker):
                yield pytest.param(worker, check, id=name, marks=marks)


@pytest.mark.parametrize(("worker", "check"), list(asked()))
def test_contract(
    pool: ClusterPool, worker: WorkerSpec, check: WorkerCheck, tmp_path: Path
) -> None:
    rig = Rig(CheckPlace(pool.get(worker.system, secure=True), tmp_path), worker)
    try:
        check.run(rig)
    except NotHere as error:
        pytest.skip(str(error))
    finally:
        rig.close()


PRODUCERS = sorted(
    (worker for worker in known_workers().values() if "producer" in worker.roles),
    key=lambda each: each.library,
)
every_producer = pytest.mark.parametrize(
    "worker", [pytest.param(each, id=each.library) for each in PRODUCERS]
)
kafka_producer = pytest.mark.parametrize(
    "worker", [pytest.param(each, id=each.library) for each in PRODUCERS if each.system == "kafka"]
)


def ways_in(cluster: BrokerCluster[Any]) -> tuple[Security, Mapping[str, Secret]]:
    """How clients get in, and all secrets."""
    assert cluster.security
    assert cluster.made
    return cluster.security, cluster.made.secrets


@contextmanager
def rig_on(cluster: BrokerCluster[Any], folder: Path, worker: WorkerSpec) -> Iterator[Rig]:
    rig = Rig(CheckPlace(cluster, folder), worker)
    try:
        yield rig
    finally:
        rig.close()


def assert_says_why(producer: DrivenWorker) -> None:
    """It ends before it is ready, and with one line."""
    text = producer.refused(REFUSED_S)["text"]
    assert text
    assert "\n" not in text


@pytest.mark.slow  # most clients go on trying for a while
@every_producer
@pytest.mark.parametrize("flaw", ["expired", "other host"])
def test_a_flawed_certificate_ends_a_worker_before_it_is_ready(
    worker: WorkerSpec, flaw: Flaw, tmp_path: Path
) -> None:
    cluster, authority = describe_cluster(worker.system, secure=True), Authority()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    security = replace(ways_in(cluster)[0], tls=Tls(tmp_path / "ca.pem"))
    with (
        tls_server(*written(flawed(authority, flaw), tmp_path)) as port,
        rig_on(cluster, tmp_path, worker) as rig,
    ):
        node = replace(brokers(cluster.runtime.nodes)[0], client=Endpoint(HOST, port))
        where = assembly_of(worker.system).bootstrap([node], secure=True)
        assert_says_why(rig.producer("nowhere", bootstrap=where, security=security))


@pytest.mark.slow
@pytest.mark.parametrize(
    "worker", [pytest.param(each, id=each.library) for each in PRODUCERS if each.system != "qpid"]
)
def test_who_may_do_nothing_is_told_before_it_is_ready(
    pool: ClusterPool, worker: WorkerSpec, tmp_path: Path
) -> None:
    cluster = pool.get(worker.system, secure=True)
    security, secrets = ways_in(cluster)
    assert security.auth
    guest = replace(security.auth, user=GUEST if security.auth.user else "", secret=secrets[GUEST])
    with rig_on(cluster, tmp_path, worker) as rig:
        assert_says_why(rig.producer(rig.topic(), security=replace(security, auth=guest)))


def assert_lets_in(pool: ClusterPool, worker: WorkerSpec, folder: Path, auth: Auth) -> None:
    """All that a producer sends is stored."""
    cluster = pool.get("kafka", secure=True)
    security = replace(ways_in(cluster)[0], auth=auth)
    with rig_on(cluster, folder, worker) as rig:
        made = rig.producer(rig.topic(), security=security).send_all()
        assert set(made.sends["outcome"]) == {Outcome.OK}


@pytest.mark.slow
@kafka_producer
@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256"])
def test_kafka_clients_show_a_password(
    pool: ClusterPool, worker: WorkerSpec, mechanism: Any, tmp_path: Path
) -> None:
    _, secrets = ways_in(pool.get("kafka", secure=True))
    assert_lets_in(pool, worker, tmp_path, Auth(mechanism, secrets[CLIENT], CLIENT))


@pytest.mark.slow
@kafka_producer
def test_kafka_clients_show_a_token(pool: ClusterPool, worker: WorkerSpec, tmp_path: Path) -> None:
    _, secrets = ways_in(pool.get("kafka", secure=True))
    assert_lets_in(pool, worker, tmp_path, Auth("oauthbearer", secrets[TOKEN]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "worker",
    [
        pytest.param(each, id=each.library)
        for each in PRODUCERS
        if "oauthbearer-client" in each.security.auth
    ],
)
def test_kafka_clients_fetch_a_token(pool: ClusterPool, worker: WorkerSpec, tmp_path: Path) -> None:
    _, secrets = ways_in(pool.get("kafka", secure=True))
    with token_server(secrets[TOKEN].reveal()) as (url, asked):
        auth = Auth(
            "oauthbearer", Secret("s3kr1t"), token_url=url, client_id="storm", scope="brokers"
        )
        assert_lets_in(pool, worker, tmp_path, auth)
    assert asked
    assert all("scope=brokers" in body for body in asked)


@pytest.mark.slow
@kafka_producer
def test_a_token_that_is_over_ends_a_worker_before_it_is_ready(
    pool: ClusterPool, worker: WorkerSpec, tmp_path: Path
) -> None:
    cluster, now = pool.get("kafka", secure=True), datetime.now(UTC)
    security, secrets = ways_in(cluster)
    over = signed_token(
        secrets["token-key"], CLIENT, (now - timedelta(days=2), now - timedelta(days=1))
    )
    with rig_on(cluster, tmp_path, worker) as rig:
        assert_says_why(
            rig.producer(rig.topic(), security=replace(security, auth=Auth("oauthbearer", over)))
        )


@pytest.mark.slow  # a wrong password is told after the client has tried for a while
@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512"])
def test_kafka_lets_in_whom_it_knows_and_lets_do_who_may(pool: ClusterPool, mechanism: Any) -> None:
    cluster = pool.get("kafka", secure=True)
    security, secrets = ways_in(cluster)

    def seen_by(user: str, password: Secret) -> set[str]:
        options = probe_options(replace(security, auth=Auth(mechanism, password, user)))
        client = AdminClient({"bootstrap.servers": cluster.bootstrap, **options})
        return set(client.list_topics(timeout=20).topics)

    assert "__consumer_offsets" in seen_by(CLIENT, secrets[CLIENT])
    assert seen_by(GUEST, secrets[GUEST]) == set()
    with pytest.raises(KafkaException):
        seen_by(CLIENT, secrets[GUEST])
