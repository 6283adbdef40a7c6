"""Combines the earlier judgement of the whole run with the judgement of the buckets that a bundle
holds.

Findings are from the buckets that are here. What rests on every row (sends, rate, latency, the
timeline, the checks of traffic, faults and load) stays as it was judged before, and says so. The
check of the capture does not hold, so the verdict is *fail* or *unknown*: a part of a capture
proves the anomalies that it shows, and never that there are none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from analysis.findings import Result, ValidityCheck
from analysis.verdict.verdict import EXIT, decide
from harness.errors import Exit

BEFORE: Final = "as judged before: "
#: Validity checks that need every row; of the others, one that does not hold now or did not then
#: stays so.
_OF_EVERY_ROW: Final = frozenset({"traffic", "faults", "rate", "generator", "drain"})


def beside_what_was_judged(result: Result, before: Result) -> Result:
    """``result`` of a part of a capture, with what only the whole can tell from ``before``."""
    checks = _checks(result, before)
    verdict, reasons = decide(result.findings, checks)
    not_healed = result.exit_code == Exit.NOT_HEALED
    told = [
        text
        for text in result.reasons
        if not_healed and text.startswith("a fault could not be undone")
    ]
    return replace(
        result,
        verdict=verdict,
        exit_code=int(Exit.NOT_HEALED if not_healed else EXIT[verdict]),
        reasons=told + reasons,
        sends=before.sends,
        rate=before.rate,
        latency_ms=before.latency_ms,
        no_intended_times=before.no_intended_times,
        percentiles=before.percentiles,
        timeline=before.timeline,
        rows=before.rows,
        faults=before.faults,
        untested=before.untested,
        exposure=before.exposure,
        coverage=checks,
    )


def _checks(result: Result, before: Result) -> list[ValidityCheck]:
    now = {check.name: check for check in result.coverage}
    then = {check.name: check for check in before.coverage}
    made = []
    for name in dict.fromkeys([*then, *now]):
        here, earlier = now.get(name), then.get(name)
        told = ValidityCheck(name, earlier.ok, BEFORE + _once(earlier.text)) if earlier else None
        if name in _OF_EVERY_ROW:
            made.append(told or here)
        elif here is None or (here.ok and told is not None and not told.ok):
            made.append(told)
        else:
            made.append(here)
    return [check for check in made if check is not None]


def _once(text: str) -> str:
    return text.removeprefix(BEFORE)
