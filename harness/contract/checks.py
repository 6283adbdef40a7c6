"""Makes functions checks of the worker contract.

A check is a function of a `Rig` with the worker under test. It raises `ContractBroken` with what it
found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from harness.contract.rig import Rig
from harness.systems import SYSTEMS, System
from harness.workers.spec import Role, WorkerSpec

Cases = Mapping[str, Mapping[str, Any]]
Applies = Callable[[System], bool]


def everywhere(system: System) -> bool:
    """A check of every system."""
    return True


_ONE: Final[Cases] = {"": {}}


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """One thing that is asked of a worker.

    Attributes:
        part: the module it is in.
        role: that the worker must have.
        words: tables of ``[contract]`` that it needs: without them it is skipped.
        supports: value that the worker must be able to do, by key; else it does not apply.
        applies: to which systems.
        by_kit: what the kit of its language does, whatever the client: few workers need be asked in
            a hurry.
        quick_with: table of ``[contract]`` without which it takes long.
        slow: takes long, or goes the same way as another one: for a nightly run.
        freezes_brokers: no other check can use the cluster meanwhile.
    """

    name: str
    part: str
    role: Role
    run: Callable[[Rig], None]
    words: Collection[str] = ()
    supports: Mapping[str, str] = field(default_factory=dict)
    applies: Applies = everywhere
    by_kit: bool = False
    quick_with: str = ""
    slow: bool = False
    freezes_brokers: bool = False

    def concerns(self, worker: WorkerSpec) -> bool:
        """Whether it can be asked of a worker at all."""
        able: Mapping[Any, Collection[str]] = worker.supports
        has = all(value in able.get(key, ()) for key, value in self.supports.items())
        return self.role in worker.roles and has and self.applies(SYSTEMS[worker.system])

    def is_slow(self, worker: WorkerSpec) -> bool:
        """Whether it is for a nightly run only."""
        return self.slow or bool(self.quick_with and not getattr(worker.contract, self.quick_with))

    def missing(self, worker: WorkerSpec) -> str:
        """The first table of ``[contract]`` that it lacks; empty = none."""
        return next((word for word in self.words if not getattr(worker.contract, word)), "")


#: Every check of the modules that were read.
CHECKS: Final[list[WorkerCheck]] = []


def check(
    role: Role, *words: str, cases: Cases = _ONE, slow: Collection[str] | bool = (), **more: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a check, one for each of ``cases`` (name -> arguments).

    ``slow``: names of cases, or True for all. ``more``: further attributes of `WorkerCheck`.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for case, arguments in cases.items():
            name = function.__name__.replace("_", " ") + (f": {case}" if case else "")
            is_slow = slow if isinstance(slow, bool) else case in slow
            run = partial(function, **arguments)
            CHECKS.append(
                WorkerCheck(name, function.__module__, role, run, words, slow=is_slow, **more)
            )
        return function

    return register
