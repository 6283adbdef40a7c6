"""The spec that a worker process is started with, and the lines that it says
(docs/worker-protocol.md)."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.rundir import Document

PROTOCOL_VERSION: Final = 1
#: The first whose part a spec has is the role of the process.
ROLES: Final = ("pipeline", "producer", "consumer", "audit")


#: A number that rows have 32 bits for.
Number32 = Annotated[int, Field(ge=0, lt=2**32)]


class SpecPart(BaseModel):
    """A part of a worker's spec. A field that is None is not written, and the worker uses the
    protocol's default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class TopicPart(SpecPart):
    """A topic of the spec: its address and its number of partitions."""

    address: str
    partitions: int


class ClientPart(SpecPart):
    """The client of the spec: library, version and options."""

    library: str
    version: str
    options: dict[str, str]


class LanePart(SpecPart):
    """A group of lanes of the spec."""

    topic: str
    mode: str
    first: Number32
    count: int
    partitions: int
    key: str | None = None


class TransactionsPart(SpecPart):
    """The transactions of a producer or pipeline."""

    id: str
    messages: int
    every_s: float
    abort_every: int


class ProducerPart(SpecPart):
    """The section of a producer (docs/worker-protocol.md)."""

    instance: Number32
    lane_groups: list[LanePart]
    turns: list[int] | None = None
    rate_per_s: float
    rate_profile: list[tuple[int, float]] | None = None
    payload_bytes: int
    payload_max_bytes: int
    payload_sizes: list[int] | None = None
    payload_compressible: int | None = None
    payload_template: str | None = None
    payload_charset: str | None = None
    headers: list[tuple[str, str]] | None = None
    header_templates: list[tuple[str, str]] | None = None
    when_full: str = "wait"
    warm_up_s: float
    load_s: float
    results: str = "checked"
    calls: str = "async"
    batch: int = 1
    threads: int = 1
    deliver_after_s: float | None = None
    transactions: TransactionsPart | None = None
    call_deadline_s: float
    capture: bool = True


class PausesPart(SpecPart):
    """The pauses of a consumer: how often, and how long each."""

    every_s: float
    for_s: float


class SeeksPart(SpecPart):
    """The seeks of a consumer: how often, and how many messages back."""

    every_s: float
    back: int


class ConsumerPart(SpecPart):
    """The section of a consumer (docs/worker-protocol.md)."""

    session: Number32
    group: str
    topics: list[str]
    commit_every_s: float
    receive: str = "loop"
    work_s: float = 0.0
    settle: str = "auto"
    nack_every: int = 0
    per_transaction: int = 0
    rollback_every: int = 0
    pattern: str | None = None
    reader: bool | None = None
    pauses: PausesPart | None = None
    seeks: SeeksPart | None = None

    @property
    def follows_load(self) -> bool:
        """What it does ends with the load, so it learns when that is over."""
        return self.pauses is not None or self.seeks is not None


class PipelinePart(SpecPart):
    """Besides ``producer`` and ``consumer``, its halves. Options of ``client`` are the first
    one's."""

    consumer_options: dict[str, str]


class AuditPart(SpecPart):
    """The section of a reader of the log (docs/worker-protocol.md)."""

    reader: Number32
    streams: list[str]
    isolation: str
    stall_s: float
    follow: bool | None = None
    later: list[str] | None = None


class ProcessSpec(SpecPart):
    """One of ``producer``, ``consumer``, ``audit`` says what it does; a pipeline has the first two
    besides its own. No secrets: it is kept with the run."""

    protocol: int = PROTOCOL_VERSION
    run_id: str
    run_tag: Number32
    system: str
    name: str
    capture_dir: str
    bootstrap: str
    admin_url: str = ""
    topics: dict[str, TopicPart]
    streams: dict[str, int]
    client: ClientPart
    producer: ProducerPart | None = None
    consumer: ConsumerPart | None = None
    pipeline: PipelinePart | None = None
    audit: AuditPart | None = None

    @property
    def role(self) -> str:
        """The one role of this process: producer, consumer, pipeline or audit."""
        return next(role for role in ROLES if getattr(self, role) is not None)

    @property
    def numbers(self) -> dict[str, int]:
        """``instance`` of a process that sends, ``session`` of one that reads, ``reader`` of the
        audit."""
        found: dict[str, int] = {}
        if self.producer:
            found["instance"] = self.producer.instance
        if self.consumer:
            found["session"] = self.consumer.session
        if self.audit:
            found["reader"] = self.audit.reader
        return found

    def document(self) -> Document:
        """Return the JSON form that the worker reads, without keys that have no value."""
        return {**self.model_dump(mode="json", exclude_none=True), "role": self.role}


class Said(BaseModel):
    """A line of a worker, its time on CLOCK_MONOTONIC. A worker may say more than is known here."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    t_ns: int = 0


class ReadyLine(Said):
    """The line of a worker that is connected and can start."""

    client_version: str = ""


class StatsLine(Said):
    """The newest numbers of a process, ``stats`` and ``done``: each role has its own, the others
    stay 0.

    ``epoch``: 0 = it has no assignment yet. ``positions``: stream -> next position. ``exposure``:
    how much of the trigger of a bug it met.
    """

    cpu_s: float = 0.0
    frozen_ns: int = 0
    attempted: int = 0
    ok: int = 0
    fail: int = 0
    info: int = 0
    open: int = 0
    aborted: int = 0
    resent: int = 0
    blocked_ns: int = 0
    late_max_ns: int = 0
    delivered: int = 0
    epoch: int = 1
    positions: dict[str, int] = Field(default_factory=dict)
    read: int = 0
    exposure: dict[str, int] = Field(default_factory=dict)


class ErrorLine(Said):
    """The line of a worker about an error. ``fatal``: the worker ends."""

    name: str = ""
    text: str = ""
    fatal: bool = False
    hint: str = ""
