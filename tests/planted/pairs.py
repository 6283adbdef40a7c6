"""A tiny history that shows a class, beside its near-miss, and what is said of either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from analysis.classes import status_of
from analysis.findings import Status
from harness.contracts.plan import PromisePlan
from harness.records import Txn
from tests.oracles.judging import context_from, judged, labels
from tests.planted.tiny import History

Found = dict[tuple[str, str], list[str]]  # (class, split) -> messages
Build = Callable[[], History]


@dataclass(frozen=True)
class Pair:
    """``planted`` must show exactly ``shows``; ``near_miss`` exactly ``twin``, all of it harmless,
    unless the two differ by their class only: told for what they are, which the promise decides."""

    name: str
    planted: Build
    shows: Found
    near_miss: Build
    twin: Found
    by_class: bool = False

    def __str__(self) -> str:
        return self.name

    def check(self, *harmless: Status, promise: PromisePlan | None = None) -> None:
        """``harmless``: what the twin may be; default: permitted, or information."""
        assert found(self.planted()) == self.shows
        assert found(self.near_miss()) == self.twin
        statuses = {status_of(cls, split, promise) for cls, split in self.twin}
        assert self.by_class or statuses <= set(harmless or (Status.PERMITTED, Status.INFO))


def found(history: History, *, clock_bound_ns: int = 0, **sessions: bool) -> Found:
    """What is said of which message. ``sessions``: changes to every consumer session.
    ``clock_bound_ns``: of several machines."""
    context = context_from(history)
    own = {n: replace(s, **sessions) for n, s in context.sessions.items()}
    context = replace(context, sessions=own, clock_bound_ns=clock_bound_ns)
    result: Found = {}
    for cls, split, _, message in labels(judged(history, context)):
        result.setdefault((cls, split), []).append(message)
    return {key: sorted(names) for key, names in result.items()}


def five(**where: int) -> History:
    """Five messages sent, stored in order."""
    return History(**where).sent(5).log(0, 1, 2, 3, 4)


def aborted(outcome: str) -> History:
    """Message 2 is stored, in a transaction that was aborted."""
    h = History()
    for seq in range(4):
        h.send(seq, outcome if seq == 2 else "ok", position=seq)
    h.log(0, 1, 2, 3)
    h.rows["log"][2]["txn"] = Txn.ABORTED
    return h
