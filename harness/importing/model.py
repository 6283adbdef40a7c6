"""The file import.yaml: what the rows of an import do not say of themselves.

What is not said counts as not known: a class that rests on it is suspect or not looked for, never
passed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from harness.durations import Seconds
from harness.scenario.part import Name, Part
from harness.validation import file_schema

TimeUnit = Literal["ns", "us", "ms", "s"]
Statement = Literal[
    "all_sends", "producers_ended", "cluster_recovered", "only_writer", "all_deliveries", "drained"
]
_UNIT_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
#: Arrays by stream are made for every bucket.
MAX_STREAMS: Final = 100_000


def _moment(value: object) -> object:
    """A whole number in the unit of `ImportFile.times`, or a time with its zone as YAML reads
    it."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("has no zone: write 2026-01-31T12:00:00Z")
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("must be a time as 2026-01-31T12:00:00Z, or a whole number above 0")


Moment = Annotated[
    Any,
    BeforeValidator(_moment),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "format": "date-time"}]}
    ),
]


class ImportedProducer(Part):
    """Settings of a producer. null: not known."""

    acks: Literal["all", "leader", "none"] | None = Field(
        None,
        description="all: an acknowledged message is on at least two replicas (acks=all, min.insync.replicas "
        "of 2 or more, no unclean election; Pulsar's ack quorum); leader: on one; none: acknowledged unseen",
    )
    idempotence: bool | None = Field(
        None, description="nothing is stored twice: idempotent producer, broker deduplication"
    )
    order: bool | None = Field(
        None,
        description="the messages of a lane keep their order; not said: as idempotence, if that is true",
    )
    deadline: Seconds | None = Field(
        None,
        gt=0,
        description="after which an open send hangs: the client's own timeout, and some seconds",
    )
    results: Literal["checked", "ignored", "resent"] | None = Field(
        None, description="what the application does with the result of a send"
    )


class AllProducers(ImportedProducer):
    """Settings of all producers, and what is otherwise with some. null: not known."""

    each: dict[int, ImportedProducer] = Field(
        default_factory=dict,
        description="by number of a producer (column instance), what is otherwise with this one; what is not "
        "said of it is as with all",
    )

    def one(self, number: int) -> ImportedProducer:
        """Settings of one producer."""
        own = self.each.get(number, ImportedProducer())
        return self.model_copy(update=own.model_dump(exclude_unset=True))

    def key_of(self, name: str, number: int) -> str:
        """Where it is stated, or would be: ``producers.each.2.acks``."""
        own = number in self.each and name in self.each[number].model_fields_set
        return f"producers.each.{number}.{name}" if own else f"producers.{name}"


class GroupSettings(Part):
    """A consumer group, subscription or queue reader."""

    topics: list[Name] = Field(min_length=1, description="topics that it subscribes to")
    subscription: (
        Literal["group", "exclusive", "failover", "shared", "key_shared", "queue"] | None
    ) = Field(None, description="default: the one of the system")
    settle: Literal["auto", "ack", "cumulative", "transacted", "none"] | None = Field(
        None, description="how messages are settled; needed for queues"
    )
    from_start: bool | None = Field(
        None,
        description="it began at the first position, or at the one that its first assign event names",
    )
    acks_confirmed: bool | None = Field(
        None, description="an ack-confirmed event is the broker's answer"
    )
    ack_timeout: Seconds | None = Field(
        None,
        description="an unsettled message may come again after this; 0 = never because of time",
    )
    batch_index_acks: bool | None = Field(
        None, description="single messages of a batch are acknowledged, at client and broker"
    )
    committed_only: bool | None = Field(None, description="it must not see aborted transactions")


class LaneRange(Part):
    """Lanes whose place is fixed before the send."""

    topic: Name = Field(description="producers that these lanes belong to")
    mode: Literal["partition", "key"] = Field(
        description="partition: lane first + i is partition i; key: all messages of a lane share a partition"
    )
    first: int = Field(0, ge=0, description="number of the first lane")
    count: int | None = Field(
        None, ge=1, description="of lanes; mode partition: the topic's partitions"
    )


class Statements(Part):
    """The facts that hold for an import. A fact that is left out or false is unknown."""

    all_sends: bool = Field(
        False, description="every call of a producer has its row, also of one that died"
    )
    producers_ended: bool = Field(
        False,
        description="every producer was closed or dead before the end of the log was looked up",
    )
    cluster_recovered: bool = Field(
        False, description="every partition had a leader and took messages when the log was read"
    )
    only_writer: bool = Field(False, description="no other program wrote to the topics")
    all_deliveries: bool = Field(False, description="every event of every consumer has its row")
    drained: bool = Field(
        False,
        description="every group had the time to read to the end of its partitions, and got there",
    )


class FaultStep(Part):
    """A fault that somebody injected."""

    kind: str = Field(min_length=1, max_length=100, description="description, in your words")
    target: str = Field("", max_length=200, description="what it hit")
    start: Moment = Field(description="when it took effect")
    end: Moment | None = Field(None, description="not said: it lasts to the end")
    effective: bool = Field(False, description="it is known to have taken effect")
    confirmed_acks: Literal["kept", "at-risk", "unknown"] = Field(
        "unknown", description="its effect on acknowledgements that a broker had confirmed"
    )


class ColumnNames(Part):
    """By table, our column and theirs."""

    sends: dict[str, str] = Field(default_factory=dict, description="of the table sends")
    log: dict[str, str] = Field(default_factory=dict, description="of the table log")
    deliveries: dict[str, str] = Field(default_factory=dict, description="of the table deliveries")
    log_bounds: dict[str, str] = Field(default_factory=dict, description="of the table log_bounds")


class IgnoredColumns(Part):
    """By table, columns of theirs that are not read."""

    sends: list[str] = Field(default_factory=list, description="of the table sends")
    log: list[str] = Field(default_factory=list, description="of the table log")
    deliveries: list[str] = Field(default_factory=list, description="of the table deliveries")
    log_bounds: list[str] = Field(default_factory=list, description="of the table log_bounds")


class ImportFile(Part):
    """The whole file."""

    system: str = Field(description="kafka, nats, pulsar, qpid or rabbitmq")
    topics: dict[Name, Annotated[int, Field(ge=1, le=MAX_STREAMS)]] = Field(
        min_length=1, description="every topic and how many partitions it has; of a queue 1"
    )
    about: str = Field("", max_length=300, description="one line for the report")
    times: TimeUnit | None = Field(
        None,
        description="unit of times that are numbers; not said: ns, unless the column has another name",
    )
    columns: ColumnNames = Field(
        default_factory=ColumnNames,
        description='our column: theirs; texts may be put together: stream: "{topic}-{partition}"',
    )
    ignore: IgnoredColumns = Field(
        default_factory=IgnoredColumns, description="columns of theirs that are not read"
    )
    producers: AllProducers = Field(
        default_factory=AllProducers,
        description="settings of the producers, which promises rest on",
    )
    groups: dict[Name, GroupSettings] = Field(
        default_factory=dict, description="every consumer group"
    )
    lanes: list[LaneRange] = Field(
        default_factory=list, description="not said: the client chose every partition"
    )
    evidence: Statements = Field(default_factory=Statements, description="known facts")
    faults: list[FaultStep] = Field(
        default_factory=list, description="what somebody injected, and when"
    )
    stall: Seconds | None = Field(
        None,
        gt=0,
        description="a group that is given nothing for longer, while messages wait, stalls",
    )

    def streams(self) -> list[str]:
        """Every topic-partition; stream id i is entry i - 1."""
        return [f"{topic}-{p}" for topic, count in self.topics.items() for p in range(count)]

    def is_stated(self, name: Statement) -> bool:
        """Return whether the file states this about its evidence."""
        return bool(getattr(self.evidence, name))

    def nanoseconds(self, moment: int | datetime) -> int:
        """A time of the file in nanoseconds."""
        if isinstance(moment, datetime):
            whole, micros = int(moment.replace(microsecond=0).timestamp()), moment.microsecond
            return whole * 1_000_000_000 + micros * 1_000
        return moment * self.unit_ns

    @property
    def unit_ns(self) -> int:
        """Nanoseconds of the unit in which the file gives times."""
        return _UNIT_NS[self.times or "ns"]


def import_schema() -> JsonSchemaValue:
    """JSON Schema of an import.yaml, for editors."""
    about = "The import.yaml of an import; docs/reference/import.md explains every key."
    return file_schema(ImportFile, "import", about)
