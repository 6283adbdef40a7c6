"""Lives of a client: its process ends, in good order or not, and a later one takes its place.

A later life is a worker of its own: a name (``producer-1.2``), a producer instance or consumer
session that the plan does not have, a capture folder. What an earlier life captured stays as it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from harness.contracts.plan import ClientPlan, Plan, ProducerPlan
from harness.contracts.worker import ProcessSpec, ProducerPart
from harness.errors import BrokerstormError
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import client_spec

#: A worker that was asked to end by a time may need this long past it to say so.
SLACK_S: Final = 2.0
#: A producer that comes and goes gets at least this long to see its sends to their outcome.
CLOSE_S: Final = 5.0
_NS: Final = 1_000_000_000


class WorkerLives:
    """Ends client processes and begins their next lives
    (`harness.protocols.faulting.ClientLives`)."""

    def __init__(self, plan: Plan, pool: WorkerPool) -> None:
        self._plan = plan
        self._pool = pool
        self._lock = threading.Lock()
        self._epoch_ns = 0
        planned = [life.instance for producer in plan.producers for life in producer.lives]
        numbers = [
            *(p.instance for p in plan.producers),
            *(c.session for c in plan.consumers),
            *planned,
        ]
        self._next_number = max(numbers) + 1
        self._count: dict[str, int] = {}

    def start(self, epoch_ns: int) -> None:
        """``epoch_ns``: start of load, CLOCK_MONOTONIC; from then on processes may be ended."""
        self._epoch_ns = epoch_ns

    def begin_all(self, epoch_ns: int) -> None:
        """Start clients of a load whose first part another harness drove: a new life of each client
        that had begun, with the number after its last one.
        """
        self.start(epoch_ns)
        for worker in self._pool.all_workers:
            self._next_number = max(
                self._next_number, *(n + 1 for n in worker.spec.numbers.values())
            )
            life = int(worker.name.partition(".")[2] or 1)
            self._count[worker.plan_name] = max(self._count.get(worker.plan_name, 1), life)
        for client in self._plan.clients:
            if self._pool.current(client.name).t_start_ns:
                self.begin(client.name)

    def kill(self, name: str) -> bool:
        """Kill a client; see `harness.protocols.faulting.ClientLives.kill`."""
        worker = self._pool.current(name)
        self._ending(worker)
        worker.kill()
        return self._ended(worker)

    def stop(self, name: str, within_s: float) -> bool:
        """Stop a client; see `harness.protocols.faulting.ClientLives.stop`."""
        worker = self._pool.current(name)
        self._ending(worker)
        deadline_ns = time.monotonic_ns() + int(within_s * _NS)
        worker.tell(f"drain {deadline_ns}" if worker.role == "producer" else "stop")
        if worker.wait_done(within_s + SLACK_S):
            worker.stop()  # it ends by itself; this waits for it
        else:
            worker.kill()
        return not self._ended(worker)

    def _ending(self, worker: WorkerProcess) -> None:
        worker.is_ending = True
        self._pool.will_return(worker.plan_name)
        worker.offers_until_ns = time.monotonic_ns()

    def _ended(self, worker: WorkerProcess) -> bool:
        """Write down how the process ended; whether our signal did it."""
        worker.was_killed = worker.is_signalled
        worker.is_ending = False
        if worker.is_sender:
            worker.open_sends = worker.calls().open_calls().count
        return worker.was_killed

    def begin(self, name: str, number: int = 0) -> None:
        """Start the next life of a client; see `harness.protocols.faulting.ClientLives.begin`.
        ``number`` is the one in the plan; 0 takes a free one.
        """
        with self._lock:
            before = self._pool.current(name)
            if before.is_alive:
                return
            if not number:
                number, self._next_number = self._next_number, self._next_number + 1
            life = self._count[name] = self._count.get(name, 1) + 1
            planned = self._pool.planned(name)
            changes = {"name": f"{name}.{life}", **dict.fromkeys(before.spec.numbers, number)}
            spec = self._spec(planned.model_copy(update=changes))
            self._pool.begin_life(before, spec)

    def _spec(self, client: ClientPlan) -> ProcessSpec:
        spec = client_spec(self._plan, self._pool.run, client, self._pool.where)
        if not isinstance(client, ProducerPlan) or spec.producer is None:
            return spec
        part = rest_of_load(spec.producer, max(0, time.monotonic_ns() - self._epoch_ns))
        return spec.model_copy(update={"producer": part})

    def life(self, name: str) -> str:
        """Return the name of the current life; see
        `harness.protocols.faulting.ClientLives.life`."""
        return self._pool.current(name).name

    def is_ready(self, name: str) -> bool:
        """Return whether the current life is ready; see
        `harness.protocols.faulting.ClientLives.is_ready`."""
        worker = self._pool.current(name)
        return worker.is_alive and worker.ready_line is not None

    def set_clock(self, name: str, ahead_s: float, speed: float = 1.0) -> None:
        """Set a client's clock; see `harness.protocols.faulting.ClientLives.set_clock`."""
        worker = self._pool.current(name)
        worker.clock.set(worker.name, ahead_s, speed)

    def clock_told(self, name: str, *, within_s: float) -> float | None:
        """Return a client's clock; see `harness.protocols.faulting.ClientLives.clock_told`."""
        worker = self._pool.current(name)
        return worker.clock.offset_told(worker.name, within_s=within_s)


class ComingAndGoing:
    """Ends and begins the lives that a plan has, each producer in a thread of its own."""

    def __init__(self, plan: Plan, lives: WorkerLives, problem: Callable[[str], None]) -> None:
        """``problem`` takes a sentence when a life could not begin."""
        self._producers = [producer for producer in plan.producers if producer.lives]
        self._lives = lives
        self._problem = problem
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, epoch_ns: int) -> None:
        """``epoch_ns``: start of load, CLOCK_MONOTONIC."""
        for each in self._producers:
            thread = threading.Thread(
                target=self._follow, args=(each, epoch_ns), name=f"lives-{each.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """No life ends or begins any more; what is under way is waited for."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout_s)

    def _follow(self, producer: ProducerPlan, epoch_ns: int) -> None:
        for life in producer.lives:
            if self._is_over_by(epoch_ns, life.leaves_s):
                return
            self._lives.stop(producer.name, max(life.returns_s - life.leaves_s, CLOSE_S))
            if self._is_over_by(epoch_ns, life.returns_s):
                return
            try:
                self._lives.begin(producer.name, life.instance)
            except BrokerstormError as error:
                self._problem(f"{producer.name} could not come back: {error}")
                return

    def _is_over_by(self, epoch_ns: int, at_s: float) -> bool:
        return self._over.wait(max(0.0, at_s - (time.monotonic_ns() - epoch_ns) / _NS))


def rest_of_load(part: ProducerPart, elapsed_ns: int) -> ProducerPart:
    """Return the load of a producer that begins later: without a warm-up, and with the rest of the
    time."""
    left: list[tuple[int, float]] = []
    passed_ns, spans = elapsed_ns, part.rate_profile
    for duration_ns, share in (spans or [])[1:]:
        cut_ns = min(passed_ns, duration_ns)
        passed_ns -= cut_ns
        if duration_ns > cut_ns:
            left.append((duration_ns - cut_ns, share))
    if spans:
        left = left or [(1_000_000, spans[-1][1])]
    load_s = max(0.001, part.load_s - elapsed_ns / _NS)
    profile = [(0, left[0][1]), *left] if left else None
    return part.model_copy(update={"warm_up_s": 0.0, "load_s": load_s, "rate_profile": profile})
