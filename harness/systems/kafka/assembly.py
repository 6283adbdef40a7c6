"""Kafka as a cluster: formatted storage for each node, and its admin."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from harness.clusters.assembly import Assembly, ClusterAdmin
from harness.clusters.cluster import BrokerCluster
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.node_layout import base64_of, cluster_id
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.layout.secret_files import fresh_secret
from harness.clusters.layout.tokens import key_set, signed_token
from harness.clusters.nodes.node_process import NodeFolder
from harness.clusters.process_runtime import Launch, Prepare
from harness.clusters.security.certificates import usual_span
from harness.clusters.security.made import (
    ADMIN,
    CLIENT,
    GUEST,
    ClusterSecurity,
    fresh_passwords,
)
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Access, Auth, Security
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Node, TopicSettings
from harness.systems.kafka.admin import KafkaAdmin
from harness.toolchains.cache import cache_folder

KafkaCluster = BrokerCluster[KafkaAdmin]
#: Name of the secret that clients show by OAUTHBEARER.
TOKEN: Final = "token"
_READY_S = 60.0
#: What a broker alone needs to be whole.
_MINIMAL: Mapping[str, str] = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class _Kafka(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> KafkaAdmin:
        return KafkaAdmin(
            runtime.layout.nodes,
            is_reachable=is_reachable,
            controller_at=lambda name: runtime.layout.advertised(runtime.layout.node(name))[
                "controller"
            ],
            is_member=lambda name: any(node.name == name for node in runtime.nodes),
            data=runtime.read_data,
            access=access,
        )

    def secrets(self) -> Mapping[str, Secret]:
        """Passwords, and the clients' token with what the brokers check it with."""
        key = fresh_secret()
        return {
            **fresh_passwords(),
            "token-key": key,
            "token-keys": key_set(key),
            TOKEN: signed_token(key, CLIENT, usual_span()),
        }

    def access(self, made: ClusterSecurity) -> Access:
        """Clients by SCRAM, the harness by its certificate."""
        auth = Auth("scram-sha-512", made.secrets[CLIENT], CLIENT)
        return Access(Security(made.tls(), auth), Security(made.tls(ADMIN)))

    def admit(self, admin: KafkaAdmin, made: ClusterSecurity | None) -> None:
        if made:
            admin.admit({user: made.secrets[user] for user in (CLIENT, GUEST)}, CLIENT)

    def cluster_id(self, run_id: str, admin: Any) -> str:
        return cluster_id(run_id)

    def prepare(self, run_id: str, launch: Launch) -> Prepare:
        """Gives formatted storage to a node that has none."""

        def prepare(node: Node, folder: NodeFolder) -> None:
            properties = (folder.conf / "server.properties").read_text()
            voting = (folder.conf / "voters.flags").read_text().split()
            template = formatted_storage(
                launch.java.path, launch.jars, properties, launch.spec.version, voting
            )
            voter = re.search(rf"\b{node.number}@[^,]*:([^,]+)", " ".join(voting))
            identity = {
                "cluster.id": cluster_id(run_id),
                "node.id": str(node.number),
                "directory.id": voter[1] if voter else fresh_directory(),
            }
            clone_storage(folder.data, template=template, identity=identity)

        return prepare

    def minimal(self, spec: ClusterLayout) -> tuple[ClusterLayout, Mapping[str, str]]:
        return super().minimal(spec)[0], _MINIMAL

    def exercise(self, admin: ClusterAdmin) -> None:
        admin.create_topics([TopicSettings("class-archive", 3, 1)])
        admin.wait_ready(["class-archive"], timeout_s=_READY_S, run_tag=0)
        admin.end_offsets(["class-archive"])
        admin.delete_topics(["class-archive"])


ASSEMBLY = _Kafka()


_FORMAT_TIMEOUT_S = 120.0
_META = "meta.properties"


def fresh_directory() -> str:
    """Return a new id of a log directory, in the form that Kafka writes (base64 of a UUID)."""
    return base64_of(uuid.uuid4().bytes)


def clone_storage(data: Path, *, template: Path, identity: Mapping[str, str]) -> None:
    """Copy formatted storage to ``data`` and give it a node's identity: keys of its
    ``meta.properties``."""
    shutil.copytree(template, data, dirs_exist_ok=True)
    meta = data / _META
    text = meta.read_text()
    for key, value in identity.items():  # directory.id is there from 3.7 on
        text = re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
    meta.write_text(text)


def formatted_storage(
    java: str, jars: Path, properties: str, version: str, voting: Sequence[str] = ()
) -> Path:
    """The formatted storage for a version and settings, from the cache or made now.

    Args:
        properties: a node's server.properties with ``log.dirs`` of no importance.
        voting: what the storage tool receives about the quorum.

    Raises:
        EnvironmentNotReady: Kafka refuses the settings (its own message), or the disk is full.
    """
    settings = re.sub(r"^(log\.dirs|cluster\.id)=.*$", "", properties, flags=re.MULTILINE)
    # What differs between nodes and runs does not reach the formatted storage.
    settings = re.sub(
        r"^(node\.id|listeners|advertised\.listeners|controller\.quorum\.(voters|bootstrap\.servers)|"
        r"ssl\.\w+\.location)=.*$",
        "",
        settings,
        flags=re.MULTILINE,
    )
    settings = re.sub(r"^#.*\n", "", settings, flags=re.MULTILINE)
    digest = hashlib.sha256("\n".join([jars.name, settings, *voting]).encode()).hexdigest()[:12]
    folder = cache_folder() / "storage" / f"kafka-{version}-{digest}"
    if (folder / _META).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(folder.name + ".lock"), timeout=_FORMAT_TIMEOUT_S):
            if not (folder / _META).is_file():
                _format(java, jars, properties, voting, folder)
    except (Timeout, subprocess.TimeoutExpired):
        raise EnvironmentNotReady(
            f"Kafka's storage tool did not end within {_FORMAT_TIMEOUT_S:.0f} s",
            hint="the machine is too busy, or its disk hangs; try again",
        ) from None
    return folder


def _format(java: str, jars: Path, properties: str, voting: Sequence[str], folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.part-") as name:
        data, config = Path(name, "data"), Path(name, "server.properties")
        config.write_text(
            re.sub(r"^log\.dirs=.*$", f"log.dirs={data}", properties, flags=re.MULTILINE)
        )
        command = [
            java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
            "kafka.tools.StorageTool", "format", "-t", cluster_id("template"), "-c", str(config), *voting,
        ]  # fmt: skip
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
            cwd=name,
        )
        if done.returncode != 0 or not (data / _META).is_file():
            raise EnvironmentNotReady(
                f"Kafka's storage tool refuses the broker settings: {_reason(done.stdout + done.stderr)}",
                hint="see cluster.config of the scenario; the names are Kafka's own",
            )
        os.replace(data, folder)


def _reason(output: str) -> str:
    lines = [
        line.strip()
        for line in output.splitlines()
        if line.strip() and not line.startswith("\tat ")
    ]
    telling = [line for line in lines if "Exception" in line or "rror" in line]
    return (telling or lines or ["no output"])[-1][:300]
