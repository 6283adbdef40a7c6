"""One broker, started and stopped once a version, so that every later start is quick.

A Kafka JVM spends most of its start loading some ten thousand classes. At the end of the rehearsal Java
writes them to an archive (class data sharing) that later brokers map instead: measured 4.6 instead of
7.9 CPU seconds a start, which on two cores is five seconds for three nodes, and a restart during a run
takes that much less from the clients under test. Java ignores an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from harness.brokers.kafka import KafkaAdmin
from harness.clusters.artifacts import Progress, cache_folder
from harness.clusters.java import Java
from harness.clusters.node_process import NodeFolder
from harness.clusters.process import Launch, Prepare, ProcessRuntime
from harness.errors import BrokerstormError
from harness.protocols import TopicSettings

log = logging.getLogger(__name__)
_DYNAMIC_ARCHIVES_SINCE = 13  # JEP 350
_READY_S, _STOP_S = 60.0, 60.0
#: What a broker alone needs to be whole.
_ALONE: Mapping[str, str] = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def archive_file(java: Java, jars: Path) -> Path:
    """Where the class archive for a Java and a set of jars is, or would be."""
    try:
        installed = Path(java.path).resolve().stat().st_mtime_ns
    except OSError:
        installed = 0
    digest = hashlib.sha256(f"{java.path} {java.text} {installed}".encode()).hexdigest()[:8]
    return cache_folder() / "classes" / f"{jars.name}-java{java.major}-{digest}.jsa"


def with_archive(launch: Launch, run_id: str, block: int, prepare: Prepare, report: Progress) -> Launch:
    """``launch`` with the class archive, made now when there is none.

    Never fails: without an archive brokers start as usual. Uses an address of the run's ``block``, where
    nothing may run yet.
    """
    archive = archive_file(launch.java, launch.jars)
    if not archive.exists() and launch.java.major >= _DYNAMIC_ARCHIVES_SINCE:
        try:
            archive.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(archive.with_suffix(".lock"), timeout=0):
                if not archive.exists():
                    report(f"preparing {launch.spec.system} {launch.spec.version} for quick starts", None)
                    _rehearse(launch, run_id, block, prepare, archive)
        except Timeout:
            pass  # another process makes it; this start is a slow one
        except (BrokerstormError, OSError) as error:
            log.warning("no class archive for %s: %s", launch.jars.name, error)
    if not archive.exists():
        return launch
    return replace(launch, jvm=(*launch.jvm, f"-XX:SharedArchiveFile={archive}"))


def _rehearse(launch: Launch, run_id: str, block: int, prepare: Prepare, archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f"{archive.stem}.part-") as name:
        folder = Path(name)
        made = folder / "classes.jsa"
        spec = replace(launch.spec, services=launch.spec.services[:1])
        # -Xshare messages are about classes that cannot be archived: of no use to anybody.
        flags = (f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        alone = replace(launch, spec=spec, jvm=(*launch.jvm, *flags), settings=_ALONE)
        runtime = ProcessRuntime(run_id, folder, block, alone, prepare)
        node = runtime.nodes[0]
        admin = KafkaAdmin(runtime.nodes, watch=runtime.check)
        try:
            runtime.up()
            admin.create_topics([TopicSettings("rehearsal", 3, 1)])
            admin.wait_ready(["rehearsal"], timeout_s=_READY_S, run_tag=0)
            admin.end_offsets(["rehearsal"])
            admin.delete_topics(["rehearsal"])
            admin.close()
            runtime.stop(node.name, timeout_s=_STOP_S)
            if made.exists():
                os.replace(made, archive)
        finally:
            admin.close()
            runtime.kill(node.name)
            shutil.rmtree(NodeFolder(node.folder).data, ignore_errors=True)
