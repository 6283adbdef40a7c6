"""Opens the Spark session: quick, silent, and the same on a laptop and a cluster.

A session is a Spark context: what plans queries takes two seconds of a processor more, and nothing
asks it. It costs several seconds (JVM, context, first Python worker), none of which needs the
capture. So `WarmSession` opens it on a thread while the run drains, ends with a tiny Python job
that leaves warm workers behind, and `get` hands it over when judging starts.

Executors need Python with NumPy and PyArrow, nothing else: `ship_modules` sends our own packages.
Spark's log goes to a file in a temporary folder and is quoted only when something fails.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.spark.gateway import active, hush, open_gateway
from analysis.spark.gateway import close as close_session
from analysis.spark.launcher import launcher_of
from analysis.spark.probe import missing_modules, warm_up
from harness.errors import EnvironmentNotReady, Interrupted
from harness.memory import SPARK_MB, free_memory_mb
from harness.toolchains.java import ClassArchive, Java, find_java

if TYPE_CHECKING:
    from pyspark import SparkContext

MIN_JAVA = 17  # class files of Spark 4 are Java 17
#: Heap of the driver JVM: rows stay in the Python workers, it only schedules them. The second where
#: memory is short.
DRIVER_MEMORY, LEAST_DRIVER_MEMORY = "1g", "512m"
_LOG_LINES = 6
_MASTER_ANSWERS_S = 5.0  # Spark itself would try for a minute
_ROOT = Path(__file__).resolve().parents[2]
#: Modules of the harness that executors are sent, besides all of `analysis`.
SHIPPED: Final = (
    *(
        f"harness/{name}.py"
        for name in (
            "__init__",
            "errors",
            "faultlog",
            "filesystems",
            "records",
            "run_ids",
            "rundir",
        )
    ),
    *(f"harness/contracts/{name}.py" for name in ("__init__", "rows", "seal", "message")),
)

#: A JVM that schedules a few dozen tasks and exits: neither big heaps nor hot code to optimise for.
_JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

#: Memory of the Python workers: columns of 10 MB, or of 400 MB after hours, come and go, so keep
#: freed memory instead of giving it back to the kernel, which would clear every page again (a fifth
#: of judging's CPU time, and of large buckets more). Read by glibc and by PyArrow; elsewhere
#: without effect.
_WORKER_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",  # no size is given back each time
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

#: A session on this machine: workers import our modules from here, before they are forked
#: (`analysis.spark.daemon`). A library that had started a thread by then would lack it afterwards.
_FORKED = {
    "PYTHONPATH": str(_ROOT),
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def is_local(master: str | None) -> bool:
    """Whether Spark runs inside this machine's driver process."""
    return master is None or master.startswith("local")


def default_master() -> str:
    """``local[n]``, n = the cores this process may use."""
    return f"local[{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}]"


def _require_master(master: str) -> None:
    """Fail at once when no master of a ``spark://host:port,host:port`` URL answers.

    Raises:
        EnvironmentNotReady: none can be reached.
    """
    reasons = []
    for host, port in re.findall(r"(?:^spark://|,)([^:,]+):(\d+)", master):
        try:
            socket.create_connection((host, int(port)), _MASTER_ANSWERS_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if reasons:
        raise EnvironmentNotReady(
            f"no Spark master at {master} ({'; '.join(reasons)})",
            hint="start one, or remove --master to judge on this machine",
        )


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Variables that Spark's launcher reads, for the time of the launch only; None removes one."""
    before = {name: os.environ.get(name) for name in changes}

    def apply(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    apply(changes)
    try:
        yield
    finally:
        apply(before)


def _settings(master: str, folder: Path, java_options: Sequence[str]) -> dict[str, str]:
    settings = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": " ".join(
            [
                f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
                f"-Djava.io.tmpdir={folder}",
                *java_options,
            ]
        ),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars.ivy": str(folder / "ivy"),
        # Without it a folder named `analysis` in the current directory would be imported instead of
        # ours.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        **{f"spark.executorEnv.{name}": value for name, value in _WORKER_MEMORY.items()},
    }
    if is_local(master):
        settings["spark.python.daemon.module"] = "analysis.spark.daemon"
        settings |= {f"spark.executorEnv.{name}": value for name, value in _FORKED.items()}
        settings["spark.ui.enabled"] = "false"
        settings["spark.local.dir"] = str(folder / "local")
    if is_local(master) or re.match(r"spark://(127\.|localhost)", master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def _launch_environment(master: str, folder: Path) -> dict[str, str | None]:
    """A cluster's own Spark settings are kept; a local session must not pick up anybody's.

    ``folder``: for what is made for the start.
    """
    java = _java()
    spark = {
        "SPARK_HOME": launcher_of(java, folder),  # the JVM side must be the one of this pyspark
        "JAVA_HOME": str(java.home),
    }
    if not is_local(master):
        return {**spark, "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", "python3")}
    return {
        **spark,
        "SPARK_CONF_DIR": None,
        "SPARK_LOCAL_DIRS": None,
        "PYSPARK_SUBMIT_ARGS": None,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _last_lines(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    telling = [
        line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")
    ]
    return "\n  ".join(telling[-_LOG_LINES:])


def _heap() -> str:
    return DRIVER_MEMORY if free_memory_mb() >= SPARK_MB else LEAST_DRIVER_MEMORY


def open_session(
    master: str | None = None,
    *,
    record: bool = False,
) -> SparkContext:
    """A session with our modules shipped. One a process: an open one is returned as it is.

    Nothing is printed and nothing is written to the working directory.

    Args:
        master: a Spark master URL; None = ``local[cores]``.
        record: let this JVM write the class archive when it exits (`record_classes`).

    Raises:
        EnvironmentNotReady: Java missing or too old, the JVM or the master cannot be reached, or
            executors lack NumPy or PyArrow.
    """
    archive = _archive(_java())
    master = master or default_master()
    _require_master(master)
    if (there := active()) is not None:
        return there
    folder = Path(tempfile.mkdtemp(prefix="brokerstorm-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "log4j2.properties").write_text(_LOG4J)
    settings = _settings(
        master, folder, [*_JVM_FLAGS, *(_recording(archive) if record else archive.use())]
    )
    settings |= {"spark.app.name": "brokerstorm", "spark.driver.memory": _heap()}
    session = _start(master, settings, folder / "driver.log")
    if not is_local(master):
        ship_modules(session)
    probe_executors(session)
    return session


def _start(master: str, settings: Mapping[str, str], log: Path) -> SparkContext:
    """The JVM, whose output goes into ``log``, and a session in it.

    Raises:
        EnvironmentNotReady: with the last words of the log.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        with _environment(_launch_environment(master, log.parent)):
            open_gateway(conf, log)
            session = SparkContext.getOrCreate(conf)
    except (PySparkException, Py4JError, OSError) as error:
        raise EnvironmentNotReady(
            f"Spark did not start on {master}: {_first_line(error)}\n  {_last_lines(log)}".rstrip(),
            hint="check the master URL and that this machine can be reached from it"
            if not is_local(master)
            else "`brokerstorm doctor` checks Java, memory and disk",
        ) from error
    hush(session)
    return session


def record_classes() -> bool:
    """Make later sessions on this machine open faster; part of setting up. False: nothing to do.

    Takes about 20 s and 70 MB of the cache, once for a Java and an installation of Spark.

    Raises:
        EnvironmentNotReady: as `open_session`, or the cache cannot be written.
    """
    archive = _archive(_java())
    if archive.exists:
        return False
    try:
        close_session(open_session(record=True))
        return archive.keep()
    finally:
        archive.drop()


def _recording(archive: ClassArchive) -> list[str]:
    try:
        return archive.record()
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot write {archive.path.parent}: {error.strerror}",
            hint="BROKERSTORM_CACHE names another folder",
        ) from error


def _java() -> Java:
    return find_java(MIN_JAVA, "Spark")


def _archive(java: Java) -> ClassArchive:
    """The archive of this installation of Spark: Java ignores one that names jars elsewhere."""
    import pyspark

    jars = Path(pyspark.__file__).resolve().parent / "jars"
    return ClassArchive(java, f"spark-{pyspark.__version__}", *_JVM_FLAGS, str(jars))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def module_files() -> list[tuple[Path, str]]:
    """(file, name in the archive) of everything an executor must import."""
    ours = (file for file in (_ROOT / "analysis").rglob("*.py") if "report" not in file.parts)
    files = [*sorted(ours), *(_ROOT / name for name in SHIPPED)]
    return [(file, file.relative_to(_ROOT).as_posix()) for file in files]


def ship_modules(session: SparkContext) -> None:
    """Send our modules to every executor, so that it needs only NumPy and PyArrow."""
    folder = Path(tempfile.mkdtemp(prefix="brokerstorm-modules-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "brokerstorm_modules.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file, name in module_files():
            out.write(file, name)
    session.addPyFile(str(archive))


def probe_executors(session: SparkContext) -> None:
    """Ask every core for NumPy, PyArrow and our modules, and leave warm Python workers behind.

    Raises:
        EnvironmentNotReady: what is missing, and which Python misses it.
    """
    cores = max(2, min(64, session.defaultParallelism))
    try:
        if not is_local(session.master):
            rows = session.parallelize(range(cores), cores).mapPartitions(missing_modules).collect()
            lacking = next((row for row in rows if row[2]), None)
            if lacking:
                raise EnvironmentNotReady(
                    f"executors cannot judge: {lacking[2]} (Python {lacking[1]}, {lacking[0]})",
                    hint="install numpy and pyarrow there, or set PYSPARK_PYTHON to a Python that has them",
                )
        session.parallelize(range(cores), cores).mapPartitions(warm_up).collect()
    except EnvironmentNotReady:
        raise
    except Exception as error:  # whatever an executor raised, as Spark wraps it
        raise EnvironmentNotReady(
            f"a first job failed on {session.master}: {spark_reason(error)}",
            hint="executors need this Python's version with numpy and pyarrow: set PYSPARK_PYTHON",
        ) from error


def spark_reason(error: BaseException) -> str:
    """The line of a Spark failure that says what went wrong. Its text lies in the JVM, which may be
    gone."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - py4j asks the JVM
        text = f"{type(error).__name__}, and Spark has gone"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"[\w.]*(Error|Exception|MISMATCH)", line)]
    return (telling or lines or [type(error).__name__])[-1 if telling else 0][:400]


class WarmSession:
    """A session opened in the background. `start` on phase ``drain``, `get` when judging starts.

    One that the caller's thread has open already is used, and left open.
    """

    def __init__(self, master: str | None = None) -> None:
        self._master = master
        self._thread: threading.Thread | None = None
        self._session: SparkContext | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to open the session; a second call does nothing."""
        if self._thread is None and self._session is None:
            self._session = active()
        if self._thread is None and self._session is None:
            self._thread = threading.Thread(target=self._open, name="spark-session", daemon=True)
            self._thread.start()

    def _open(self) -> None:
        try:
            self._session = open_session(self._master)
        except BaseException as error:  # noqa: BLE001 - raised again in `get`, on the caller's thread
            self._error = error

    def get(self) -> SparkContext:
        """The session, waiting for it if need be.

        Raises:
            EnvironmentNotReady: as `open_session`.
        """
        self.start()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def close(self) -> None:
        """Stop the session if one was opened."""
        if self._thread is not None:
            self._thread.join()
            if self._session is not None:
                close_session(self._session)
        self._session = self._thread = self._error = None

    def __enter__(self) -> WarmSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if (
            kind is not None
            and issubclass(kind, Interrupted)
            and self._thread
            and self._thread.is_alive()
        ):
            return  # not worth seconds of waiting; its JVM ends with this process
        self.close()
