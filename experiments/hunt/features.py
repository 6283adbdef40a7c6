"""Features of a judged round: short texts, each something that a round can show or not show.

A round is interesting if it has a feature that no round before it had. Amounts and times are
rounded down to powers of two, so that a little more of the same is not a new feature.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final

from experiments.hunt.conduct import CLIENTS, strange_conduct
from harness.contracts import read_document, read_rows
from harness.contracts.rows import Manifest, MetricRow, NameRow
from harness.logs.files import LogFile, log_files
from harness.logs.reading import Excerpt
from harness.rundir import RunDir
from harness.wall_clock import WallClock

if TYPE_CHECKING:
    from analysis.findings import FaultRow, Result

#: The first word of features that are lines of logs, and of those that are errors of clients.
LOG, ERROR = "log", "error"
#: Different lines of the logs that a round keeps, at most.
_MOST_LINES: Final = 200
_LINE_CHARS: Final = 160
#: How much was sent and read says nothing of how it went.
_VOLUMES: Final = frozenset(
    {
        *("attempted", "ok", "warm_up", "deliveries", "acks_confirmed"),
        *("sends_before_first_ok", "clients_at_fault", "faults_effective"),
    }
)
#: Outages and recoveries that are shorter are alike.
_LEAST_S: Final = 1.0
#: Parts of a line that differ from run to run: names with digits in them, numbers, quoted texts.
_VARIABLE: Final = re.compile(
    r"""0x[0-9a-fA-F]+|"[^"]*"|'[^']*'|\[[^\]]*\]|[\w./:-]*\d[\w./:-]*""", re.ASCII
)


def features_of(run: RunDir, result: Result) -> list[str]:
    """Return the features of a round, sorted.

    Raises:
        UsageError: a document of the run is missing or damaged.
        OSError: a log cannot be read.
    """
    manifest = read_document(run.manifest, Manifest)
    metrics = read_rows(run.metrics, MetricRow)
    return sorted(
        {
            *_figures(result),
            *_errors(run),
            *_together(result.faults),
            *_usage(manifest, metrics),
            *strange_conduct(manifest, metrics),
            *_lines(run, manifest),
        }
    )


def power_of_two(amount: float) -> str:
    """Return the largest power of two that is not above an amount: 5 -> "4", 0.3 -> "0.25"."""
    return f"{2.0 ** math.floor(math.log2(amount)):g}" if amount > 0 else "0"


def masked(text: str, names: Iterable[str] = ()) -> str:
    """Return a line of a log without the parts that differ from run to run.

    Args:
        names: of clients: what one of them says is the same when another one says it.
    """
    for name in names:
        text = text.replace(name, "*")
    return " ".join(_VARIABLE.sub("*", text).split())[:_LINE_CHARS]


def _figures(result: Result) -> Iterator[str]:
    """Yield what was judged: classes in every status, counters, latencies, hangs, proofs that
    are missing."""
    for finding in result.findings:
        if finding.count:
            yield f"class {finding.cls} {finding.status}"
            yield from (f"split {finding.cls} {name}" for name, n in finding.split.items() if n)
    for name, count in (*result.exposure.items(), *result.sends.items()):
        if count and name not in _VOLUMES:
            yield f"count {name} {power_of_two(count)}"
    for name in ("p99", "max"):
        if value := result.latency_ms.get(name):
            yield f"latency {name} {power_of_two(value)} ms"
    for hang in result.hangs:
        yield f"hang {hang.kind} {masked(hang.where)}"
    for check in result.coverage:
        if not check.ok:
            yield f"not proved: {check.name}"


def _errors(run: RunDir) -> Iterator[str]:
    """Yield the names of errors that the clients reported."""
    for row in read_rows(run.names, NameRow):
        if row.kind == "error":
            yield f"{ERROR} {masked(row.text)}"


def _together(faults: Iterable[FaultRow]) -> Iterator[str]:
    """Yield each kind of fault that took effect, how long its outage and recovery took, and kinds
    that were in effect at the same time."""
    effective = [each for each in faults if each.effective]
    for fault in effective:
        yield f"fault {fault.kind}"
        for name, seconds in (("outage", fault.outage_s), ("recovery", fault.recovery_s)):
            if seconds:
                yield f"{name} {fault.kind} {power_of_two(max(seconds, _LEAST_S))} s"
    for one, other in combinations(effective, 2):
        if _overlap(one, other):
            yield f"at once {' + '.join(sorted((one.kind, other.kind)))}"


def _overlap(one: FaultRow, other: FaultRow) -> bool:
    first, second = sorted((one, other), key=lambda each: each.t_s)
    return first.until_s is not None and second.t_s < first.until_s


def _usage(manifest: Manifest, metrics: Iterable[MetricRow]) -> Iterator[str]:
    """Yield memory and descriptors of the largest process of each role.

    Brokers serve many rounds: what they lose shows as a new power of two in a later round.
    """
    roles = {worker.name: worker.role for worker in manifest.workers if worker.role in CLIENTS}
    most: dict[tuple[str, str], int] = {}
    for row in metrics:
        role = "node" if row.node else roles.get(row.worker, "")
        for name, amount in (
            ("memory", (row.rss_bytes or 0) >> 20),
            ("descriptors", row.descriptors or 0),
        ):
            if role and amount:
                most[name, role] = max(most.get((name, role), 0), amount)
    for (name, role), amount in most.items():
        yield f"{name} {role} {power_of_two(amount)}{' MiB' if name == 'memory' else ''}"


def _lines(run: RunDir, manifest: Manifest) -> list[str]:
    """Return the warnings and errors in the logs of clients and brokers during the round."""
    clock = WallClock.read_from(run)
    if clock is None:
        return []
    begin_ns, end_ns = clock.wall_ns(manifest.epoch_ns), clock.wall_ns(manifest.last_ns)
    names = sorted((worker.name for worker in manifest.workers), key=len, reverse=True)
    found: dict[str, None] = {}
    for file in log_files(run):
        for line in _severe(file, names, begin_ns, end_ns):
            found[f"{LOG} {'broker' if file.is_node else 'client'} {line}"] = None
            if len(found) == _MOST_LINES:
                return [*found]
    return [*found]


def _severe(file: LogFile, names: Sequence[str], begin_ns: int, end_ns: int) -> Iterator[str]:
    """Yield the masked lines of one log that are a warning or worse."""
    if file.stamps:
        for entry in Excerpt(file.path, file.stamps, begin_ns, end_ns):
            if entry.severe:
                yield masked(entry.said, names)
