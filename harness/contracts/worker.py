"""spec.json: what a worker process is started with (docs/worker-protocol.md)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

PROTOCOL_VERSION: Final = 1
#: The first whose part a spec has is that of the process.
ROLES: Final = ("pipeline", "producer", "consumer", "audit")


class SpecPart(BaseModel):
    """What is None is not written: the worker does as the protocol says."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TopicPart(SpecPart):
    address: str
    partitions: int


class ClientPart(SpecPart):
    library: str
    version: str
    options: dict[str, str]


class LanePart(SpecPart):
    topic: str
    mode: str
    first: int
    count: int
    partitions: int


class TransactionsPart(SpecPart):
    id: str
    messages: int
    every_s: float
    abort_every: int


class ProducerPart(SpecPart):
    instance: int
    lane_groups: list[LanePart]
    turns: list[int] | None = None
    rate_per_s: float
    rate_profile: list[tuple[int, float]] | None = None
    payload_bytes: int
    payload_max_bytes: int
    payload_sizes: list[int] | None = None
    payload_compressible: int | None = None
    headers: list[tuple[str, str]] | None = None
    when_full: str = "wait"
    warm_up_s: float
    load_s: float
    results: str = "checked"
    calls: str = "async"
    batch: int = 1
    threads: int = 1
    transactions: TransactionsPart | None = None
    call_deadline_s: float
    capture: bool = True


class ConsumerPart(SpecPart):
    session: int
    group: str
    topics: list[str]
    commit_every_s: float
    receive: str = "loop"
    work_s: float = 0.0
    settle: str = "auto"
    nack_every: int = 0
    per_transaction: int = 0
    rollback_every: int = 0


class PipelinePart(SpecPart):
    """Beside ``producer`` and ``consumer``, its halves. Options of ``client`` are those of the first."""

    consumer_options: dict[str, str]


class AuditPart(SpecPart):
    reader: int
    streams: list[str]
    isolation: str
    stall_s: float


class ProcessSpec(SpecPart):
    """One of ``producer``, ``consumer``, ``audit`` says what it does; a pipeline has the first two beside its
    own. No secrets: it is kept with the run."""

    protocol: int = PROTOCOL_VERSION
    run_id: str
    run_tag: int
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

    def document(self) -> dict[str, Any]:
        role = next(role for role in ROLES if getattr(self, role) is not None)
        return {**self.model_dump(mode="json", exclude_none=True), "role": role}
