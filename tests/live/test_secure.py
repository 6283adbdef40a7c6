"""Workers keep the contract on brokers with TLS and users as on plain ones, and nobody else gets in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from harness.brokers.kafka_security import probe_options
from harness.clusters.security.made import CLIENT, GUEST
from harness.connections.secret import Secret
from harness.connections.security import Security
from harness.contract import Check, checks_of
from harness.contract.driving import NotHere
from harness.contract.rig import Place, Rig
from harness.systems import DEFAULT
from harness.workers import known_workers, load_worker
from harness.workers.spec import WorkerSpec
from tests.live.cluster_rig import ClusterPool

pytestmark = pytest.mark.live


def asked() -> Iterator[Any]:
    """Every check of every worker; by day the first one of the system that scenarios are of by default."""
    by_day = load_worker(DEFAULT.client)
    for worker in sorted(known_workers().values(), key=lambda worker: (worker.system, worker.library)):
        for number, check in enumerate(checks_of(worker)):
            marks = [] if worker == by_day and number == 0 else [pytest.mark.slow]
            name = f"{worker.system} {worker.library}: {check.name}"
            if not check.missing(worker):
                yield pytest.param(worker, check, id=name, marks=marks)


@pytest.mark.parametrize(("worker", "check"), list(asked()))
def test_contract(pool: ClusterPool, worker: WorkerSpec, check: Check, tmp_path: Path) -> None:
    rig = Rig(Place(pool.get(worker.system, secure=True), tmp_path), worker)
    try:
        check.run(rig)
    except NotHere as error:
        pytest.skip(str(error))
    finally:
        rig.close()


@pytest.mark.slow  # a wrong password is told after the client has tried for a while
@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512"])
def test_kafka_lets_in_whom_it_knows_and_lets_do_who_may(pool: ClusterPool, mechanism: Any) -> None:
    cluster = pool.get("kafka", secure=True)
    assert cluster.made
    assert cluster.security
    assert cluster.security.auth

    def seen_by(user: str, password: Secret) -> set[str]:
        auth = replace(cluster.security.auth, mechanism=mechanism, user=user, secret=password)
        options = probe_options(Security(cluster.security.tls, auth))
        client = AdminClient({"bootstrap.servers": cluster.bootstrap, **options})
        return set(client.list_topics(timeout=20).topics)

    secrets = cluster.made.secrets
    assert "__consumer_offsets" in seen_by(CLIENT, secrets[CLIENT])
    assert seen_by(GUEST, secrets[GUEST]) == set()
    with pytest.raises(KafkaException):
        seen_by(CLIENT, secrets[GUEST])
