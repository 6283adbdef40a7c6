"""fail > unknown > pass, with a sentence for each reason.

* **fail**: at least one violation or a threshold missed, whatever else is missing: what was proved
  stays proved.
* **unknown**: neither, but a check of `analysis.verdict.coverage` does not hold, so that the run
  could not have shown one, or a figure that has a threshold was not measured.
* **pass**: neither. Permitted classes and application errors are reported and change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.findings import Finding, Status, Threshold, ValidityCheck, Verdict
from harness.errors import Exit

EXIT = {Verdict.PASS: Exit.PASS, Verdict.FAIL: Exit.FAIL, Verdict.UNKNOWN: Exit.UNKNOWN}


def decide(
    findings: Sequence[Finding],
    checks: Sequence[ValidityCheck],
    thresholds: Sequence[Threshold] = (),
) -> tuple[Verdict, list[str]]:
    """The verdict and its reasons, the weightiest first; a pass needs none."""
    broken = [violation_sentence(f) for f in findings if f.status is Status.VIOLATION and f.count]
    broken += [each.text for each in thresholds if each.held is False]
    unmet = [check.text for check in checks if not check.ok]
    unmet += [each.text for each in thresholds if each.held is None]
    if broken:
        return Verdict.FAIL, broken + unmet
    return (Verdict.UNKNOWN, unmet) if unmet else (Verdict.PASS, [])


def violation_sentence(finding: Finding) -> str:
    """e.g. ``1,486 acked-lost in 12 episodes: acknowledged and not in the log``."""
    episodes = f" in {finding.episodes:,} episodes" if finding.episodes > 1 else ""
    return f"{finding.count:,} {finding.cls}{episodes}: {finding.sentence}"
