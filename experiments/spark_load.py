"""Plays the load of a run from the executors of a Spark cluster: tasks, workers on them, their
shares.

For each round a Spark job of barrier tasks runs the agent (`harness.remote.agent`), each on an
executor. The clients of the plan are dealt out to them in turn. Everything else stays on the
driver: the cluster or its connection, faults, the audit, the verdict.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING, Final

from analysis.spark.barrier import BarrierJob, Program, executors_of
from analysis.spark.session import WarmSession, spark_reason
from experiments.load_request import LoadRequest
from harness.contracts import read_document, typed
from harness.contracts.plan import ConsumerPlan, Plan, ProducerPlan
from harness.contracts.rows import ExecutorRow, Manifest
from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.remote.box import Box
from harness.remote.executor import Executor
from harness.remote.server import LoadServer
from harness.run.hosts import Host
from harness.run.periodic import PeriodicThread
from harness.rundir import Document, RunDir, write_json, write_jsonl
from harness.seal.names import NAMES_FILE
from harness.seal.seal import seal
from harness.seal.share import ShareReport
from harness.stored import give_back, keep_at
from harness.waiting import wait_until
from harness.workers import launch, load_worker

if TYPE_CHECKING:
    from pyspark import SparkContext

    from harness.connections.file import Connection

#: Executors come one after the other; so long without another, and they are all.
SETTLED_S: Final = 3.0
START_S: Final = 120.0
ASK_S: Final = 60.0
SEAL_S: Final = 900.0
END_S: Final = 20.0
#: Between two measurements of the clocks during the load.
MEASURE_EVERY_S: Final = 10.0


@contextmanager
def stays_here(run: RunDir, say: Callable[[str], None]) -> Iterator[None]:
    """A place that refuses to be written costs a line: the run is judged by what this machine has
    of it."""
    try:
        yield
    except UsageError as error:
        say(f"the run stays in {run.root}: {error}")


class SparkLoad:
    """Rounds of one command; the session is that which judges."""

    def __init__(
        self,
        request: LoadRequest,
        session: WarmSession,
        base: Path,
        say: Callable[[str], None],
        *,
        offline: bool,
        connection: Connection | None = None,
    ) -> None:
        """``base``: the folder of runs. ``say`` takes a line for the user. ``connection``: to the
        cluster, if others started it."""
        self._connection = connection
        self._request = request
        self._session = session
        self._base = base
        self._say = say
        self._offline = offline

    @contextmanager
    def round(self, run: RunDir) -> Iterator[SparkRound]:
        """The machines of one round; nothing runs on them after it."""
        target = self._request.place_of(run.root.relative_to(self._base).as_posix())
        load = SparkRound(
            self._request,
            self._session,
            target,
            self._say,
            offline=self._offline,
            connection=self._connection,
        )
        try:
            yield load
        finally:
            load.close()

    def store_judged(self, run: RunDir) -> None:
        """Copy what judging wrote to the place where the run is kept."""
        with stays_here(run, self._say):
            give_back(run, [run.result, run.report, run.junit])


class SparkRound:
    """`harness.run.hosts.Hosts` of a round, and the sealing of what was captured there."""

    def __init__(
        self,
        request: LoadRequest,
        session: WarmSession,
        target: str,
        say: Callable[[str], None],
        *,
        offline: bool,
        connection: Connection | None,
    ) -> None:
        """``target``: of the sealed files; empty = the folder of the run."""
        self._named = connection.named() if connection and connection.is_guarded else None
        self._request = request
        self._session = session
        self._target = target
        self._say = say
        self._offline = offline
        self._executors: list[Executor] = []
        self._clients: dict[str, int] = {}
        self._server: LoadServer | None = None
        self._job: BarrierJob | None = None
        self._clocks = PeriodicThread("clocks", self._measure, period_s=MEASURE_EVERY_S)
        self._scratch = Path(tempfile.mkdtemp(prefix="brokerstorm-box-"))

    # ----- hosts ----------------------------------------------------------------------------------

    def open(self, plan: Plan, run: RunDir) -> None:
        """See `harness.run.hosts.Hosts.open`."""
        session = self._session.get()
        tasks = self._request.tasks or _settled_executors(session)
        box = self._packed(plan)
        archive = self._scratch / f"{run.run_id}.tar"
        box.write(archive)
        session.addFile(str(archive))
        reached_at = self._request.reached_at
        here = "127.0.0.1" if reached_at else str(session.getConf().get("spark.driver.host"))
        self._server = LoadServer(here, tasks, self._request.port, reached_at=reached_at)
        host, port = self._server.reached_at
        program = Program(
            archive=archive.name,
            paths=("code", "site"),
            bound="code/harness/remote/bound.py",
            words=("-m", "harness.remote.agent", host, str(port), "{task}", "{box}"),
            told=self._server.token,
        )
        self._job = BarrierJob(session, program, tasks)
        self._job.start()
        self._executors = self._server.wait(START_S, self._why_failed)
        self._clients = {client.name: number % tasks for number, client in enumerate(plan.clients)}
        self._refuse_unreachable(plan)
        self._check(plan, run, box)
        self._clocks.start()
        self._say(
            f"load from {', '.join(f'{each.name} ({each.number})' for each in self._executors)}"
        )

    def _packed(self, plan: Plan) -> Box:
        box = Box()
        clients: list[ProducerPlan | ConsumerPlan] = [*plan.producers, *plan.consumers]
        for client in clients:
            worker = load_worker(client.client, plan.workers, system=plan.system)
            box.relocated(worker, *launch(worker, client.client_version, offline=self._offline))
        return box

    def _why_failed(self) -> str:
        error = self._job.failed() if self._job else None
        return spark_reason(error) if error else ""

    def _refuse_unreachable(self, plan: Plan) -> None:
        """Brokers of ours listen on loopback addresses.

        Raises:
            EnvironmentNotReady: an executor is on another machine.
        """
        far = [each for each in self._executors if not self._is_here(each)]
        if far and plan.external is None:
            raise EnvironmentNotReady(
                f"{far[0].name} ({far[0].address}) does not reach brokers that brokerstorm starts: they "
                "listen on loopback addresses of this machine",
                hint="--cluster FILE names a cluster that runs already",
            )

    def _is_here(self, executor: Executor) -> bool:
        """Whether an executor is on this machine. A tunnel's connections come from this machine,
        too."""
        is_loopback = ip_address(executor.address).is_loopback
        return is_loopback and (
            self._request.reached_at is None or executor.name == socket.gethostname()
        )

    def _check(self, plan: Plan, run: RunDir, box: Box) -> None:
        """Each has a clock, and writes where the run is.

        Raises:
            EnvironmentNotReady: one does not.
        """
        target, sees = (
            (self._target, "") if self._target else (str(run.root.absolute()), run.plan.name)
        )
        for each in self._executors:
            each.begin(
                run.run_id,
                lambda name, argv, env: box.relocated(load_worker(name, plan.workers), argv, env),
                partial(self._ways_in, plan) if self._named else None,
            )
            each.measure()
            if not each.is_timed:
                raise EnvironmentNotReady(each.lost, hint="see the log of the Spark task")
            if each.machine != machine():
                raise EnvironmentNotReady(
                    f"{each.name} is {each.machine}, and this machine, whose clients go there, {machine()}",
                    hint="load comes from machines with the driver's processor",
                )
            self._require_secrets(each)
            try:
                found = each.ask("probe", ASK_S, target=target, part=each.number + 1, sees=sees)
            except WorkerError as error:
                raise EnvironmentNotReady(
                    f"cannot write the run from there: {error}",
                    hint="--load-store names a place that every executor can write: a mount, or a URL",
                ) from error
            if not found:
                raise EnvironmentNotReady(
                    f"task {each.number} on {each.name} has another {target} than this machine",
                    hint="--load-store names a place that every executor can write: a mount, or a URL",
                )

    def _ways_in(self, plan: Plan, library: str) -> Document:
        words = load_worker(library, plan.workers).security
        return {"words": words.model_dump(mode="json"), "connection": self._named}

    def _require_secrets(self, executor: Executor) -> None:
        """
        Raises:
            EnvironmentNotReady: a variable or file that the connection file names is not there.
        """
        if self._named is None:
            return
        try:
            executor.ask("secrets", ASK_S, connection=self._named)
        except WorkerError as error:
            raise EnvironmentNotReady(
                f"cannot enter the cluster from there: {error}",
                hint="secrets do not travel: each executor needs the variables and files that the connection "
                "file names, files at the same paths (docs/howto/several-machines.md)",
            ) from error

    def _measure(self) -> None:
        for each in self._executors:
            each.measure()

    def host_of(self, client: str) -> Host:
        """See `harness.run.hosts.Hosts.host_of`."""
        return self._executors[self._clients[client]]

    def rows(self) -> list[ExecutorRow]:
        """See `harness.run.hosts.Hosts.rows`."""
        found = []
        self._measure()
        for each in self._executors:
            own = [name for name, number in self._clients.items() if number == each.number]
            row = ExecutorRow(number=each.number, host=each.name, clients=own, lost=each.lost)
            if each.is_timed:
                row = replace(row, ahead_ns=each.line.ahead_ns, bound_ns=each.line.bound_ns)
            found.append(row)
        return found

    def close(self) -> None:
        """End every worker and every task. Idempotent."""
        self._clocks.stop()
        if self._server is not None:
            self._server.close()
        if self._job is not None:
            self._job.end(END_S)
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ----- sealing --------------------------------------------------------------------------------

    def seal(self, run: RunDir, plan: Plan) -> None:
        """Seal the shares where the run is kept, and what this machine has of it with them."""
        for each in self._executors:
            try:
                told = each.ask("names", ASK_S)
            except WorkerError:
                continue  # its share is missing then, and said to be
            for worker, rows in told.items():
                write_jsonl(run.worker(worker) / NAMES_FILE, rows)
        workers = read_document(run.manifest, Manifest).workers
        clocks = {
            worker.instance: self._executors[self._clients[worker.life_of or worker.name]].line
            for worker in workers
            if worker.instance is not None
        }
        seal(run, plan, shares=lambda names: self._shares(run, plan, names), clocks=clocks)
        if self._target:
            with stays_here(run, self._say):
                keep_at(run, self._target)

    def _shares(
        self, run: RunDir, plan: Plan, names: Sequence[tuple[str, str]]
    ) -> list[ShareReport]:
        told = {
            "plan": plan.model_dump(mode="json"),
            "names": [list(pair) for pair in names],
            "target": self._target or str(run.root.absolute()),
        }
        with ThreadPoolExecutor(len(self._executors)) as pool:
            found = list(pool.map(lambda each: self._share(run, each, told), self._executors))
        manifest = read_document(run.manifest, Manifest)
        rows = [
            replace(row, left=share.left)
            for row, share in zip(manifest.executors, found, strict=True)
        ]
        write_json(run.manifest, asdict(replace(manifest, executors=rows)))
        return found

    def _share(self, run: RunDir, executor: Executor, told: Document) -> ShareReport:
        try:
            line, part = executor.line.document(), executor.number + 1
            answer = executor.ask("seal", SEAL_S, part=part, clock=line, **told)
            share = typed(answer, ShareReport, "a share")
        except WorkerError as error:
            own = [name for name, number in self._clients.items() if number == executor.number]
            workers = [
                path.name for path in run.raw.iterdir() if path.name.partition(".")[0] in own
            ]
            share = ShareReport.missing(workers, str(error))
        if share.left:
            self._say(
                f"the share of task {executor.number} on {executor.name} is not in the run: "
                f"{share.left}"
            )
        return share


def _settled_executors(session: SparkContext) -> int:
    """The executors, once no more of them come.

    Raises:
        EnvironmentNotReady: there is none.
    """
    seen, since = 0, time.monotonic()

    def is_settled() -> bool:
        nonlocal seen, since
        if (now := executors_of(session)) != seen:
            seen, since = now, time.monotonic()
        return seen > 0 and time.monotonic() - since > SETTLED_S

    if not wait_until(is_settled, START_S, every_s=0.2):
        raise EnvironmentNotReady(
            f"no executor came to {session.master} in {START_S:.0f} s",
            hint="start Spark workers there; its web page shows what they have free",
        )
    return seen
