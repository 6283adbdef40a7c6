"""Judges what is sealed of a run during the load, window by window, and reports what it finds."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from analysis.verdict.so_far import SoFar, so_far
from harness.contracts.rows import FOUND_SO_FAR
from harness.errors import BrokerstormError
from harness.run.periodic import PeriodicThread
from harness.run.sealing import give_way
from harness.rundir import RunDir, append_jsonl
from harness.seal.seal import seal_finished
from harness.seal.so_far import write_so_far

if TYPE_CHECKING:
    from analysis.spark.session import WarmSession
    from harness.contracts.plan import Plan

_LOG = logging.getLogger(__name__)
WINDOW_S: Final = 600.0
#: The part of a run that is being judged.
FOLDER: Final = "so-far"
#: The largest share of the time that judging may take: all that is sealed is judged each time, and
#: grows.
SHARE: Final = 0.25


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """How a run is judged during the load.

    Attributes:
        window_s: from one judgement to the next; 0 = only in the end.
        fail_fast: the load ends with the first that is found.
    """

    window_s: float = WINDOW_S
    fail_fast: bool = False


class WindowJudge:
    """The windows of one round, from `start` to `stop`, in a thread of low priority.

    Args:
        session: of Spark; it is started as the first window begins.
        tell: gets a line for people of each finding that is new, or has grown.
        enough: set with the first finding, if the round is to end with it.
    """

    def __init__(
        self,
        plan: Plan,
        run: RunDir,
        session: WarmSession,
        asked: WindowRequest,
        *,
        tell: Callable[[str], None],
        enough: threading.Event,
    ) -> None:
        self._plan, self._run, self._session, self._asked = plan, run, session, asked
        self._tell, self._enough = tell, enough
        self._told: dict[str, int] = {}
        self._began_s = self._free_from_s = 0.0
        self._is_over = False
        self._thread = PeriodicThread("windows", self._close_window, period_s=asked.window_s)

    def start(self) -> None:
        self._began_s = time.monotonic()
        self._thread.start()

    def end(self) -> None:
        """Begin no judgement any more: the load is over."""
        self._is_over = True

    def stop(self) -> None:
        """Also wait for one that is under way: the session is wanted. Idempotent."""
        self.end()
        if self._began_s:
            self._thread.stop()

    def _close_window(self) -> None:
        began_s = time.monotonic()
        if began_s - self._began_s < self._asked.window_s / 2:
            give_way()
            self._session.start()  # of this priority, and there when the first window ends
            return
        if self._is_over or began_s < self._free_from_s:
            return  # the last one took too long
        try:
            seal_finished(self._run, self._plan)
            found = self._judge()
        except BrokerstormError as error:
            _LOG.warning("the window is not judged: %s", error)
            return
        for each in found:
            if each.count > self._told.get(each.cls, 0) and not self._is_over:
                self._say(each, began_s - self._began_s)
        self._free_from_s = time.monotonic() + (time.monotonic() - began_s) * (1 / SHARE - 1)

    def _judge(self) -> list[SoFar]:
        from analysis.spark.judge import judge

        part = RunDir(self._run.root / FOLDER)
        try:
            if not write_so_far(self._run, self._plan, part):
                return []
            return so_far(judge(part, self._session.get()).findings)
        finally:
            shutil.rmtree(part.root, ignore_errors=True)

    def _say(self, found: SoFar, until_s: float) -> None:
        self._told[found.cls] = found.count
        self._tell(f"so far, to {until_s / 60:.1f} min: {found.text}")
        row = {"t_ns": time.monotonic_ns(), "kind": FOUND_SO_FAR, "text": found.text}
        append_jsonl(self._run.events, row)
        if self._asked.fail_fast:
            self._tell(
                "--fail-fast: the load ends; undo, drain, audit and the final verdict follow"
            )
            self._enough.set()
