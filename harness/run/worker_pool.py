"""Starts, commands and monitors the workers of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.contracts.plan import ClientPlan
from harness.contracts.rows import MOVED, WorkerRow
from harness.contracts.worker import ProcessSpec, StatsLine
from harness.owners import ROLE, marks_of
from harness.plan.hours import audit_follows
from harness.run.crashes import Crash
from harness.run.hangs import hang_sentence, keep_dump, stall_sentence, take_stacks
from harness.run.hosts import THIS_MACHINE, Hosts, OneMachine
from harness.run.liveness import Hang, HangDetector, Stall
from harness.run.place import RunPlace
from harness.run.worker_process import STOP_GRACE_S, Message, WorkerProcess
from harness.run.worker_specs import (
    EPOCHS_FILE,
    audit_again,
    audit_specs,
    client_spec,
)
from harness.rundir import Document, append_jsonl, read_json, write_json
from harness.toolchains.own_builds import own_build
from harness.workers import launch, load_worker
from harness.workers.artifacts import artifact_of
from harness.workers.spec import WorkerSpec

#: From process start to the ``ready`` line: interpreter or JVM, client import, a producer for each
#: of a hundred topics. Two cores that do other things need a multiple of the usual 3 s.
READY_TIMEOUT_S = 90.0
#: Between the `start` line of a later life and its first due message.
_BEGIN_NS = 50_000_000


def _follows_load(worker: WorkerProcess) -> bool:
    """Whether the process does anything that ends with the load."""
    consumer = worker.spec.consumer
    return worker.role == "producer" or (consumer is not None and consumer.follows_load)


class WorkerPool:
    """All worker processes of a run, by role.

    Shared by the run's thread, the reader of each worker, lives of clients, faults and those who
    watch for hangs and stalls. One lock guards who is in it and whether the load is over. What is
    handed out is a copy, and no thread holds the lock while a process starts or ends.
    """

    def __init__(self, place: RunPlace, hosts: Hosts | None = None) -> None:
        """``hosts``: of the workers; None = this machine."""
        self._plan = place.plan
        self._own_clocks = place.own_clocks
        self._hosts = hosts or OneMachine()
        self.run = place.run
        self.where = place.where
        self._manifest = place.manifest
        self._progress = place.progress
        self._owner = place.owner
        self._offline = place.offline
        self._reported: set[str] = set()
        self._lock = threading.RLock()
        self._now: dict[str, list[WorkerProcess]] = {
            "producer": [],
            "consumer": [],
            "pipeline": [],
            "audit": [],
        }
        #: Earlier lives of clients whose process was ended and restarted.
        self._earlier: list[WorkerProcess] = []
        #: Clients whose next life is still to come, by the name that the plan has.
        self._returning: set[str] = set()
        self._is_load_over = False
        self._detectors: dict[str, HangDetector] = {}
        self._hung: set[str] = set()
        self._argv: dict[str, list[str]] = {}
        self._stalled: set[str] = set()
        #: Rows of events.jsonl that a full disk refused.
        self._unwritten: list[Document] = []

    @property
    def producers(self) -> list[WorkerProcess]:
        """The current life of each that sends, in the order of the plan, `consumers` of each that
        reads. Members of pipelines are in both."""
        with self._lock:
            return [*self._now["producer"], *self._now["pipeline"]]

    @property
    def consumers(self) -> list[WorkerProcess]:
        """Return the consumers that run now, with the pipelines' consumers."""
        with self._lock:
            return [*self._now["consumer"], *self._now["pipeline"]]

    @property
    def scheduled(self) -> list[WorkerProcess]:
        """Producers that follow a schedule."""
        with self._lock:
            return list(self._now["producer"])

    @property
    def readers(self) -> list[WorkerProcess]:
        """Consumers that only read."""
        with self._lock:
            return list(self._now["consumer"])

    @property
    def pipelines(self) -> list[WorkerProcess]:
        """Return the pipelines that run now."""
        with self._lock:
            return list(self._now["pipeline"])

    @property
    def auditors(self) -> list[WorkerProcess]:
        """Return the readers of the log that run now."""
        with self._lock:
            return list(self._now["audit"])

    @property
    def all_workers(self) -> list[WorkerProcess]:
        """Every life of every client, each once, earlier ones first."""
        with self._lock:
            return [*self._earlier, *(worker for role in self._now.values() for worker in role)]

    @property
    def is_producing(self) -> bool:
        """A producer with a schedule lives, or its next life is to come."""
        with self._lock:
            returning = set(self._returning)
            producers = self.scheduled
        return any(w.is_alive or w.plan_name in returning for w in producers)

    def will_return(self, name: str) -> None:
        """The process of a client ends now, and a next life comes."""
        with self._lock:
            self._returning.add(name)

    def current(self, name: str) -> WorkerProcess:
        """The current life of a client of the plan."""
        with self._lock:
            return next(w for w in (*self.producers, *self.consumers) if w.plan_name == name)

    def planned(self, name: str) -> ClientPlan:
        """A client as the plan has it."""
        return next(client for client in self._plan.clients if client.name == name)

    def start_clients(self, *, follow: bool = False) -> None:
        """Start producers and all but the late consumers; wait until each is ready.

        Args:
            follow: start the readers of the log, too, where they can read it while it grows.

        Raises:
            WorkerError: one did not get ready; its own words are in the message.
        """
        plan, run, where = self._plan, self.run, self.where
        self._now["consumer"] = [
            self._worker(client_spec(plan, run, c, where)) for c in plan.readers
        ]
        for worker, consumer in zip(self.readers, plan.readers, strict=True):
            if consumer.joins_s:
                # built now, not in the middle of the load
                self._launch(worker, consumer.client_version)
            else:
                self._start(worker, consumer.client_version)
        self._now["producer"] = [
            self._worker(client_spec(plan, run, p, where)) for p in plan.scheduled
        ]
        self._now["pipeline"] = [
            self._worker(client_spec(plan, run, m, where)) for m in plan.pipelines
        ]
        for worker, producer in zip(self.producers, plan.producers, strict=True):
            self._start(worker, producer.client_version)
        self._watch_calls()
        if follow and audit_follows(plan):
            self._start_readers_of_the_log(audit_specs(plan, run, where))
        for worker in self.all_workers:
            if worker.was_started:
                worker.wait_ready(READY_TIMEOUT_S)

    def _watch_calls(self) -> None:
        self._detectors = {
            w.name: HangDetector(w.calls(), p.call_deadline_s, limits_calls=p.limits_calls)
            for w, p in zip(self.producers, self._plan.producers, strict=True)
        }

    def take_over(self) -> None:
        """Have the workers of a harness that is gone, every life of them; none of them runs any
        more."""
        roles: dict[str, Sequence[ClientPlan]] = {
            "consumer": self._plan.readers,
            "producer": self._plan.scheduled,
            "pipeline": self._plan.pipelines,
        }
        for role, planned in roles.items():
            for client in planned:
                never = self._worker(client_spec(self._plan, self.run, client, self.where))
                *earlier, last = self._recalled(client.name, f"{client.name}.*") or [never]
                self._earlier += earlier
                self._now[role].append(last)
        readers = self._recalled("audit-*", "again-*")
        again = {
            worker.name.removeprefix("again-")
            for worker in readers
            if worker.name.startswith("again-")
        }
        self._earlier += [worker for worker in readers if worker.name in again]
        self._now["audit"] = [worker for worker in readers if worker.name not in again]
        self._watch_calls()

    def _recalled(self, *patterns: str) -> list[WorkerProcess]:
        """Return the workers whose names match, in the order in which they began."""
        folders = [
            path.parent for each in patterns for path in self.run.raw.glob(f"{each}/spec.json")
        ]
        found = []
        for folder in folders:
            document = read_json(folder / "spec.json")
            spec = ProcessSpec.model_validate(
                {key: document[key] for key in document if key != "role"}
            )
            found.append(WorkerProcess(spec, folder, on_message=self._on_message))
            found[-1].recall()
        return sorted(found, key=lambda worker: worker.t_start_ns)

    def follow_again(self) -> None:
        """Start readers of the log in the place of those that have ended."""
        with self._lock:
            ended, self._now["audit"] = self._now["audit"], []
            self._earlier += ended
        self._start_readers_of_the_log([audit_again(w.spec, self.run, follows=True) for w in ended])

    def start_late_consumers(self, elapsed_s: float) -> None:
        """Start the consumers that join ``elapsed_s`` into the load; without waiting for them."""
        for worker, plan in zip(self.readers, self._plan.readers, strict=True):
            if not worker.was_started and elapsed_s >= plan.joins_s:
                self._start(worker, plan.client_version)
                worker.tell(f"start {time.monotonic_ns()}")
                self._progress.note(f"{worker.name} joins group {plan.group}")

    def begin_life(self, before: WorkerProcess, spec: ProcessSpec) -> None:
        """Start a worker for one that ended; it continues the load as soon as it is ready.

        Raises:
            BrokerstormError: it cannot be started.
        """
        worker = self._worker(spec, before.plan_name)
        worker.life_of = before.plan_name
        if before.is_sender:
            earlier = self._detectors[before.name]
            self._detectors[worker.name] = HangDetector(
                worker.calls(), earlier.deadline_s, limits_calls=earlier.limits_calls
            )
        if before.is_reader:
            worker.carried = before.stats.positions | before.done_line.positions
            worker.stats = StatsLine(positions=worker.carried, epoch=0)
        self._start(worker, spec.client.version)
        with self._lock:
            role = self._now[before.role]
            self._earlier.append(before)
            role[role.index(before)] = worker
            self._returning.discard(worker.plan_name)
            # it was ready at once, and who ended the load did not see it here
            if worker.offers_from_ns:
                self._end_load_of(worker)
        self._progress.note(f"{worker.name} begins")

    def _go_on(self, worker: WorkerProcess) -> None:
        """A later life is ready: its part of the load begins now."""
        with self._lock:
            worker.offers_from_ns = time.monotonic_ns() + _BEGIN_NS
            worker.tell(f"start {worker.offers_from_ns}")
            self._end_load_of(worker)

    def _end_load_of(self, worker: WorkerProcess) -> None:
        if self._is_load_over and _follows_load(worker):
            worker.tell("stop-load")

    def stop_load(self) -> None:
        """Producers offer nothing more, those included that are not ready yet. Consumers pause and
        seek no more."""
        with self._lock:
            self._is_load_over = True
            self.command(self.scheduled, "stop-load")
            self.command(filter(_follows_load, self.readers), "stop-load")

    def start_audit(
        self, epochs: Mapping[str, Sequence[tuple[int, int]]], *, anew: bool = False
    ) -> None:
        """Let the readers of the log read to its end; call when no producer can write any more.

        Args:
            epochs: by stream, leader epochs of the log with where they begin, for those who have
                read some.
            anew: others read whole what those have read.
        """
        followers = self.auditors
        for worker in followers if anew else ():
            worker.stop()
        if followers:
            again = [
                audit_again(worker.spec, self.run) for worker in followers if not worker.is_alive
            ]
        else:
            again = audit_specs(self._plan, self.run, self.where)
        for worker in followers:
            told = {
                name: epochs.get(stream, ()) for name, stream in self._plan.worker_streams.items()
            }
            write_json(self.run.worker(worker.name) / EPOCHS_FILE, told)
        self._start_readers_of_the_log(again)
        for worker in self.auditors:
            if worker.is_alive:
                worker.wait_ready(READY_TIMEOUT_S)
                worker.tell(f"start {time.monotonic_ns()}")

    def _start_readers_of_the_log(self, specs: Sequence[ProcessSpec]) -> None:
        started = [self._worker(spec) for spec in specs]
        with self._lock:
            self._now["audit"] += started
        for worker in started:
            self._start(worker, worker.spec.client.version)

    def _worker(self, spec: ProcessSpec, client: str = "") -> WorkerProcess:
        """``client``: the name in the plan of a later life."""
        host = THIS_MACHINE if spec.audit else self._hosts.host_of(client or spec.name)
        folder, own = self.run.worker(spec.name), self._own_clocks and spec.audit is None
        return WorkerProcess(spec, folder, on_message=self._on_message, host=host, own_clock=own)

    def _start(self, worker: WorkerProcess, version: str) -> WorkerProcess:
        argv, env = self._launch(worker, version)
        self._argv[worker.name] = argv
        handed = self._kind(worker).secure_options(self.where.security)
        own = {**marks_of(self._owner), ROLE: worker.role, **worker.clock.environment(worker.name)}
        worker.start(argv, {**env, **own}, handed)
        return worker

    def _launch(self, worker: WorkerProcess, version: str) -> tuple[list[str], dict[str, str]]:
        return launch(self._kind(worker), version, offline=self._offline)

    def _kind(self, worker: WorkerProcess) -> WorkerSpec:
        library = worker.spec.client.library
        return load_worker(library, self._plan.workers, system=self._plan.system)

    def _on_message(self, worker: WorkerProcess, message: Message) -> None:
        kind = message.get("type")
        if kind == "ready" and worker.life_of:
            self._go_on(worker)
        if kind not in ("event", "error"):
            return
        if message.get("kind") == "frozen" and worker.name in self._detectors:
            self._detectors[worker.name].froze(int(message["t_ns"]), int(message["frozen_ns"]))
        if message.get("kind") == "client-died":
            worker.client_died = True
            self._progress.note(
                f"{self._who(worker)} declared itself dead: {message.get('text', '')}"
            )
        row = {k: v for k, v in message.items() if k not in ("type", "kind")}
        # whatever a worker says, what reads events.jsonl finds texts where texts belong
        row |= {
            k: str(row[k]) for k in ("text", "name", "why", "where", "thread", "stream") if k in row
        }
        if not isinstance(row.get("position"), int):
            row.pop("position", None)
        row.setdefault("t_ns", time.monotonic_ns())
        row = {"worker": worker.name, "kind": message.get("kind", kind), **row}
        self._write_event(row)

    def _write_event(self, row: Document) -> None:
        """Write an event, or keep it for `record` where the disk is full."""
        try:
            append_jsonl(self.run.events, row)
        except OSError:  # a full disk must not make us deaf: `record` writes it, or fails
            with self._lock:
                self._unwritten.append(row)

    def command(self, workers: Iterable[WorkerProcess], line: str) -> None:
        """Send a command to workers."""
        for worker in workers:
            worker.tell(line)

    def metric_sources(self) -> Mapping[str, tuple[int | None, StatsLine]]:
        """Return the processes and counters that `Meter` samples."""
        return {w.name: (w.pid, w.stats) for w in self.all_workers if w.is_alive}

    def pids(self) -> Mapping[str, int]:
        """The client processes that live now, by their names in the plan: what a fault may hit. 0:
        on another machine, where no number of this one means it."""
        with self._lock:
            clients = [*self.readers, *self.producers]
        return {w.plan_name: w.pid or 0 for w in clients if w.is_alive}

    def totals(self) -> dict[str, int]:
        """Sums of the latest counters over all workers. What pipelines make counts apart: the plan
        did not ask for it at a rate."""
        workers = self.all_workers
        producers, consumers, pipelines = (
            [w for w in workers if w.role == role] for role in ("producer", "consumer", "pipeline")
        )
        keys = ("attempted", "ok", "fail", "info", "open", "blocked_ns", "late_max_ns")
        totals = {key: sum(getattr(w.stats, key) for w in producers) for key in keys}
        totals["delivered"] = sum(w.stats.delivered for w in consumers)
        totals["piped"] = sum(w.stats.ok for w in pipelines)
        totals["audited"] = sum(w.stats.read for w in self.auditors)
        return totals

    def report_deaths(self) -> None:
        """Report each worker that died without saying ``done``, once."""
        for worker in self.all_workers:
            if not worker.t_end_ns:  # it lives, or its last words were not read yet
                continue
            if (
                worker.done.is_set()
                or worker.is_ending
                or worker.was_killed
                or worker.name in self._reported
            ):
                continue
            self._reported.add(worker.name)
            if worker.role != "audit" and (crash := worker.crash()):
                self._report_crash(worker, crash)
                continue
            text = f"worker {worker.name} died (exit code {worker.exit_code}): {worker.why()}"
            self._manifest.problem("worker-died", text)
            self._progress.note(text)

    def _report_crash(self, worker: WorkerProcess, crash: Crash) -> None:
        """Keep the dump and write the event of a client that took its process down."""
        worker.has_crashed = worker.client_died = True
        text = f"the client ended its process (exit code {worker.exit_code}): {crash.text}"
        self._progress.note(f"{self._who(worker)}: {text}")
        self._manifest.problem("client-crashed", f"{worker.name}: {text}")
        event = {
            "worker": worker.name,
            "kind": "client-died",
            "why": "crashed",
            "t_ns": worker.t_end_ns,
        }
        found = keep_dump(worker, crash, self.run)
        self._write_event({**event, "name": crash.name, "text": crash.text, **found})

    def end_hanging_producers(self) -> None:
        """End every producer with a call open past its deadline, after taking its stacks.

        All of them are reported first: a process may take seconds to show its stacks.
        """
        reported = []
        for worker in self.producers:
            if not worker.is_alive or worker.done.is_set():
                continue
            now_ns = time.monotonic_ns()
            detector = self._detectors[worker.name]
            hang = detector.check(now_ns, is_stopped=worker.is_stopped)
            if detector.moved:
                t_ns, since_ns = detector.moved
                row = {"worker": worker.name, "kind": MOVED, "t_ns": t_ns, "since_ns": since_ns}
                self._write_event(row)
            if hang is not None:
                reported.append((worker, self._report_hang(worker, hang)))
        for worker, row in reported:
            self._keep_stacks(worker, row)
            worker.kill()

    def _report_hang(self, worker: WorkerProcess, hang: Hang) -> Document:
        text = hang_sentence(hang, self._manifest.content.epoch_ns)
        self._hung.add(worker.name)  # its record is whole: what was open stays open
        self._reported.add(worker.name)
        return self._report_waiting(
            worker,
            "hang",
            text,
            open=hang.count,
            since_ns=hang.since_ns,
            last_progress_ns=hang.last_progress_ns,
            deadline_s=hang.deadline_s,
        )

    def end_stuck(self, worker: WorkerProcess, text: str) -> None:
        """Keep the stacks of a worker that does not end although it was asked to, and end it."""
        self._reported.add(worker.name)
        worker.was_stuck = True
        self._keep_stacks(worker, self._report_waiting(worker, "stuck", text))
        worker.kill()

    def note_stall(self, worker: WorkerProcess, stall: Stall, waiting: int) -> None:
        """Keep the stacks of a consumer that is handed nothing, once; it may still continue."""
        if worker.is_alive and not worker.client_died and worker.name not in self._stalled:
            self._stalled.add(worker.name)
            epoch_ns = self._manifest.content.epoch_ns
            text = stall_sentence(stall, waiting, epoch_ns)
            row = self._report_waiting(
                worker, "stall", text, since_ns=stall.since_ns, waiting=waiting
            )
            self._keep_stacks(worker, row)

    def note_stall_over(self, worker: WorkerProcess) -> None:
        """A consumer that stalled is handed messages again."""
        self._progress.waiting(worker.name, "")
        self._progress.note(f"{worker.name} continues: it receives messages again")

    def _report_waiting(self, worker: WorkerProcess, kind: str, text: str, **more: Any) -> Document:
        """Show that a worker waits in vain; the row for events.jsonl, still without its stacks."""
        verb = {"hang": "hangs", "stall": "stalls", "stuck": "is stuck"}[kind]
        self._progress.waiting(worker.name, f"{verb}: {text}")
        self._progress.note(f"{self._who(worker)} {verb}: {text}")
        row = {
            "t_ns": time.monotonic_ns(),
            "worker": worker.name,
            "kind": kind,
            "text": text,
            **more,
        }
        return {**row, **worker.spec.numbers}

    @staticmethod
    def _who(worker: WorkerProcess) -> str:
        """``producer-1 (kafka-clients 3.9.1)``."""
        version = worker.ready_line.client_version if worker.ready_line else ""
        client = " ".join(filter(None, (worker.spec.client.library, version)))
        return f"{worker.name} ({client})"

    @staticmethod
    def _version(worker: WorkerProcess) -> str:
        """Return the version that the client reports. The user's own build may report the same
        version as another build.
        """
        said = worker.ready_line.client_version if worker.ready_line else ""
        own = own_build(worker.spec.client.version)
        return f"{said} ({own.state})" if own and said else said

    def _keep_stacks(self, worker: WorkerProcess, row: Document) -> None:
        """Take the stacks of a worker that was reported, and write the event down."""
        found = take_stacks(worker, self.run)
        append_jsonl(self.run.events, {**row, **found})
        if found.get("where"):
            self._progress.note(
                f"{worker.name} waits in {found['where']}, stacks in {found['stacks']}"
            )
        self._manifest.problem(row["kind"], f"{worker.name}: {row['text']}")

    def stop(self) -> None:
        """End every worker; all of them are asked before the first is waited for. Idempotent."""
        self.command(self.all_workers, "stop")
        end = time.monotonic() + STOP_GRACE_S
        for worker in self.all_workers:
            worker.stop(max(0.0, end - time.monotonic()))

    def kill(self) -> None:
        for worker in self.all_workers:
            worker.kill()

    def record(self) -> None:
        """Write what became of each worker, and the versions of their clients, into the manifest.

        Raises:
            OSError: an event is still without room.
        """
        rows = [self._row(worker) for worker in self.all_workers]
        clients: dict[str, set[str]] = {}
        for row in rows:
            clients.setdefault(row.client, set()).add(row.client_version)
        versions = {name: ", ".join(sorted(found - {""})) for name, found in clients.items()}
        self._manifest.update(
            workers=rows, versions={**self._manifest.content.versions, **versions}
        )
        with self._lock:
            while self._unwritten:
                append_jsonl(self.run.events, self._unwritten[0])
                del self._unwritten[0]

    def _row(self, worker: WorkerProcess) -> WorkerRow:
        own, library = worker.spec.numbers, worker.spec.client.library
        row = WorkerRow(
            name=worker.name,
            role=worker.role,
            client=library,
            client_version=self._version(worker),
            artifact=artifact_of(self._argv.get(worker.name, ()), library),
            log_stamp=self._kind(worker).log_stamp,
            pid=worker.pid,
            exit_code=worker.exit_code,
            exposure=worker.done_line.exposure or worker.stats.exposure,
            done=worker.done.is_set(),
            hung=worker.name in self._hung,
            stuck=worker.was_stuck,
            crashed=worker.has_crashed,
            t_start_ns=worker.t_start_ns,
            t_end_ns=worker.t_end_ns,
            instance=own.get("instance"),
            session=own.get("session"),
            reader=own.get("reader"),
        )
        return worker.with_life(row)
