"""The head of a finding: how many messages, when, near which faults, in which partitions, and
why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.findings import FaultCount, FaultRow, Finding, Result, Status
from analysis.report import words

#: What the head of the page and the charts below it tell of.
GRAVE = (Status.VIOLATION, Status.SUSPECT, Status.APPLICATION_ERROR)
#: Faults named one by one; more are reported by kind, the kinds with the most messages by name.
NAMED_FAULTS = 3
NAMED_KINDS = 4
NAMED_STREAMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NearFault:
    """Messages near one fault, or near all faults of a kind. ``kind`` is empty for none or
    several."""

    kind: str
    text: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingStory:
    """The head of a finding. Texts are empty if the captured data do not show it.

    Attributes:
        causes: the leader changes that lost or repeated the messages, a sentence for each fault.
    """

    finding: Finding
    when: str
    near: list[NearFault]
    where: str
    causes: list[str]


def grave(result: Result) -> list[Finding]:
    """Findings that decide a verdict or would, if they were proved."""
    return [finding for finding in result.findings if finding.status in GRAVE and finding.count]


def story(finding: Finding, faults: Sequence[FaultRow]) -> FindingStory:
    """Tell a finding in sentences: when, next to which fault, why, and with which messages."""
    return FindingStory(
        finding=finding,
        when=_when(finding),
        near=_near(finding.by_fault, {fault.id: fault for fault in faults}),
        where=_where(finding),
        causes=words.causes_by_fault(finding),
    )


def _when(finding: Finding) -> str:
    if finding.by_fault:
        first = min(row.first_s for row in finding.by_fault)
        last = max(row.last_s for row in finding.by_fault)
        return words.span(first, last)
    timed = [witness.t_s for witness in finding.witnesses if witness.t_s]
    return f"first shown at {words.clock(min(timed))}" if timed else ""


def _near(rows: Sequence[FaultCount], faults: dict[int, FaultRow]) -> list[NearFault]:
    met = [row for row in rows if row.fault in faults]
    outside = sum(row.count for row in rows if row.fault not in faults)
    if len(met) <= NAMED_FAULTS:
        told = [
            NearFault(kind=faults[r.fault].kind, text=_name(faults[r.fault]), count=r.count)
            for r in met
        ]
    else:
        told = _by_kind(met, faults)
    return [*told, NearFault(kind="", text="no fault", count=outside)] if outside else told


def _name(fault: FaultRow) -> str:
    return f"{fault.kind} {words.plain(fault.target)} #{fault.id}"


def _by_kind(rows: Sequence[FaultCount], faults: dict[int, FaultRow]) -> list[NearFault]:
    kinds: dict[str, list[FaultCount]] = {}
    for row in rows:
        kinds.setdefault(faults[row.fault].kind, []).append(row)
    told = [
        NearFault(
            kind=kind,
            text=f"{kind} ({words.plural(len(own), 'fault')})",
            count=sum(row.count for row in own),
        )
        for kind, own in kinds.items()
    ]
    told.sort(key=lambda one: -one.count)
    named, rest = told[:NAMED_KINDS], told[NAMED_KINDS:]
    if rest:
        kinds_left = f"{words.plural(len(rest), 'more kind')} of fault"
        named.append(NearFault(kind="", text=kinds_left, count=sum(one.count for one in rest)))
    return named


def _where(finding: Finding) -> str:
    """``orders-5 (13,714), orders-0 (13,710) and 10 more``."""
    named = [row for row in finding.by_stream if row.stream][:NAMED_STREAMS]
    more = sum(row.streams for row in finding.by_stream) - len(named)
    text = ", ".join(f"{words.plain(row.stream)} ({words.count(row.count)})" for row in named)
    return f"{text} and {more} more" if more else text
