"""Results as a run would give them, for the tests of what people read. Pure data, fixed by a
seed."""

from tests.report_samples.findings import HOSTILE, fault_rows, lost_finding, steps
from tests.report_samples.results import campaign, failing, passing, unknown

__all__ = [
    "HOSTILE",
    "campaign",
    "failing",
    "fault_rows",
    "lost_finding",
    "passing",
    "steps",
    "unknown",
]
