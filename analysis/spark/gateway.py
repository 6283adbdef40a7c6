"""The JVM of a Spark session: started with its output in a file, and ended with the session.

Leans on parts of pyspark that are not public, so its version is bounded in pyproject.toml, and
tests/unit/test_private_apis.py names them: pyspark keeps one gateway per process, prints what its
JVM says on our terminal, and leaves the JVM running when the session is stopped.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext

_LOG = logging.getLogger(__name__)
_JVM_EXIT_S = 120.0  # a fraction of a second, but for the one that records classes


def active() -> SparkContext | None:
    """The context that this process has open already; nothing is imported to find that there is
    none."""
    core = sys.modules.get("pyspark.core.context")
    context: SparkContext | None = core.SparkContext._active_spark_context if core else None
    return context


def open_gateway(conf: SparkConf, log: Path) -> None:
    """Start the JVM that the next session of this process gets; no-op when there is one.

    Raises:
        PySparkException, Py4JError, OSError: it does not start.
    """
    from pyspark.core.context import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        with log.open("ab") as sink:
            output = {"stdout": sink, "stderr": sink}
            gateway = launch_gateway(conf, output)
        _drop_sql_converters(gateway)
        SparkContext._ensure_initialized(gateway=gateway)


def _drop_sql_converters(gateway: JavaGateway) -> None:
    """Remove the converters of pyspark.sql for values that this JVM is given: the ones for NumPy
    import pandas at their first use, and no value of a NumPy type is given to the JVM here.

    Py4J's list of converters stays as it is: a program that calls us may open a session of its own.
    """
    client = gateway._gateway_client
    client.converters = [
        each for each in client.converters if not type(each).__module__.startswith("pyspark.sql")
    ]


def hush(session: SparkContext) -> None:
    """pyspark prints a traceback when the JVM goes first, as after a signal to the whole process
    group."""
    server = getattr(session, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: _LOG.debug("the JVM closed the accumulators' connection")


def close(session: SparkContext) -> None:
    """Stop the session and its JVM, which a signal to the whole process group may have ended before
    us."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.core.context import SparkContext

    accumulators = getattr(session, "_accumulatorServer", None)
    session._accumulatorServer = None
    with contextlib.suppress(OSError, Py4JError):  # the JVM may be gone
        session.stop()
    if accumulators is not None:  # its thread looks once a second whether it may end
        threading.Thread(target=accumulators.shutdown, daemon=True).start()
    gateway = SparkContext._gateway
    if gateway is None or gateway.proc is None:  # started by spark-submit: its JVM, not ours
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits when it can no longer hear us
    try:
        gateway.proc.wait(_JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
