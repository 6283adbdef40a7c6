"""Formatted Kafka storage, made once a version and cloned for each node.

Formatting starts a JVM, 2-10 s for three nodes; a clone is a file copy in which only the ids differ.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from harness.clusters.layout.node_layout import cluster_id, short_id
from harness.errors import EnvironmentNotReady
from harness.toolchains.cache import cache_folder

_FORMAT_TIMEOUT_S = 120.0
_META = "meta.properties"


def clone_storage(data: Path, *, template: Path, node_number: int, cluster: str) -> None:
    """Copy formatted storage to ``data`` and give it a node's identity."""
    shutil.copytree(template, data)
    meta = data / _META
    text = meta.read_text()
    new = {"cluster.id": cluster, "node.id": str(node_number), "directory.id": short_id(uuid.uuid4().bytes)}
    for key, value in new.items():  # directory.id is there from 3.7 on
        text = re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
    meta.write_text(text)


def formatted_storage(java: str, jars: Path, properties: str, version: str) -> Path:
    """The formatted storage for a version and settings, from the cache or made now.

    Args:
        properties: a node's server.properties with ``log.dirs`` of no importance.

    Raises:
        EnvironmentNotReady: Kafka refuses the settings (its own message), or the disk is full.
    """
    settings = re.sub(r"^(log\.dirs|cluster\.id)=.*$", "", properties, flags=re.MULTILINE)
    # What differs between nodes and runs does not reach the formatted storage.
    settings = re.sub(
        r"^(node\.id|listeners|advertised\.listeners|controller\.quorum\.voters|ssl\.\w+\.location)=.*$",
        "",
        settings,
        flags=re.MULTILINE,
    )
    settings = re.sub(r"^#.*\n", "", settings, flags=re.MULTILINE)
    digest = hashlib.sha256(f"{jars.name}\n{settings}".encode()).hexdigest()[:12]
    folder = cache_folder() / "storage" / f"kafka-{version}-{digest}"
    if (folder / _META).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(folder.name + ".lock"), timeout=_FORMAT_TIMEOUT_S):
            if not (folder / _META).is_file():
                _format(java, jars, properties, folder)
    except (Timeout, subprocess.TimeoutExpired):
        raise EnvironmentNotReady(
            f"Kafka's storage tool did not end within {_FORMAT_TIMEOUT_S:.0f} s",
            hint="the machine is too busy, or its disk hangs; try again",
        ) from None
    return folder


def _format(java: str, jars: Path, properties: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.part-") as name:
        data, config = Path(name, "data"), Path(name, "server.properties")
        config.write_text(re.sub(r"^log\.dirs=.*$", f"log.dirs={data}", properties, flags=re.MULTILINE))
        command = [
            java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
            "kafka.tools.StorageTool", "format", "-t", cluster_id("template"), "-c", str(config),
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False, cwd=name
        )
        if done.returncode != 0 or not (data / _META).is_file():
            raise EnvironmentNotReady(
                f"Kafka's storage tool refuses the broker settings: {_reason(done.stdout + done.stderr)}",
                hint="see cluster.config of the scenario; the names are Kafka's own",
            )
        os.replace(data, folder)


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("\tat ")]
    telling = [line for line in lines if "Exception" in line or "rror" in line]
    return (telling or lines or ["no output"])[-1][:300]
