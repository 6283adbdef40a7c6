"""Builds class archives by booting a minimal cluster once per version, so that every later start is quick.

On two cores that is five seconds for three nodes, and a restart during a run takes that much less from the
clients under test (`harness.toolchains.java.ClassArchive`).
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from harness.clusters.assembly import assembly_of
from harness.clusters.nodes.node_process import NodeFolder
from harness.clusters.process_runtime import Launch, ProcessRuntime
from harness.errors import BrokerstormError
from harness.toolchains.jars import Progress

log = logging.getLogger(__name__)
_STOP_S = 60.0


def build_archives(launch: Launch, run_id: str, block: int, report: Progress) -> None:
    """Make the class archives of the services of a cluster, unless they are there.

    Never fails: without an archive nodes start as usual. Uses addresses of the run's ``block``, where
    nothing may run yet.
    """
    archives = [launch.archive(main) for main in {service.main for service in launch.spec.services}]
    lacking = [one for one in archives if one.can_record and not one.exists]
    if not lacking:
        return
    lock = launch.archive("all").path.with_suffix(".lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=0):
            if not all(one.exists for one in archives):
                report(f"preparing {launch.spec.system} {launch.spec.version} for quick starts", None)
                _record(launch, run_id, block)
    except Timeout:
        return  # another process makes them; this start is a slow one
    except (BrokerstormError, OSError) as error:
        log.warning("no class archive for %s: %s", launch.jars.name, error)
    finally:
        for one in lacking:
            one.drop()


def _record(launch: Launch, run_id: str, block: int) -> None:
    assembly = assembly_of(launch.spec.system)
    spec, settings = assembly.minimal(launch.spec)
    with tempfile.TemporaryDirectory(prefix="brokerstorm-classes-") as name:
        minimal = replace(launch, spec=spec, is_recording=True, settings=settings)
        runtime = ProcessRuntime(run_id, Path(name), block, minimal, assembly.prepare(run_id, minimal))
        admin = assembly.admin(runtime, runtime.is_running)
        admin.watch = runtime.check
        try:
            runtime.up()
            assembly.exercise(admin)
            admin.close()
            for service in reversed(spec.services):
                runtime.stop(service.name, timeout_s=_STOP_S)
                minimal.archive(service.main).keep()
        finally:
            admin.close()
            for node in runtime.nodes:
                runtime.kill(node.name)
                shutil.rmtree(NodeFolder(node.folder).data, ignore_errors=True)
