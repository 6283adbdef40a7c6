"""Certificates, secrets and settings of clusters of ours that are secure."""

from __future__ import annotations

import re
import socket
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.admin.tls import context_of
from harness.clusters.assembly import assembly_of
from harness.clusters.cluster import describe_cluster, open_cluster
from harness.clusters.layout.management import Management
from harness.clusters.security import made
from harness.clusters.security.certificates import Authority
from harness.connections.file import read_connection
from harness.connections.security import Tls
from harness.errors import EnvironmentNotReady, UsageError
from tests.certificates import HOST, Flaw, flawed, tls_server, written


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ("nothing", ""),
        ("expired", "expired"),
        ("other host", "IP address mismatch"),
        ("other authority", "unable to get local issuer"),
    ],
)
def test_a_client_tells_a_flawed_certificate(
    authority: Authority, tmp_path: Path, flaw: Flaw, said: str
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.certificate)
    context = context_of(Tls(ca))
    assert context
    with (
        tls_server(*written(flawed(authority, flaw), tmp_path)) as port,
        socket.create_connection((HOST, port)) as link,
    ):
        if not said:
            with context.wrap_socket(link, server_hostname=HOST) as shaken:
                assert shaken.version() == "TLSv1.3"
            return
        with pytest.raises(ssl.SSLCertVerificationError, match=said):
            context.wrap_socket(link, server_hostname=HOST)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(EnvironmentNotReady, match=re.escape(f"cannot use {tmp_path}/ca.pem")):
        context_of(Tls(tmp_path / "ca.pem"))


@pytest.fixture
def secure(system: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    return describe_cluster(system, secure=True)


def test_the_management_password_is_for_us_alone_and_for_later_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    layout = describe_cluster("nats").runtime.layout
    first, later = Management("run-1"), Management("run-1")
    assert first.environment() != later.environment(), "each cluster has a password of its own"
    with pytest.raises(
        EnvironmentNotReady, match="cannot read the management password of run-1"
    ) as raised:
        later.restore()
    assert raised.value.hint == "`brokerstorm clean run-1` removes the cluster"
    first.keep(layout)
    later.restore()
    assert later.environment() == first.environment()
    files = [
        path for path in (tmp_path / "state" / "security" / "run-1").rglob("*") if path.is_file()
    ]
    of_all = {"management.secret", "management.passwd", "management.token"}
    assert {path.name for path in files} == {*of_all, "routes.conf"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not set(first.environment().values()) & set(first.values().values()), (
        "no template is told it"
    )
    made.forget("run-1")
    assert not any((tmp_path / "state" / "security").iterdir())


SYSTEMS = ("kafka", "nats", "pulsar", "qpid")


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_secret_lies_outside_of_the_run_and_for_us_alone(
    secure: Any, tmp_path: Path
) -> None:
    secure.made.make(secure.runtime.layout)
    secrets = [secret.reveal() for secret in secure.made.secrets.values()]
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {
        stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state/security").rglob("*/")
    } == {0o700}
    layout = secure.runtime.layout
    for node in layout.all_nodes.values():
        for target in layout.services[node.name].templates:
            text = layout.conf_text(node, target)
            assert "PRIVATE KEY" not in text
            assert not [secret for secret in secrets if secret in text]
    assert not any(secret in repr(vars(secure.made)) for secret in secrets)
    made.forget("described")
    assert not secure.made.folder.exists()


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_connection_file_can_be_read_back(secure: Any, tmp_path: Path) -> None:
    secure.made.make(secure.runtime.layout)
    path = tmp_path / made.CONNECTION_FILE
    access = assembly_of(secure.system).access(secure.made)
    path.write_text(
        secure.made.connection(secure.system, "", {"bootstrap": secure.bootstrap}, access)
    )
    found = read_connection(path)
    assert found.file.bootstrap == secure.bootstrap
    assert found.security.tls == secure.security.tls
    assert found.security.auth
    assert found.security.auth.secret.reveal() == secure.security.auth.secret.reveal()
    if access.admin.auth:  # else it has a certificate
        assert found.admin.auth
        assert found.admin.auth.secret.reveal() == access.admin.auth.secret.reveal()
    assert yaml.safe_load(path.read_text())["yours"] is True


def test_another_process_finds_the_secrets_until_they_are_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    cluster = describe_cluster("kafka", secure=True)
    assert cluster.made
    cluster.made.make(cluster.runtime.layout)
    names = list(cluster.made.secrets)
    again = made.ClusterSecurity.made_for("described", names)
    assert [again.secrets[name].reveal() for name in names] == [
        cluster.made.secrets[name].reveal() for name in names
    ]
    made.forget("described")
    with pytest.raises(EnvironmentNotReady, match="the secrets of described are gone"):
        made.ClusterSecurity.made_for("described", names)


def test_a_secure_cluster_is_asked_in_plain_text_only_where_its_nodes_speak_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The proof of a network fault: without a request, a partition of nodes had no effect that
    could be seen before RabbitMQ tells it a minute later."""
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    asked: dict[str, set[str]] = {}
    for system in (*SYSTEMS, "rabbitmq"):
        cluster = describe_cluster(system, secure=True)
        ports = cluster.runtime.spec.ports
        asked[system] = {port for port in ports if cluster.request(port) is not None}
    assert asked == {
        "kafka": set(), "nats": set(), "qpid": set(),
        "pulsar": {"bookie", "zookeeper"}, "rabbitmq": {"peer"},
    }  # fmt: skip


def test_containers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--secure: only processes; use --runtime process"):
        open_cluster("kafka", run_id="x", folder=tmp_path, runtime="docker", secure=True)
