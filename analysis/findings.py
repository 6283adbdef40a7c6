"""The result of judging as data: findings, witnesses, faults and the verdict, as result.json holds
them.

`Result.document()` is the public JSON (schema_version 1). The terminal, the HTML page, JUnit,
`trace` and `compare` are made from it and from nothing else, so whatever one of them shows, a
script can read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from harness.rundir import Document

SCHEMA_VERSION = 1
#: Witnesses kept of a class, the earliest of the largest episodes first.
MAX_WITNESSES = 20
#: How a reason in `Result.untested` begins where the load cannot have what the class is about.
NOT_APPLICABLE = "not applicable: "


class Status(StrEnum):
    """The status of a class in a run. ``SUSPECT`` means that the evidence is incomplete; it counts
    as unknown.
    """

    VIOLATION = "violation"
    PERMITTED = "permitted"
    APPLICATION_ERROR = "application-error"
    SUSPECT = "suspect"
    INFO = "info"


class Verdict(StrEnum):
    """The verdict on a run."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNear:
    """A fault and how far away in time something was: ``after_s`` after its inject (negative:
    before).

    Of a leader change that followed it, ``is_target``: it hit the deposed leader, or the stream.
    The change itself is recorded by the brokers; that the fault brought it about rests on the time,
    and on that. False: on the time alone; None: not asked, as of a witness.
    """

    fault: int
    kind: str
    target: str
    after_s: float
    is_target: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStep:
    """One element of the sequence around a witness, in log (or delivery) order.

    ``mark``: "" as expected, ``!`` the witness itself, ``+`` a repeat, ``-`` missing (no position).
    """

    seq: int
    attempt: int
    position: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The leader change that caused hits of a class, as the brokers recorded who led (verdicts.md,
    Cause).

    ``named``: False = none can be told, and ``sentence`` says why; the rest is empty then.
    ``term``: leader epoch (Kafka), ledger (Pulsar); None = it has no number. ``late``: acknowledged
    by a leader that had been deposed. ``acked_s``: first and last acknowledgement, since start of
    load. ``by_time``: nothing but the time tells the leaders, as in a queue without positions.
    """

    sentence: str
    named: bool
    count: int
    episodes: int
    stream: str
    # where they were acknowledged, or have their first copy: "37818" or "37818 to 51369"
    places: str = ""
    leader: str = ""
    term: int | None = None
    next_leader: str = ""
    next_term: int | None = None
    next_first: str = ""  # where the next term begins
    changed_s: float | None = None  # since start of load; None = not known
    moved_by: FaultNear | None = None
    late: bool = False
    unclean: bool = False
    acked_s: tuple[float, float] | None = None
    by_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One concrete message (or call, or window) that shows the class."""

    message: str  # "<instance>/<lane>/<seq>" or with ".<attempt>"; `trace` takes it
    where: str  # lane text and stream, e.g. "orders-3"
    sentence: str  # one line for people
    outcome: str
    error: str
    acked_position: str
    t_s: float  # since start of load
    around: tuple[SequenceStep, ...] = ()
    near: FaultNear | None = None
    symptoms: tuple[str, ...] = ()
    cause: str = ""  # the sentence of its `Cause`


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Share of a class's episodes inside a fault kind's windows, compared with chance.

    Asked of episodes whose cause is not named, of all faults together (``kind`` empty), then of
    each kind. ``p_value``: share of 1,000 circular shifts of the schedule with at least as many
    episodes inside; None with ``not_attributable``: ``why_not`` says what speaks against it.
    ``p_adjusted``: the p value of a kind, adjusted by Holm over all kinds that were asked.
    """

    kind: str
    inside: int
    episodes: int
    chance_share: float
    p_value: float | None
    not_attributable: bool
    why_not: str = ""
    p_adjusted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCount:
    """Messages of a class in one partition, topic or queue, by time.

    ``stream``: empty for ``streams`` others taken together. ``windows``: (start in s since the
    start of load, messages), `Finding.window_s` wide, only those with any; a message without a time
    is in none.
    """

    stream: str
    count: int
    windows: list[tuple[int, int]]
    streams: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCount:
    """Messages of a class that belong to a fault: if their cause is named, the fault that the
    leader change followed; if not, the fault in whose window their episode began, as attribution
    draws it.

    Of several windows, the nearest fault's counts. ``fault``: its id, 0 = no window.
    """

    fault: int
    count: int
    episodes: int
    first_s: float  # since start of load
    last_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A class with everything found of it."""

    cls: str
    status: Status
    count: int
    sentence: str
    promise: str  # the promise it breaks and where that promise comes from
    evidence: str  # what was checked, or what is missing when suspect
    episodes: int = 0
    split: dict[str, int] = field(default_factory=dict)  # e.g. prefix/middle/tail, or by cause
    window_s: int = 1
    by_stream: tuple[StreamCount, ...] = ()  # most messages first
    by_fault: tuple[FaultCount, ...] = ()  # in order of time
    # most messages first; empty: not asked of this class, or nothing recorded
    causes: tuple[Cause, ...] = ()
    caused_episodes: int = 0  # episodes of which every message has a cause with a name
    attribution: tuple[Attribution, ...] = ()
    witnesses: tuple[Witness, ...] = ()


def title_of(threshold: str, *, outside_faults: bool) -> str:
    """``latency_p99 outside faults``."""
    return f"{threshold} outside faults" if outside_faults else threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The most that a figure may be, and what it was.

    ``unit``: s, ratio or count. ``measured``: None = not measured. ``held``: None = it cannot be
    said.
    """

    name: str  # key of require
    outside_faults: bool  # of the load without the time of faults
    at_most: float
    measured: float | None
    unit: str
    held: bool | None
    text: str

    @property
    def title(self) -> str:
        return title_of(self.name, outside_faults=self.outside_faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """A fault as a result shows it; times in seconds since the start of load, None = not known."""

    id: int
    kind: str
    target: str
    t_s: float
    until_s: float | None
    effective: bool
    healed: bool
    evidence: str
    outage_s: float | None = None  # longest gap without an ok that overlaps it
    recovery_s: float | None = None  # from heal to the first ok on every stream again
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class ValidityCheck:
    """One thing a verdict rests on."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HangRow:
    """A worker that was seen to hang, stall or not end during the run, with the call that waits.

    ``judged``: the class that judging found for a stall, or why nothing is violated.
    """

    worker: str
    kind: str  # hang, stall, stuck
    t_s: float  # when it was noticed
    text: str
    where: str = ""  # the innermost call into the client, with file and line
    thread: str = ""
    stack: list[str] = field(default_factory=list)
    stacks: str = ""  # file with every stack, in the run's folder
    judged: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """Series of ``step_s``-wide windows from ``start_s``; latency in ms, as `Result.latency_ms`."""

    start_s: float
    step_s: float
    intended: list[int] = field(default_factory=list)
    ok: list[int] = field(default_factory=list)
    fail: list[int] = field(default_factory=list)
    info: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    p50_ms: list[float | None] = field(default_factory=list)
    p99_ms: list[float | None] = field(default_factory=list)
    delay_p99_ms: list[float | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU and memory of one process over time: equal lists. ``cpu``: cores in use since the sample
    before; None where that is not known (the first sample, a restart)."""

    name: str
    role: str  # node, client
    t_s: list[float]
    cpu: list[float | None]
    rss_bytes: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRecovery:
    """How long an application took to be as fast as before a fault.

    Attributes:
        fault: id of the fault.
        recovery_s: from its injection to the first output after which the delay was usual until the
            next fault; 0 = it was never unusual; None = not before the next fault, or not known.
    """

    fault: int
    recovery_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFlow:
    """An application over time, in steps of ``step_s`` from the start of the load.

    Attributes:
        backlog: acknowledged inputs without an output at the end of each step; empty if times of
            outputs are not known, or if an input may have no output.
        p99_ms: 99 % of the outputs stored in a step had a delay of at most this; None = no output.
        usual_ms: the largest delay that counts as usual: 100 ms more than twice the median of
            ``p99_ms`` before the first fault that took effect; None = not known.
        recoveries: one for each fault that took effect.
    """

    step_s: float
    backlog: list[int] = field(default_factory=list)
    p99_ms: list[float | None] = field(default_factory=list)
    usual_ms: float | None = None
    recoveries: list[ApplicationRecovery] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationResult:
    """The figures of an application under test.

    Attributes:
        outputs: outputs that name an input; ``outputs_again``: those that are not the first of
            their input.
        nameless: outputs that name no input.
        delay_ms: p50, p99, max: from when an input was due until brokers stored its first output.
        lives: processes that were started; ``killed`` by faults, ``ended_by_itself``.
        drained: it had processed all input in the end.
        flow: backlog, delay and recoveries over time; None in results of earlier versions.
    """

    name: str
    source: str
    to: str
    instances: int
    promise: str
    makes: str
    outputs: int = 0
    outputs_again: int = 0
    nameless: int = 0
    delay_ms: dict[str, float] = field(default_factory=dict)
    lives: int = 0
    killed: int = 0
    ended_by_itself: int = 0
    drained: bool = False
    flow: ApplicationFlow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything said of a run."""

    run_id: str
    scenario: str
    variant: str
    seed: int
    verdict: Verdict
    exit_code: int
    reasons: list[str]
    sends: dict[str, int]  # attempted, ok, fail, info, aborted, info_stored, info_not_stored, open
    rate: dict[str, float]  # target_per_s, achieved_per_s, offered_per_s
    latency_ms: dict[str, float]  # p50, p90, p99, p999, max; send_delay_p99
    no_intended_times: str = ""  # why latencies of an import, or some of them, are from the call on
    percentiles: list[tuple[float, float]]  # (quantile, ms)
    findings: list[Finding]
    faults: list[FaultRow]
    # class -> why nothing found proves nothing
    untested: dict[str, str] = field(default_factory=dict)
    hangs: list[HangRow] = field(default_factory=list)
    timeline: TimeSeries
    coverage: list[ValidityCheck]
    thresholds: list[Threshold] = field(default_factory=list)  # in the order of the scenario's keys
    # sends, log, deliveries; log_probes: rows of the log that are the harness's own probes
    rows: dict[str, int]
    given: dict[str, int] = field(
        default_factory=dict
    )  # group -> messages handed to it, each time; no probes
    # group -> how many of them repeat a message
    given_again: dict[str, int] = field(default_factory=dict)
    given_delay_ms: dict[str, dict[str, float]] = field(
        default_factory=dict
    )  # group -> p50, p99, max: from when a message was due until the group was first given it
    applications: list[ApplicationResult] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    transactions: dict[str, float] = field(
        default_factory=dict
    )  # committed, aborted, unknown; commit_ms_p50 ...
    exposure: dict[str, int] = field(default_factory=dict)  # docs/explanation/anomalies.md
    duration_s: dict[str, float]  # phases, judging
    environment: dict[str, str]
    command: str
    about: str = ""  # what the scenario says of itself, or of the variant
    started: str = ""  # start of load, ISO 8601

    def document(self) -> Document:
        """The public JSON document."""
        document: Document = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        for finding in document["findings"]:
            finding["class"] = finding.pop("cls")
        return document

    def violations(self) -> list[Finding]:
        """Broken promises, each of which makes the verdict *fail*, in the order of the findings."""
        return [f for f in self.findings if f.status is Status.VIOLATION and f.count]

    def missed(self) -> list[Threshold]:
        """Thresholds that were not held, which makes the verdict *fail* too."""
        return [each for each in self.thresholds if each.held is False]

    def excused(self) -> list[Finding]:
        """Return the findings that neither the broker nor the client is to blame for: those that
        are permitted, and the application's.
        """
        return [f for f in self.findings if f.status in _EXCUSED and f.count]


_EXCUSED = (Status.PERMITTED, Status.APPLICATION_ERROR)
