"""A standalone Spark cluster on loopback addresses, whose executors start with nothing of ours."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyspark

from harness.toolchains.java import find_java
from harness.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
START_S = 180.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def bare_environment() -> dict[str, str]:
    """No PYTHONPATH, no setting of Spark's."""
    kept = ("PATH", "HOME", "LANG", "JAVA_HOME")
    return {name: os.environ[name] for name in kept if name in os.environ}


def start(
    folder: Path,
    name: str,
    main: str,
    *arguments: str,
    host: str = HOST,
    before: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """A daemon of Spark's; ``before``: words that run its command. ``environment``: further
    variables."""
    # what Spark's own start scripts would set
    spark = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host}
    command = [find_java().path, "-Xmx256m", "-cp", f"{SPARK_HOME}/jars/*", main, "--host", host]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*before, *command, *arguments],
            cwd=folder,
            env={**bare_environment(), **spark, **environment},
            stdout=log,
            stderr=log,
        )


def wait_for(log: Path, text: str) -> None:
    said = wait_until(lambda: text in log.read_text(errors="replace"), START_S)
    assert said, f"{log.name} never said {text!r}:\n{log.read_text(errors='replace')[-2000:]}"


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def standalone(
    folder: Path,
    hosts: Sequence[str] = (HOST,),
    *,
    before: Sequence[Sequence[str]] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """URL of a master with a worker of two cores on each host; all run in empty folders.

    ``before``, ``environment``: of each worker, as of `start`.
    """
    url = f"spark://{HOST}:{(port := free_port())}"
    daemons = [
        start(
            folder, "master", "org.apache.spark.deploy.master.Master",
            "--port", str(port), "--webui-port", str(free_port()),
        )
    ]  # fmt: skip
    try:
        wait_for(folder / "master.log", "I have been elected leader")
        for number, host in enumerate(hosts):
            (folder / f"worker-{number}").mkdir(exist_ok=True)
            words = before[number] if before else ()
            daemons.append(
                start(
                    folder, f"worker-{number}", "org.apache.spark.deploy.worker.Worker",
                    "--cores", "2", "--memory", "2g", "--webui-port", str(free_port()),
                    "--work-dir", str(folder / f"worker-{number}"), url,
                    host=host, before=words, environment=environment,
                )
            )  # fmt: skip
        for number, _ in enumerate(hosts):
            wait_for(folder / f"worker-{number}.log", "Successfully registered with master")
        yield url
    finally:
        for daemon in reversed(daemons):
            stop(daemon)
