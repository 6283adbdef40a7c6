"""Records who led which stream, and from which position on: what names the cause of a loss
afterwards.

A system whose brokers keep that history is asked once, at the end. Of others the owner of every
stream is looked at during the run. What is not known is left out; a run without it is judged as
well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Final

from harness.contracts.plan import Plan
from harness.contracts.rows import Leadership
from harness.errors import BrokerstormError
from harness.faultlog import FaultRecord, remade_topics
from harness.protocols.cluster import Admin, HasLeaderships, HasPlacement
from harness.run.periodic import PeriodicThread
from harness.rundir import RunDir, write_jsonl
from harness.systems import system_of

_LOG = logging.getLogger(__name__)
PERIOD_S: Final = 1.0


class LeaderWatch(PeriodicThread):
    """From `start` to `record`: watches owners where the system keeps no history of them."""

    def __init__(
        self,
        plan: Plan,
        run: RunDir,
        admin: Callable[[], Admin],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__("leaders", self.look, period_s=PERIOD_S)
        self._topics = [topic.name for topic in plan.topics]
        self._run = run
        self._admin = admin
        self._clock_ns = clock_ns
        self._is_watched = not system_of(plan.system).keeps_leaders
        self._seen: dict[str, list[tuple[int, int, str | None]]] = {}
        self._last_look_ns = 0
        self._told: Sequence[Leadership] | None = None

    def start(self) -> None:
        if self._is_watched:
            super().start()

    def look(self) -> None:
        """Note the leaders that are others than at the last look."""
        admin = self._admin()
        if not isinstance(admin, HasPlacement):
            return
        try:
            states = admin.partition_states(self._topics)
        except BrokerstormError:
            return  # no broker answers: the next look may succeed
        now_ns = self._clock_ns()
        for stream, state in states.items():
            seen = self._seen.setdefault(stream, [])
            if not seen or seen[-1][2] != state.leader:
                late_ns = now_ns - self._last_look_ns if self._last_look_ns else 0
                seen.append((now_ns, late_ns, state.leader))
        self._last_look_ns = now_ns

    def record(self, *, has_times: bool = True) -> None:
        """Write what is known, once; nothing where brokers cannot say. ``has_times``: clocks were
        right."""
        if self._told is not None:
            return
        self.stop()
        self._told = ()
        admin = self._admin()
        if not isinstance(admin, HasLeaderships):
            return
        try:
            self._told = told = admin.leaderships(self._topics, self._seen)
        except BrokerstormError as error:
            _LOG.warning("who led which stream is not recorded: %s", error)
            return
        if not has_times:
            told = [self._timeless(one) for one in told]
        if told:
            rows = [asdict(one) for one in told]
            for row in rows:
                del row["stream_id"]  # sealing gives it
            write_jsonl(self._run.raw_leaderships, rows)

    @property
    def has_told(self) -> bool:
        """Brokers told of a leader, or of a ledger."""
        return bool(self._told)

    def epochs(self, faults: Sequence[FaultRecord]) -> dict[str, list[tuple[int, int]]]:
        """Return the recorded epochs: by stream, the terms that have entries in the log, each with
        its first position.

        Without the streams where they do not tell what became of the log: of a topic that was
        recreated they tell of another one, and a damaged file changes what is there without a
        change of leaders.
        """
        if any(fault.details.damaged for fault in faults):
            return {}
        remade = remade_topics(faults)
        found: dict[str, list[tuple[int, int]]] = {}
        for one in self._told or ():
            if one.first is not None and one.stream.rpartition("-")[0] not in remade:
                found.setdefault(one.stream, []).append((one.term, one.first))
        return found

    def _timeless(self, one: Leadership) -> Leadership:
        """Times of clocks that were not the machine's. Leaders that were watched have these times,
        too."""
        return replace(
            one, t_ns=0, late_ns=0, over_ns=0, leader="" if self._is_watched else one.leader
        )
