"""The table of anomaly classes: what each means, which promise it breaks, which evidence it needs.

Kernels, the report, `brokerstorm explain`, docs/explanation/anomalies.md and the JSON schema take
names and texts from here. A message is counted once, under the class of lowest ``rank`` that
describes it (a violation before anything permitted); what else the same cause did to it is listed
as a symptom. The rows lie in one file a concern; `CLASSES` is the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from analysis.capture.context import Promise
from analysis.classes.delivery import DELIVERY
from analysis.classes.entry import (
    ALWAYS,
    APPLICATION,
    ASKS,
    CAPTURE,
    INFORMATION,
    PRECONDITIONS,
    AnomalyClass,
    SubKind,
)
from analysis.classes.integrity import INTEGRITY
from analysis.classes.liveness import LIVENESS
from analysis.classes.pipelines import PIPELINES
from analysis.classes.sending import SENDING
from analysis.classes.transactions import TRANSACTIONS
from analysis.findings import Status
from harness.errors import UsageError, did_you_mean

__all__ = [
    "ALWAYS",
    "APPLICATION",
    "ASKS",
    "CAPTURE",
    "CLASSES",
    "INFORMATION",
    "PRECONDITIONS",
    "AnomalyClass",
    "SubKind",
    "anomaly_class",
    "status_of",
    "why_evidence",
    "why_promise",
]

_TABLE: Final = (*INTEGRITY, *SENDING, *DELIVERY, *TRANSACTIONS, *PIPELINES, *LIVENESS)

CLASSES: Final[Mapping[str, AnomalyClass]] = {
    c.name: c for c in sorted(_TABLE, key=lambda c: c.rank)
}


def anomaly_class(name: str) -> AnomalyClass:
    """The class of that name.

    Raises:
        UsageError: there is none; the hint names the nearest.
    """
    if name in CLASSES:
        return CLASSES[name]
    raise UsageError(f"no anomaly class {name!r}", hint=did_you_mean(name, CLASSES))


def status_of(cls: str, split: str, promise: Promise | None, unmet: Iterable[str] = ()) -> Status:
    """Return the status of a hit of a class under a producer's promise.

    Args:
        unmet: preconditions that do not hold; any makes a violation merely suspect.
    """
    return CLASSES[cls].status(split, promise, proved=not tuple(unmet))


def why_promise(
    cls: str, split: str, promise: Promise | None, because: Mapping[str, str] | None = None
) -> str:
    """The promise the class breaks, or does not, and where that comes from: for people.

    ``because``: the consumer's settings that decided its promise, by name.
    """
    settings = [(because or {}).get(name, "") for name in CLASSES[cls].rests_on]
    return "; ".join(filter(None, [_why_promise(cls, split, promise), *settings]))


def _why_promise(cls: str, split: str, promise: Promise | None) -> str:
    entry = CLASSES[cls]
    own = entry.splits.get(split)
    if own is not None and own.status is not None:
        return own.text
    if entry.broken_by(split) == (INFORMATION,):
        return "breaks no promise"
    if entry.broken_by(split) == (APPLICATION,):
        return "breaks no promise: the application did not check the result of its send"
    if entry.broken_by(split) == (CAPTURE,):
        return "a gap in the captured data: it says nothing about the broker"
    if entry.broken_by(split) == (ALWAYS,):
        return "wrong under any settings"
    asked, held = promise or Promise(), entry.held(promise, split)
    concerned = [kind for kind in entry.broken_by(split) if asked.holds(kind) is held]
    words = [f"{kind}: {asked.reason(kind) or 'promised'}" for kind in concerned]
    return {True: "breaks ", None: "may break ", False: "not promised; "}[held] + ", ".join(words)


def why_evidence(cls: str, unmet: Iterable[str] = ()) -> str:
    """Return which evidence was checked, or which is missing, as a text for users."""
    missing = tuple(unmet)
    if missing:
        return "not shown: " + "; ".join(PRECONDITIONS[name] for name in missing)
    needs = CLASSES[cls].needs
    return (
        "; ".join(PRECONDITIONS[name] for name in needs)
        if needs
        else "seen directly in the capture"
    )
