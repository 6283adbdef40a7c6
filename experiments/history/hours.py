"""The hours of a long run as rows of the history, each a cell of its own besides the run's.

They are cut from what the run was judged to be, as a whole: nothing is judged a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.findings import Finding, Result, Status, TimeSeries, Verdict
from analysis.report.documents import read_result
from experiments.history.rounds import Found, Labels, Round, rounds_of
from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR_S: Final = 3600
#: A shorter load has no hours to tell apart.
LEAST_HOURS: Final = 2
_EXIT: Final = {"pass": 0, "fail": 1, "unknown": 3}


def rounds_with_hours(run: RunDir, labels: Labels) -> list[Round]:
    """Return the rounds of a run, each followed by its hours; see `rounds_of`."""
    made = []
    for row in rounds_of(run, labels):
        own = RunDir(Path(row.folder))
        made += [row, *hours_of(row, read_result(own), read_document(own.plan, Plan).load_s)]
    return made


def hours_of(row: Round, result: Result, load_s: float) -> list[Round]:
    """Return one row for each hour that was begun, in the cell ``<cell>/hour 1``, for a load of two
    hours or more.

    An hour with a message of a violation is *fail*. Another one is *pass* if every check of the run
    holds and every violation has its time; else it is not known. Thresholds, latencies and CPU are
    of the run alone.
    """
    if load_s < LEAST_HOURS * HOUR_S:
        return []
    return [_hour(row, result, number, load_s) for number in range(-int(-load_s // HOUR_S))]


def _hour(row: Round, result: Result, number: int, load_s: float) -> Round:
    found = list(_found(row.found, result.findings, number))
    violated = [each for each in found if each.status == Status.VIOLATION]
    reasons = [f"{each.cls}: {each.count:,} in this hour" for each in violated] or list(
        _doubts(result)
    )
    verdict = Verdict.FAIL if violated else Verdict.UNKNOWN if reasons else Verdict.PASS
    begin_s, end_s = number * HOUR_S, min((number + 1) * HOUR_S, load_s)
    sends = _sends(result.timeline, number)
    faults = [
        fault for fault in result.faults if not fault.skipped and fault.t_s // HOUR_S == number
    ]
    outages = [fault.outage_s for fault in faults if fault.outage_s is not None]
    return replace(
        row,
        key=f"{row.key} hour {number + 1}",
        cell=f"{row.cell}/hour {number + 1}",
        started=None,
        ended=None,
        duration_s=None,
        verdict=verdict.value,
        exit_code=_EXIT[verdict.value],
        reasons=reasons,
        found=found,
        sends=sends,
        exposure={},
        rate_held_per_s=round(sends["ok"] / (end_s - begin_s), 1) if sends else None,
        latency_ms={},
        outages_s=outages,
        longest_outage_s=max(outages, default=None),
        recoveries_s=[fault.recovery_s for fault in faults if fault.recovery_s is not None],
        faults_fired=len(faults),
        faults_effective=sum(fault.effective for fault in faults),
        cpu_clients_s=None,
        cpu_brokers_s=None,
    )


def _found(told: Iterable[Found], findings: Sequence[Finding], number: int) -> Iterator[Found]:
    """Yield the findings that have messages in the hour, with an example only if it is in the
    hour."""
    for each, finding in zip(told, (one for one in findings if one.count), strict=True):
        counts = (
            count
            for stream in finding.by_stream
            for at, count in stream.windows
            if at // HOUR_S == number
        )
        if count := sum(counts):
            own = min(
                (w for w in finding.witnesses if w.t_s // HOUR_S == number),
                key=lambda w: w.t_s,
                default=None,
            )
            shown = (own.message, own.where, own.sentence) if own else ("", "", "")
            message, where, said = shown
            yield replace(each, count=count, episodes=0, message=message, where=where, said=said)


def _doubts(result: Result) -> Iterator[str]:
    """Why an hour without a violation need not be one."""
    yield from (check.text for check in result.coverage if not check.ok)
    for finding in result.violations():
        untimed = finding.count - sum(n for stream in finding.by_stream for _, n in stream.windows)
        if untimed:
            yield f"{finding.cls}: {untimed:,} of the run, in an unknown hour"


def _sends(series: TimeSeries, number: int) -> dict[str, int]:
    """Counts of the hour; empty where the steps of the series are longer."""
    if series.step_s > HOUR_S:
        return {}
    steps = [
        n for n in range(len(series.ok)) if (series.start_s + n * series.step_s) // HOUR_S == number
    ]
    names = {
        "attempted": series.intended,
        "ok": series.ok,
        "fail": series.fail,
        "info": series.info,
    }
    return {
        name: sum(values[n] for n in steps if n < len(values)) for name, values in names.items()
    }
