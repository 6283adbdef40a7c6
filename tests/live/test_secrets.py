"""Secrets of every kind in a connection file: nothing that commands print, leave or start shows
one."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from harness.clusters.layout.addresses import state_folder
from harness.clusters.security.certificates import Authority
from harness.clusters.security.made import CLIENT
from harness.connections.redaction import SecretRemover
from harness.systems.kafka.assembly import KafkaCluster
from tests.certificates import written
from tests.driver_rig.external import ACTIONS, commands
from tests.live.cluster_rig import ClusterPool, make_whole
from tests.live.run_rig import BROKERSTORM, RUN_TIMEOUT_S, Said

# a run with every language, judged, and a dozen commands: two minutes
pytestmark = [pytest.mark.slow]

#: What shells, JSON and URLs write in another way is in each.
KEY_PASSWORD = "k3y-p4ss \"q'\\b%41$;{x}"
WRONG = {
    name: f"{name}-wr0ng-\"q'\\b%41$;{{x}}"
    for name in ("password", "plain", "token", "client_secret")
}
#: Between two looks at all processes.
LOOK_S = 0.5
SCENARIO = """
name: whispers
topics: {orders: {partitions: 3}}
load:
  rate: 300
  duration: 10s
  warm_up: 1s
  producers:
    c: {client: confluent-kafka, options: {acks: all, enable.idempotence: true}}
    python: {client: kafka-python, options: {acks: all, enable_idempotence: true}}
    java: {client: kafka-clients, options: {acks: all, enable.idempotence: true}}
  consumers:
    billing: {client: kafka-clients}
faults:
  - {fault: leader-move, at: 2s}
  - {fault: kill, target: kafka-2, at: 4s, for: 1s}
require: {rate_ratio: 0.5}
"""


@dataclass
class Place:
    """Where commands are called, and what may be seen of them."""

    folder: Path
    secrets: Mapping[str, str]
    environment: Mapping[str, str]
    said: dict[str, Said] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        forms = {form for text in self.secrets.values() for form in _forms(text)}
        self._any = re.compile(
            b"|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        )

    def holds(self, content: bytes) -> bool:
        return bool(self._any.search(content))

    def call(self, name: str, *words: str) -> Said:
        """A command, and a look at every process of the machine while it runs."""
        files = [self.folder / f"{name}.{kind}" for kind in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = subprocess.Popen(
                [*BROKERSTORM, "--run-dir", str(self.folder / "runs"), *words],
                cwd=self.folder, env={**os.environ, **self._variables(words)}, stdout=out, stderr=err,
            )  # fmt: skip
            try:
                self._watch(process)
            finally:
                process.kill()
                process.wait()
        self.said[name] = Said(process.returncode, *(path.read_text() for path in files))
        return self.said[name]

    def _variables(self, words: tuple[str, ...]) -> dict[str, str]:
        """Those that the connection file names."""
        file = (self.folder / words[-1]).read_text() if "--cluster" in words else ""
        return {name: text for name, text in self.environment.items() if name in file}

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(int(RUN_TIMEOUT_S / LOOK_S)):
            self.seen += [
                f"{path}: {path.with_name('cmdline').read_bytes()[:200]!r}"
                for path in _told_to_processes(except_of=process.pid)
                if self.holds(_read(path))
            ]
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            return
        raise AssertionError("did not end")

    def leaks(self, root: Path) -> list[str]:
        """Files with a secret in them."""
        files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
        return [str(path.relative_to(root)) for path in files if self.holds(_decoded(path))]

    def is_clean(self, cluster: Path) -> None:
        """No secret in what commands said and left, nor in the cluster's folder or this user's
        state, but where the secrets of clusters of ours are documented to be."""
        state = self.leaks(state_folder().parent)
        assert self.seen == []
        assert [leak for leak in state if not leak.startswith("security/")] == []
        assert self.leaks(self.folder) == []
        assert self.leaks(cluster) == []


def _forms(secret: str) -> Iterator[bytes]:
    """A secret as it is, as formats write it, and as errors are kept: without numbers."""
    for form in (*SecretRemover([secret]).forms, re.sub(r"[0-9]+", "*", secret)):
        yield form.encode()


def _told_to_processes(except_of: int) -> Iterator[Path]:
    """Arguments and environment of everybody but a process itself."""
    for pid in psutil.pids():
        if pid not in (except_of, os.getpid()):
            yield from (Path(f"/proc/{pid}/{name}") for name in ("cmdline", "environ"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _decoded(path: Path) -> bytes:
    """Content, with the columns of Parquet as they are."""
    if path.suffix != ".parquet":
        return _read(path)
    plain = pa.BufferOutputStream()
    pq.write_table(pq.read_table(path), plain, compression="none", use_dictionary=False)
    return path.read_bytes() + plain.getvalue().to_pybytes()


@pytest.fixture
def cluster(pool: ClusterPool) -> Iterator[KafkaCluster]:
    found: KafkaCluster = pool.get("kafka", secure=True)
    yield found
    found.runtime.adopt()  # the operator may have started a node
    make_whole(found)


@pytest.fixture
def place(cluster: KafkaCluster, tmp_path: Path) -> Place:
    """A secure cluster as somebody else's; the secrets of its file in variables and in files."""
    assert cluster.made
    folder = tmp_path / "work"
    folder.mkdir()
    documented = tmp_path / "secrets"
    documented.mkdir()
    authority = Authority("of the client")
    certificate, key = written(authority.issue("me"), documented, "me")
    # PBES1: Java 17 has no factory of the name under which Kafka's client asks for others.
    made = [
        "openssl",
        "pkcs8",
        "-topk8",
        "-v1",
        "PBE-SHA1-3DES",
        "-in",
        str(key),
        "-passout",
        "stdin",
    ]
    encrypted = subprocess.run(
        made, input=KEY_PASSWORD.encode(), capture_output=True, check=True
    ).stdout
    key.write_bytes(encrypted)
    for name, text in WRONG.items():
        (documented / name).write_text(text)
    tls = {
        "ca": str(cluster.made.ca),
        "certificate": str(certificate),
        "key": str(key),
        "key_password": {"env": "STORM_KEY"},
    }
    nodes = {
        "nodes": {node.name: {"address": str(node.client)} for node in cluster.runtime.nodes},
        "drivers": commands(cluster.runtime.folder, *ACTIONS),
    }
    written_down = yaml.safe_load((cluster.runtime.folder / "connection.yaml").read_text())
    password = cluster.made.secrets[CLIENT].reveal()

    def connection(name: str, auth: Mapping[str, Any]) -> None:
        (folder / f"{name}.yaml").write_text(
            json.dumps({**written_down, **nodes, "tls": tls, "auth": auth})
        )

    user = {"user": CLIENT, "mechanism": "scram-sha-512"}
    connection("right", {**user, "password": {"env": "STORM_PASSWORD"}})
    connection("wrong-password", {**user, "password": {"file": str(documented / "password")}})
    connection("wrong-plain", {**user, "mechanism": "plain", "password": {"env": "STORM_PLAIN"}})
    connection(
        "wrong-token", {"mechanism": "oauthbearer", "token": {"file": str(documented / "token")}}
    )
    oauth = {"mechanism": "oauthbearer", "client_id": "me", "token_url": "http://127.0.0.1:9/token"}
    connection("wrong-client", {**oauth, "client_secret": {"env": "STORM_CLIENT"}})
    return Place(
        folder,
        {
            "password": password,
            "key": encrypted.decode().splitlines()[5],
            "key password": KEY_PASSWORD,
            **WRONG,
            **{f"of {name}": secret.reveal() for name, secret in cluster.made.secrets.items()},
        },
        {
            "STORM_PASSWORD": password,
            "STORM_KEY": KEY_PASSWORD,
            "STORM_PLAIN": WRONG["plain"],
            "STORM_CLIENT": WRONG["client_secret"],
        },
    )


def test_no_secret_is_shown_or_left(place: Place, cluster: KafkaCluster) -> None:
    (place.folder / "whispers.yaml").write_text(SCENARIO)
    on = ("whispers.yaml", "--cluster", "right.yaml")
    run = place.call("run", "-vv", "--json", "run", *on)
    assert run.document.get("verdict"), run.err[-3000:]  # which one is not the subject
    assert 0 < run.document["sends"]["attempted"] <= 3300
    for name, *words in (
        ("doctor", "doctor", "--cluster", "right.yaml"),
        ("plan", "plan", *on),
        ("trace", "trace", "1/0/5"),
        ("show", "show"),
        ("bundle", "bundle", "-o", "whispers.tar.gz"),
        ("open", "open", "whispers.tar.gz", "opened"),
        ("clean", "clean", "--cluster", "right.yaml"),
    ):
        assert place.call(name, *words).code == 0, place.said[name]
    place.is_clean(cluster.runtime.folder)
    assert place.leaks(place.folder.parent / "secrets")  # it finds them where they are


def test_no_refused_secret_is_shown_or_left(place: Place, cluster: KafkaCluster) -> None:
    (place.folder / "whispers.yaml").write_text(SCENARIO)
    for wrong in ("wrong-password", "wrong-plain", "wrong-token", "wrong-client"):
        for name, *words in (
            ("doctor", "doctor"),
            ("run", "-vv", "--json", "run", "whispers.yaml"),
        ):
            said = place.call(f"{wrong}-{name}", *words, "--cluster", f"{wrong}.yaml")
            assert said.code == 4, said
    place.is_clean(cluster.runtime.folder)
