"""The columns of an import, described once: what is read, what is allowed, what an empty field
means.

Reading (`harness.importing.values`), error messages and docs/reference/import.md are made from
these rows. Names and meanings come from the sealed form (`harness.records`); where the sealed form
has a number for a text (streams, errors, outcomes), an import has the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal

from harness.records import Check, Event, Kind, Outcome, Txn

Reads = Literal["whole", "choice", "text", "stream", "time"]
#: Kernels size arrays by the highest lane; a key of a customer is to be numbered, not hashed.
MAX_LANE: Final = 999_999
MAX_NUMBER: Final = 2**62
_MAX_OWNER: Final = 2**32 - 1
#: An identity that is not there; rows that need one are refused (`harness.importing.rows`).
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Field:
    """A column of an import.

    Attributes:
        empty: what an empty field, and a column that is left out, mean; None = it must have a
            value.
        needed: the column must be there.
        low, high: of a whole number, both allowed.
        choices: by the word that is written; the number is allowed, too.
    """

    name: str
    reads: Reads
    doc: str
    needed: bool = False
    empty: int | None = None
    low: int = 0
    high: int = MAX_NUMBER
    choices: Mapping[str, int] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        """Return which values the column may have, for messages and the reference page."""
        if self.reads == "choice":
            return ", ".join(self.choices)
        if self.reads == "text":
            return "text"
        if self.reads == "stream":
            return "TOPIC-PARTITION of a topic in import.yaml"
        if self.reads == "time":
            return "a time with its zone as 2026-01-31T12:00:00.123Z, or a whole number above 0"
        return f"a whole number from {self.low} to {_bound(self.high)}"


def _bound(value: int) -> str:
    return "2^62" if value == MAX_NUMBER else "2^32 - 1" if value == _MAX_OWNER else str(value)


def _words(kinds: type[IntEnum], *left_out: str) -> Mapping[str, int]:
    names = {each.name.lower().replace("_", "-"): int(each) for each in kinds}
    return {name: number for name, number in names.items() if name not in left_out}


_OUTCOMES: Final = _words(Outcome, "none")
_CHECKS: Final = _words(Check)


def _whole(name: str, doc: str, **more: int | bool | None) -> Field:
    return Field(name, "whole", doc, **more)  # type: ignore[arg-type]


def _identity(empty: int | None) -> tuple[Field, ...]:
    return (
        _whole("instance", "producer; one that was started again is a new one", needed=True, empty=empty,
               low=1 if empty is None else 0, high=_MAX_OWNER),
        _whole("lane", "what the producer keeps in order: a partition, a key, a topic", needed=True,
               empty=empty, high=MAX_LANE),
        _whole("seq", "0, 1, 2 ... without gaps in (instance, lane)", needed=True, empty=empty),
        _whole("attempt", "0, or the number of the application's own re-send; if sends has any, log and "
               "deliveries need it", empty=0, high=65_535),
        Field("kind", "choice", "probes are left out of everything", empty=int(Kind.LOAD),
              choices=_words(Kind)),
    )  # fmt: skip


_LEDGER: Final = (
    _whole("ledger", "Pulsar: the ledger id", empty=0, low=-1),
    _whole("batch", "Pulsar: index in the batch", empty=0, low=-1, high=2**31 - 1),
)
_CLIENT: Final = (
    Field("client_name", "text", "the client's own name of the producer", empty=0),
    _whole("client_seq", "the client's own sequence id", empty=0, low=-1),
)
_CHECK: Final = Field(
    "check", "choice", "what the reader found in the payload", empty=int(Check.OK), choices=_CHECKS
)

SENDS: Final = (
    *_identity(None),
    Field("outcome", "choice", "fail = certainly not stored; info = unknown", needed=True,
          choices=_OUTCOMES),
    Field("t_start_ns", "time", "just before the client was called", needed=True),
    Field("t_done_ns", "time", "when the client answered; empty = never", needed=True, empty=0),
    Field("t_intended_ns", "time", "when it was due; left out: when the client was called", empty=0),
    Field("late_outcome", "choice", "a second answer after the first", empty=0, choices=_OUTCOMES),
    Field("error", "text", "class of the client's error, no text of its own for each message", empty=0),
    Field("stream", "stream", "where the acknowledgement says it is", empty=0),
    _whole("position", "offset or entry id of the acknowledgement", empty=-1, low=-1),
    *_LEDGER,
    *_CLIENT,
)  # fmt: skip
LOG: Final = (
    Field("stream", "stream", "where it was found", needed=True),
    _whole("position", "offset or entry id", needed=True, empty=NONE),
    *_LEDGER,
    *_identity(NONE),
    Field("t_intended_ns", "time", "from the payload", empty=0),
    _whole("broker_time_ms", "the broker's timestamp, Unix milliseconds", empty=-1, low=-1),
    Field("txn", "choice", "state of its transaction", empty=int(Txn.NONE), choices=_words(Txn)),
    _CHECK,
    *_CLIENT,
)
DELIVERIES: Final = (
    _whole("session", "consumer; one that was started again is a new one", needed=True, low=1,
           high=_MAX_OWNER),
    Field("subscription", "text", "group of the session, as in import.yaml", empty=0),
    _whole("ordinal", "0, 1, 2 ... in the session; left out: the order of the rows", empty=NONE),
    Field("event", "choice", "what happened", empty=int(Event.DELIVER), choices=_words(Event, "output")),
    Field("t_ns", "time", "when the application saw it", needed=True),
    _whole("epoch", "grows with every assignment of the session", empty=1, high=_MAX_OWNER),
    Field("stream", "stream", "empty = the event concerns all streams of the session", needed=True, empty=0),
    _whole("position", "of the message; commit, seek: the next one; assign: where reading starts",
           needed=True, empty=-1, low=-1),
    *_LEDGER,
    *_identity(NONE),
    _whole("redelivery", "count or flag that the client shows; -1 none", empty=-1, low=-1, high=2**31 - 1),
    _whole("txn_id", "transaction of the consumer", empty=0),
    _CHECK,
)  # fmt: skip
LOG_BOUNDS: Final = (
    Field("stream", "stream", "", needed=True),
    _whole("begin", "first position that the log still holds (Pulsar: 0)", needed=True),
    _whole(
        "end", "its end when all producers had ended: next offset (Pulsar: messages)", needed=True
    ),
    _whole("read_to", "how far it was read; the same as end if all of it", needed=True),
)
TABLES: Final[Mapping[str, tuple[Field, ...]]] = {
    "sends": SENDS,
    "log": LOG,
    "deliveries": DELIVERIES,
    "log_bounds": LOG_BOUNDS,
}
#: Events by which a consumer says what it has dealt with.
SETTLEMENTS: Final = (Event.ACK_CONFIRMED, Event.COMMIT)
