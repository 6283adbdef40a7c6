"""Runs the turns of a night: those that can share a cluster one after the other, what breaks once more.

A turn is finished as soon as its rows are in the history and its file is in the night's folder. What is
killed before that is run again, unless it was judged already; the rows of a turn are the same when they are
added twice.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from experiments.nights.night import Ended, Night, NightDir, Turn, again, word_of
from harness.errors import BrokerstormError, EnvironmentNotReady, Exit
from harness.rundir import RunDir

if TYPE_CHECKING:
    from experiments.history.rounds import Round
    from experiments.history.store import History
    from harness.run.interrupts import Interrupts

#: Below it no run can be captured.
LEAST_FREE_BYTES = 200_000_000
#: A turn that ends with one of these is run once more: it says nothing of clients and brokers.
BREAKS = (Exit.ENVIRONMENT, Exit.NOT_HEALED, Exit.BUG)


@dataclass(frozen=True, slots=True)
class Played:
    """What a turn came to.

    Attributes:
        exit_code: as of `run` and `repro`.
        reasons: why it is no pass.
        command: repeats it.
        duration_s: None = not known.
    """

    exit_code: int
    reasons: list[str]
    command: str = ""
    duration_s: float | None = None


class Bed(Protocol):
    """A cluster, or what stands for it, for turns that share it."""

    def play(self, turn: Turn, root: RunDir) -> Played:
        """Run a turn in a folder that is not there yet. May raise anything."""

    def clear(self) -> None:
        """After a turn that broke: what comes next gets a fresh cluster, nothing of the old one is left."""

    def note(self, text: str) -> None:
        """Tell the user one line."""


class Player(Protocol):
    """What runs turns (`experiments.nights.turns.LivePlayer`)."""

    def bed(self, turn: Turn) -> Hashable:
        """Turns that follow each other and have the same one share a cluster."""

    def fetch(self, turns: Sequence[Turn]) -> None:
        """Download and build what turns need. What cannot be had breaks its own turns, later."""

    def opened(self, turns: Sequence[Turn]) -> AbstractContextManager[Bed]:
        """For the turns of one bed."""

    def judged(self, root: RunDir) -> Played | None:
        """What a run folder says that a killed process left; None = it was not judged to the end."""

    def rows(self, turn: Turn, ended: Ended) -> list[Round]:
        """The rounds of a finished turn for the history."""


class NightRun:
    """One process's part of a night: from the first turn that is not finished to the last."""

    def __init__(
        self,
        night_dir: NightDir,
        night: Night,
        history: History,
        player: Player,
        interrupts: Interrupts,
        tell: Callable[[str], None],
    ) -> None:
        self._dir = night_dir
        self._night = night
        self._history = history
        self._player = player
        self._interrupts = interrupts
        self._tell = tell
        self._spent_s = 0.0

    def play(self) -> None:
        """Run every turn that is not finished and fits what is left of the budget.

        Raises:
            Interrupted: stopped; what is finished is kept, and ``--resume`` goes on.
            EnvironmentNotReady: the disk is full; what is finished is kept, and ``--resume`` goes on.
        """
        ended = [(turn, self._dir.ended(turn)) for turn in self._night.turns]
        self._spent_s = sum(each.duration_s for _, each in ended if each is not None)
        left = [turn for turn, each in ended if each is None]
        left = [turn for turn in left if not self._adopt(turn)]
        for turn in left:
            self._dir.make_room(turn)
        if not self._night.offline:
            self._player.fetch(left)
        for _, turns in groupby(left, self._player.bed):
            self._play_in_one(list(turns))

    def _adopt(self, turn: Turn) -> bool:
        """Finish a turn that was judged when the night was killed, without running it again."""
        for name in (again(turn.folder), turn.folder):
            root = self._dir.folder(name)
            played = self._player.judged(root)
            if played is not None and played.exit_code not in BREAKS:
                ended = _ended(turn, name, played, datetime.now(UTC), played.duration_s or 0.0)
                self._keep(turn, ended)
                self._tell(f"{turn.cell}, seed {turn.seed}: was judged already: {ended.verdict}")
                return True
        return False

    def _play_in_one(self, turns: Sequence[Turn]) -> None:
        waiting = [turn for turn in turns if self._fits(turn, self._tell)]
        if not waiting:
            return
        with self._player.opened(waiting) as bed:
            for turn in waiting:
                if self._fits(turn, bed.note):
                    ended = self._turn(turn, bed)
                    self._keep(turn, ended)
                    seed = f"seed {turn.seed}{', red before' if turn.is_sticky else ''}"
                    bed.note(f"{ended.verdict}: {turn.cell}, {seed}, {ended.duration_s:.0f} s")

    def _fits(self, turn: Turn, tell: Callable[[str], None]) -> bool:
        """Whether what is left of the budget is enough."""
        budget_s = self._night.budget_s
        if budget_s is None:
            return True
        left_s = budget_s - self._spent_s
        if turn.expected_s <= left_s:
            return True
        why = f"takes about {turn.expected_s:.0f} s, and {left_s:.0f} s of the budget are left"
        tell(f"not run: {turn.cell}: {why}")
        return False

    def _turn(self, turn: Turn, bed: Bed) -> Ended:
        """Play a turn, twice if it breaks the first time."""
        started, began = datetime.now(UTC), time.monotonic()
        name, broken = turn.folder, []
        played = self._attempt(turn, name, bed)
        if played.exit_code in BREAKS:
            self._require_disk()
            broken = [*played.reasons[:1], f"exit code {played.exit_code}"]
            bed.note(f"broke: {turn.cell}: {'; '.join(broken)}; it is run once more")
            bed.clear()
            name = again(turn.folder)
            played = self._attempt(turn, name, bed)
            if played.exit_code in BREAKS:
                self._require_disk()
                bed.clear()
        return _ended(turn, name, played, started, time.monotonic() - began, broken)

    def _attempt(self, turn: Turn, name: str, bed: Bed) -> Played:
        """Raises: Interrupted: stopped."""
        try:
            return bed.play(turn, self._dir.folder(name))
        except Exception as error:  # noqa: BLE001 - what breaks one turn must not stop the others
            self._interrupts.raise_if_stopped()
            if isinstance(error, BrokerstormError):
                return Played(int(error.exit_code), [" ".join(str(error).split())])
            return Played(Exit.BUG, [f"{type(error).__name__}: {' '.join(str(error).split())}"])

    def _require_disk(self) -> None:
        """Every turn that comes would break on a full disk, and be over.

        Raises:
            EnvironmentNotReady: there is no room.
        """
        free_bytes = shutil.disk_usage(self._dir.root).free
        if free_bytes < LEAST_FREE_BYTES:
            raise EnvironmentNotReady(
                f"the disk of {self._dir.root} is full: {free_bytes / 1e6:.0f} MB are free",
                hint=self._resume_hint(),
            )

    def _resume_hint(self) -> str:
        return f"free some space; then `brokerstorm suite run {self._night.file} --resume` goes on"

    def _keep(self, turn: Turn, ended: Ended) -> None:
        """The rows first: a turn that is finished is in the history."""
        try:
            for row in self._player.rows(turn, ended):
                self._history.add(row)
            self._dir.finish(turn, ended)
            self._spent_s += ended.duration_s
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot keep how {turn.cell} ended: {error.strerror or error}",
                hint=self._resume_hint(),
            ) from error


def _ended(
    turn: Turn,
    folder: str,
    played: Played,
    started: datetime,
    duration_s: float,
    broken: Sequence[str] = (),
) -> Ended:
    return Ended(
        cell=turn.cell,
        number=turn.number,
        seed=turn.seed,
        is_sticky=turn.is_sticky,
        folder=folder,
        verdict=word_of(played.exit_code),
        exit_code=int(played.exit_code),
        reasons=played.reasons,
        broken=list(broken),
        started=started.isoformat(timespec="seconds"),
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        command=played.command,
    )
