"""The applications of a run: their instances are started, restarted, drained and ended."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from harness.clusters.clocks.clocks import PRELOAD, OwnClocks
from harness.connections.security import Security
from harness.contracts.plan import ApplicationPlan, Plan
from harness.contracts.rows import ApplicationRow
from harness.errors import BrokerstormError, EnvironmentNotReady
from harness.owners import ROLE, marks_of
from harness.protocols.cluster import (
    Admin,
    GivesOutAgain,
    HasCommittedOffsets,
    ReadsMessages,
    StoredMessage,
)
from harness.protocols.faulting import ClientLives, OutputEndpoint
from harness.protocols.network import GivesWires
from harness.run.application_container import ApplicationContainer
from harness.run.application_limits import InstanceLimits
from harness.run.application_process import ApplicationProcess
from harness.run.group_members import GroupMembers
from harness.run.identity import is_probe
from harness.run.output_sources import HttpOutputs, OutputSource, output_source, shared_folder
from harness.run.periodic import PeriodicThread
from harness.run.place import RunPlace
from harness.run.worker_specs import group_id
from harness.rundir import append_jsonl
from harness.scenario.application import SECRETS, filled
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.jars import resolve
from harness.toolchains.java import find_java
from harness.waiting import wait_until
from harness.workers.environments import python_with

#: Between two looks at the instances.
_LOOK_S: Final = 0.2
#: Between two questions to brokers about the members of groups.
_COUNT_S: Final = 1.0
#: Seconds before an instance that ended by itself restarts; doubled each time, up to the second.
_BACKOFF_S: Final = (1.0, 16.0)
#: A Kafka client that names no session timeout has this one (KIP-735).
_SESSION_S: Final = 45.0
#: Outputs do not grow for this long while the group has no lag: nothing more comes.
QUIET_S: Final = 3.0
_ASK_S: Final = 0.5
#: Last positions of a partition that are searched for the last message of a producer, more of them
#: if there is none, and how long.
_LAST: Final = (64, 4096, 262_144)
_READ_S: Final = 10.0


class Applications:
    """All instances of all applications of a run.

    Shared by the run's thread, the thread that looks for ends, and faults: one lock guards who is
    in it.
    """

    def __init__(self, place: RunPlace, admin: Admin, network: GivesWires | None = None) -> None:
        """``network``: gives each instance wires of its own."""
        plan, run = place.plan, place.run
        self._network = network
        self._own_clocks = place.own_clocks
        #: The clock of each life, where faults set clocks.
        self._clocks: dict[str, OwnClocks] = {}
        self._offline = place.offline
        #: Where the outputs of each application are.
        self.sources = {
            each.name: output_source(each, run, admin, group_id(plan, each.group))
            for each in plan.applications
        }
        #: Members of the groups of applications that the user started.
        self._members = {
            each.name: GroupMembers(plan, each, admin)
            for each in plan.applications
            if each.runs_elsewhere
        }
        self._jars: dict[str, str] = {}
        self._pythons: dict[str, str] = {}
        self._plan = plan
        self._run = run
        self._where = place.where
        self._manifest = place.manifest
        self._progress = place.progress
        self._owner = place.owner
        self._lock = threading.RLock()
        self._now: dict[str, ApplicationProcess] = {}
        self._all: list[ApplicationProcess] = []
        self._due: dict[str, float] = {}
        self._backoff_s: dict[str, float] = {}
        self._drained: dict[str, bool] = {}
        self._is_over = False
        self._limits: dict[str, InstanceLimits] = {}
        #: Kills for want of memory that an instance had when its current life began.
        self._killed_before: dict[str, int] = {}
        self._watch = PeriodicThread("applications", self._look, period_s=_LOOK_S)
        self._count = PeriodicThread("group-members", self._count_members, period_s=_COUNT_S)

    # -- lives -------------------------------------------------------------------------------------

    def start(self, *, is_new: bool = True) -> None:
        """Start every instance and wait until all are ready.

        Args:
            is_new: False: the run is resumed, and has outputs already.

        Raises:
            WorkerError: one cannot be started, ended at once, or did not get ready in time.
            EnvironmentNotReady: its jars or packages cannot be downloaded, its outputs cannot be
                read, or the group of one that the user starts does not get its members.
        """
        for application in self._plan.applications:
            shared_folder(application, self._run).mkdir(parents=True, exist_ok=True)
            if note := self.sources[application.name].open(is_new=is_new):
                self._progress.note(f"before the program has started: {note}")
            self._jars[application.name] = self._class_path(application)
            self._pythons[application.name] = self._python(application)
            for name in application.instance_names:
                self._begin(application, name)
        for process in list(self._now.values()):
            process.wait_ready()
        if self._now:
            self._watch.start()
        if self._members:
            for name, members in self._members.items():
                self._progress.note(f"waiting for the members of the group of {name}")
                members.wait_ready(is_new=is_new)
            self._count.start()

    def _count_members(self) -> None:
        """Ask for the members of every group once."""
        for members in self._members.values():
            members.look()

    def _class_path(self, application: ApplicationPlan) -> str:
        """Download the jars of an application once; its class path."""
        if not application.jars:
            return ""
        artifacts = Artifacts(tuple(application.jars))
        folder = resolve(
            artifacts, offline=self._offline, on_progress=lambda text, _: self._progress.note(text)
        )
        return f"{folder}/*"

    def _python(self, application: ApplicationPlan) -> str:
        """Install the packages of an application once; the Python that has them."""
        if not application.packages:
            return sys.executable
        return str(python_with(application.packages, offline=self._offline))

    def _begin(self, application: ApplicationPlan, name: str) -> None:
        """Start the first or next life of an instance."""
        with self._lock:
            before = self._now.get(name)
            if before:
                before.wait_end()
            life = before.life + 1 if before else 1
            process = self._new_life(application, name, life)
            values = self._values(application, name)
            argv = [filled(text, values) for text in application.run]
            env = {key: filled(text, values) for key, text in application.env.items()}
            limits = self._limits_of(application, name)
            if self._network:
                self._network.give_wires(name)
            marks = {**marks_of(self._owner), ROLE: name, **self._clock_environment(process, env)}
            secrets = [values[place] for place in SECRETS if values[place]]
            process.start(argv, {**env, **marks}, secrets)
            self._now[name] = process
            self._all.append(process)
            self._due.pop(name, None)
            if limits:
                if process.pid:  # 0: a container whose program has ended
                    limits.enter(process.pid)
                self._killed_before[name] = limits.killed()
        self._progress.note(f"{process.name} begins")

    def _new_life(self, application: ApplicationPlan, name: str, life: int) -> ApplicationProcess:
        """A life of an instance that is not started yet."""
        folder = self._run.applications / name
        if not application.image:
            return ApplicationProcess(application, name, life, folder)
        folders = [self._own_folder(name), shared_folder(application, self._run)]
        return ApplicationContainer(application, name, life, folder, folders)

    def _own_folder(self, name: str) -> Path:
        """The folder of an instance, which its lives share; absolute, because a program runs in
        another folder."""
        own = self._run.applications.absolute() / name / "folder"
        own.mkdir(parents=True, exist_ok=True)
        return own

    def _limits_of(self, application: ApplicationPlan, name: str) -> InstanceLimits | None:
        """The limits of an instance, made when it first begins; None = it has none."""
        if application.cpu_cores is None and application.memory_bytes is None:
            return None
        if name not in self._limits:
            self._limits[name] = InstanceLimits(application, self._owner, name)
        return self._limits[name]

    def _clock_environment(
        self, process: ApplicationProcess, env: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the variables that give a life a wall clock of its own, where faults set it. A
        library that the scenario or the user preloads is kept. An image need not be able to load
        the library."""
        if not self._own_clocks or process.plan.image:
            return {}
        # The process does not run in the harness's folder.
        clocks = process.folder.absolute() / "clocks"
        clock = OwnClocks({process.name: clocks / process.name})
        self._clocks[process.name] = clock
        found = clock.environment(process.name)
        if before := env.get(PRELOAD, os.environ.get(PRELOAD, "")):
            found[PRELOAD] = f"{found[PRELOAD]}:{before}"
        return found

    def _values(self, application: ApplicationPlan, name: str) -> dict[str, str]:
        """Return the text of each place, for one instance."""
        plan = self._plan
        number = application.number_of(name)
        texts = [*application.run, *application.env.values()]
        told = plan.worker_topics
        topics = {f"topic:{topic.declared}": told[topic.name] for topic in plan.topics}
        return {
            "bootstrap": self._where.bootstrap,
            "instance": str(number),
            "group": group_id(plan, application.group),
            "folder": str(self._own_folder(name)),
            "shared": str(shared_folder(application, self._run)),
            **{"endpoint": "", "database": "", "database-password": ""},
            **self.sources[application.name].places(),
            "python": self._pythons.get(application.name, sys.executable),
            "java": find_java().path if any("{java}" in text for text in texts) else "",
            "jars": self._jars.get(application.name, ""),
            **_security_values(self._where.security),
            **topics,
        }

    def _look(self) -> None:
        """Report each instance that ended by itself, and start it again where the scenario says
        so."""
        for name, process in list(self._now.items()):
            if process.t_end_ns and not process.is_ending and not process.was_reported:
                self._report_end(process)
            due = self._due.get(name)
            if due is not None and time.monotonic() >= due and not self._is_over:
                try:
                    self._begin(process.plan, name)
                except BrokerstormError as error:
                    self._due.pop(name, None)
                    self._problem(str(error))

    def _report_end(self, process: ApplicationProcess) -> None:
        process.was_reported = True
        limits = self._limits.get(process.instance)
        if limits and limits.killed() > self._killed_before[process.instance]:
            why = f" because it needed more than its limit of {limits.memory_text()} memory"
        else:
            why = " by itself"
        text = f"{process.name} {process.end_text()}{why}{process.last_lines()}"
        self._event(process, "application-ended", text, t_ns=process.t_end_ns)
        self._progress.note(text)
        if process.plan.restarts == "always":
            least, most = _BACKOFF_S
            wait_s = self._backoff_s.get(process.instance, least)
            self._backoff_s[process.instance] = min(2 * wait_s, most)
            self._due[process.instance] = time.monotonic() + wait_s

    def _event(self, process: ApplicationProcess, kind: str, text: str, *, t_ns: int = 0) -> None:
        row = {
            "t_ns": t_ns or time.monotonic_ns(),
            "worker": process.name,
            "kind": kind,
            "text": text,
        }
        append_jsonl(self._run.events, row)

    def _problem(self, text: str) -> None:
        self._manifest.problem("application", text)
        self._progress.note(text)

    # -- as `harness.protocols.faulting.ClientLives` -----------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an instance of an application has, or can have, this name."""
        return self._application_of(name) is not None

    def _application_of(self, name: str) -> ApplicationPlan | None:
        return next((each for each in self._plan.applications if each.number_of(name)), None)

    def instances(self, one: str, count: int) -> list[str]:
        """Return names of instances; see
        `harness.protocols.faulting.InstanceLives.instances`."""
        application = self._application_of(one)
        assert application is not None, f"{one} is not an instance"
        return [application.instance_name(number) for number in range(1, count + 1)]

    def pids(self) -> dict[str, int]:
        """The process ids of the instances that run now, by their names in the plan."""
        with self._lock:
            return {
                name: life.pid for name, life in self._now.items() if life.is_alive and life.pid
            }

    def kill(self, name: str) -> bool:
        """Kill an instance; see `harness.protocols.faulting.ClientLives.kill`."""
        return self._now[name].kill()

    def stop(self, name: str, within_s: float) -> bool:
        """Stop an instance with its signal; see `harness.protocols.faulting.ClientLives.stop`."""
        return self._now[name].stop(within_s)

    def begin(self, name: str) -> None:
        """Start the next life of an instance; see
        `harness.protocols.faulting.ClientLives.begin`."""
        application = self._application_of(name)
        assert application is not None, f"{name} is not an instance"
        with self._lock:
            process = self._now.get(name)
            if self._is_over or (process is not None and process.is_alive):
                return
            self._begin(application, name)

    def life(self, name: str) -> str:
        """Return the name of the current life of an instance; its own name before the first."""
        process = self._now.get(name)
        return process.name if process else name

    def is_ready(self, name: str) -> bool:
        """Return whether the current life of an instance runs and is ready."""
        process = self._now.get(name)
        return process is not None and process.is_ready()

    def set_clock(self, name: str, ahead_s: float, speed: float = 1.0) -> None:
        """Set the clock of an instance; see
        `harness.protocols.faulting.ClientLives.set_clock`."""
        self._clock(name).set(self.life(name), ahead_s, speed)

    def clock_told(self, name: str, *, within_s: float) -> float | None:
        """Return the clock of an instance; see
        `harness.protocols.faulting.ClientLives.clock_told`."""
        return self._clock(name).offset_told(self.life(name), within_s=within_s)

    def _clock(self, name: str) -> OwnClocks:
        if (clock := self._clocks.get(self.life(name))) is None:
            raise EnvironmentNotReady(f"{name} was started without a clock of its own")
        return clock

    # -- the end -----------------------------------------------------------------------------------

    def drain(self, admin: Admin, timeout_s: float, is_hurried: Callable[[], bool]) -> bool:
        """Wait until every application has processed all of its input and its outputs do not grow;
        whether each did, which is kept for the manifest.

        Args:
            is_hurried: the user wants to stop.
        """
        end = time.monotonic() + timeout_s
        for application in self._plan.applications:
            check = _Drain(self._plan, application, admin, self.sources[application.name])

            def is_over(check: _Drain = check) -> bool:
                is_done = check.is_done()
                self._note_stall(check)
                return is_done or is_hurried()

            wait_until(is_over, max(0.0, end - time.monotonic()), every_s=_ASK_S)
            self._drained[application.name] = check.was_done
            if not check.was_done:
                how = f"{self._alive(application)} of {application.instances} instances run"
                own = [each for each in self._all if each.plan.name == application.name]
                for last in [each for each in own if each.was_reported][-1:]:
                    how += f"; {last.name} {last.end_text()} by itself{last.last_lines()}"
                self._problem(
                    f"application {application.name} did not finish its input: {check.why}; {how}"
                )
        return all(self._drained.values())

    def _alive(self, application: ApplicationPlan) -> int:
        """Count the instances of an application that run."""
        if members := self._members.get(application.name):
            return members.count
        return sum(
            process.is_alive and process.plan.name == application.name
            for process in list(self._now.values())
        )

    def _awaited_until(self, check: _Drain) -> float:
        """Return until when brokers may keep what an instance holds that ended, and give it to no
        other one; 0 = none ended. By `time.monotonic`.

        An instance that ends in good order need not leave its group. One that the user started may
        have ended unseen.
        """
        if check.application.runs_elsewhere:
            return check.unchanged_since + _SESSION_S
        gone = [
            life.t_end_ns / 1e9 + _SESSION_S
            for life in self._all
            if life.plan.name == check.application.name and life.t_end_ns
        ]
        return max(gone, default=0.0)

    def _note_stall(self, check: _Drain) -> None:
        """Write one event when an application that runs has committed nothing for too long."""
        limit_s, application = self._plan.limits["stall"], check.application
        runs = self._alive(application) > 0
        if check.was_stalled or not runs or not check.unchanged_since:
            return
        since = max(check.unchanged_since, self._awaited_until(check))
        if time.monotonic() - since < limit_s:
            return
        since = max(since, check.unchanged_since + check.held_for_s())
        if time.monotonic() - since < limit_s:
            return
        check.was_stalled = True
        text = f"{check.why}; nothing was committed for {limit_s:g} s although it runs"
        now_ns = time.monotonic_ns()
        row = {
            "t_ns": now_ns,
            "worker": application.name,
            "kind": "application-stalled",
            "text": text,
        }
        append_jsonl(self._run.events, {**row, "since_ns": now_ns - int(limit_s * 1e9)})
        self._progress.note(f"application {application.name} stalls: {text}")

    def end(self) -> None:
        """End every instance in good order, all at once; what ignores its signal is killed.
        Idempotent."""
        with self._lock:
            self._is_over = True
        self._count.stop()
        if self._now and not self._watch.is_stopped:
            self._watch.stop()
            self._look()
        threads = [
            threading.Thread(target=self._end_one, args=(each,), name=f"end-{each.name}")
            for each in self._now.values()
            if each.is_alive
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in self._all:
            each.wait_end()
        self._drop_limits()
        for source in self.sources.values():
            source.close()

    def _drop_limits(self) -> None:
        for name, limits in self._limits.items():
            if (throttled_s := limits.throttled_s()) > 0:
                self._progress.note(f"{name} had to wait {throttled_s:.1f} s for its CPU limit")
            limits.drop()
        self._limits.clear()

    def _end_one(self, process: ApplicationProcess) -> None:
        if not process.stop():
            limit_s = process.plan.stop_within_s
            text = f"{process.name} did not end within {limit_s:g} s of its signal and was killed"
            self._event(process, "application-stuck", text)
            self._progress.note(text)

    def kill_all(self) -> None:
        """Kill every instance."""
        with self._lock:
            self._is_over = True
        self._count.stop()
        for process in self._now.values():
            process.kill()
        self._drop_limits()

    def rows(self) -> list[ApplicationRow]:
        """The fate of each life, for the manifest."""
        elsewhere = [
            row
            for name, members in self._members.items()
            for row in members.rows(drained=self._drained.get(name, False))
        ]
        return elsewhere + [
            ApplicationRow(
                name=process.name,
                application=process.plan.name,
                instance=process.instance,
                pid=process.pid,
                exit_code=process.exit_code,
                killed=process.was_killed,
                ended_by_itself=process.was_reported,
                t_start_ns=process.t_start_ns,
                t_end_ns=process.t_end_ns,
                drained=self._drained.get(process.plan.name, False),
            )
            for process in self._all
        ]


class _Drain:
    """Whether an application has nothing left to do."""

    def __init__(
        self, plan: Plan, application: ApplicationPlan, admin: Admin, source: OutputSource
    ) -> None:
        self._source = source
        self._plan = plan
        self.application = application
        self._admin = admin
        self._lag_before = -1
        #: Since when its lag has been the same; 0 = it has none, or that is not known.
        self.unchanged_since = 0.0
        self.was_stalled = False
        self._ends: Mapping[str, int] = {}
        self._outputs: object = None
        self._since = time.monotonic()
        self.was_done = False
        self.why = "its group has committed nothing"

    def is_done(self) -> bool:
        """Ask the brokers once."""
        own = self.application
        try:
            outputs = self._source.size()
            self._ends = self._ends or self._input_ends()
            lag = self._lag()
        except (BrokerstormError, OSError) as error:
            self.why = str(error)
            return False
        if outputs != self._outputs:
            self._outputs, self._since = outputs, time.monotonic()
        if lag is None or lag == 0:
            self.unchanged_since = 0.0
        elif lag != self._lag_before:
            self._lag_before, self.unchanged_since = lag, time.monotonic()
        if lag is None:
            return False
        if lag > 0:
            self.why = f"{lag:,} messages of {own.source} are not committed by group {own.group}"
            return False
        self.why = "its outputs still grow"
        self.was_done = time.monotonic() - self._since >= QUIET_S
        return self.was_done

    def _input_ends(self) -> dict[str, int]:
        """By stream of its input, the position after the last message of a producer. Probes come
        after it; an application may leave those uncommitted.

        Raises:
            BrokerstormError: the brokers do not answer.
        """
        source, admin = self.application.source, self._admin
        if not isinstance(admin, ReadsMessages):
            return dict(admin.end_offsets([source]))
        for last in _LAST:
            ends: dict[str, int] = {}

            def take(message: StoredMessage, ends: dict[str, int] = ends) -> None:
                if not is_probe(message, self._plan.run_tag):
                    ends[f"{source}-{message.partition}"] = message.position + 1

            bounds = admin.read_messages(source, take, timeout_s=_READ_S, last=last)
            if not all(bound.is_complete for bound in bounds):
                raise EnvironmentNotReady(f"the end of {source} cannot be read")
            # Messages of a transaction that was aborted are not handed over.
            if all(each.stream in ends or each.end - each.begin < last for each in bounds):
                break
        return {bound.stream: ends.get(bound.stream, bound.begin) for bound in bounds}

    def _lag(self) -> int | None:
        """Messages of its input that its group has not committed; None = not known."""
        own, admin = self.application, self._admin
        if not isinstance(admin, HasCommittedOffsets):
            self.why = "the brokers do not tell what a group has committed"
            return None
        told = admin.committed_offsets(group_id(self._plan, own.group), [own.source])
        missing = [stream for stream, end in self._ends.items() if end and stream not in told]
        if missing:
            group = group_id(self._plan, own.group)
            self.why = (
                f"it is not known what group {group} has committed of "
                f"{', '.join(sorted(missing)[:3])}; does its program use {{group}}?"
            )
            return None
        if own.runs_elsewhere and (stale := self._beyond_the_end(told)):
            self.why = (
                f"its group has committed position {told[stale]} of {stale}, which has no such"
                " message: it is of an earlier run"
            )
            return None
        if self._ends and all(position < 0 for position in told.values()):
            group = group_id(self._plan, own.group)
            self.why = f"group {group} has committed nothing; does its program use {{group}}?"
        return sum(max(0, end - max(0, told.get(stream, 0))) for stream, end in self._ends.items())

    def held_for_s(self) -> float:
        """Return how long brokers wait for the acknowledgement of a message that an instance was
        given, before they give it out again; infinite while they do not answer."""
        own, admin = self.application, self._admin
        if not isinstance(admin, GivesOutAgain):
            return 0.0
        try:
            return admin.held_for_s(group_id(self._plan, own.group), [own.source])
        except BrokerstormError:
            return math.inf

    def _beyond_the_end(self, told: Mapping[str, int]) -> str:
        """A stream of which a position is committed that its log does not have; empty = none. An
        application that was not restarted may commit what it holds of a deleted topic."""
        ends = self._admin.end_offsets([self.application.source])
        return next((s for s, position in told.items() if position > ends.get(s, position)), "")


def _security_values(security: Security | None) -> dict[str, str]:
    """The places of a secured cluster; empty texts where it asks for nothing."""
    tls = security.tls if security else None
    auth = security.auth if security else None
    name = ("SASL_" if auth else "") + ("SSL" if tls else "PLAINTEXT")
    return {
        "protocol": name,
        "ca": _path_text(tls.ca) if tls else "",
        "certificate": _path_text(tls.certificate) if tls else "",
        "key": _path_text(tls.key) if tls else "",
        "mechanism": auth.mechanism.upper() if auth else "",
        "user": auth.user if auth else "",
        "password": auth.secret.reveal() if auth else "",
    }


def _path_text(path: Path | None) -> str:
    """An absolute path for a program that runs in another folder; empty without one."""
    return str(path.absolute()) if path else ""


class RunLives:
    """Clients and applications of a run as one `harness.protocols.faulting.ClientLives`."""

    def __init__(self, clients: ClientLives, applications: Applications) -> None:
        self._clients = clients
        self._applications = applications

    def _of(self, name: str) -> ClientLives | Applications:
        return self._applications if self._applications.has(name) else self._clients

    def kill(self, name: str) -> bool:
        return self._of(name).kill(name)

    def stop(self, name: str, within_s: float) -> bool:
        return self._of(name).stop(name, within_s)

    def begin(self, name: str) -> None:
        self._of(name).begin(name)

    def instances(self, one: str, count: int) -> list[str]:
        return self._applications.instances(one, count)

    def life(self, name: str) -> str:
        return self._of(name).life(name)

    def is_ready(self, name: str) -> bool:
        return self._of(name).is_ready(name)

    def output_endpoint(self, application: str) -> OutputEndpoint | None:
        """See `harness.protocols.faulting.HasOutputEndpoints`."""
        source = self._applications.sources.get(application)
        return source if isinstance(source, HttpOutputs) else None

    def set_clock(self, name: str, ahead_s: float, speed: float = 1.0) -> None:
        self._of(name).set_clock(name, ahead_s, speed)

    def clock_told(self, name: str, *, within_s: float) -> float | None:
        return self._of(name).clock_told(name, within_s=within_s)
