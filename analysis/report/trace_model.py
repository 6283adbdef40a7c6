"""Dataclasses of a traced message: its sends, places in the log, deliveries and faults."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.findings import FaultRow, HangRow
from harness.logs import LogLines


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAttempt:
    """One call of the client. Times are seconds into the load; ``t_done_s`` None: no outcome
    ever."""

    attempt: int
    kind: str
    t_intended_s: float | None  # None: the import has none
    t_start_s: float
    t_done_s: float | None
    outcome: str
    late_outcome: str
    error: str
    acked_at: str  # "orders-3@41203"; empty if the client named no place


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A row of the log next to the message; ``mark`` as in `analysis.findings.SequenceStep`."""

    position: str  # as its system writes it: "41203", "12:812", "12:812:3"
    message: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An output that the pipeline of a ``group`` made from a message, and where it is."""

    group: str
    message: str
    place: str
    txn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One place in the log that holds the message. ``made_of``: place and name of the input that a
    pipeline made it of; ``made_into``: what pipelines made of it."""

    place: str
    attempt: int
    check: str
    txn: str
    t_broker_s: float | None  # the broker's own timestamp, as seconds into the load
    around: tuple[Neighbour, ...]
    made_of: str = ""
    made_into: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AckedPlace:
    """The acknowledged place of a message that is not in the log, and what lies there."""

    place: str
    holder: str  # the message at it, marked "!" in ``around``; empty: no row has this position
    around: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The message handed to a consumer. ``t_committed_s``: when the session's commit covered it, or
    its acknowledgement was confirmed."""

    session: int
    consumer: str
    subscription: str
    t_s: float
    epoch: int
    place: str
    redelivery: int
    check: str
    t_committed_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotGiven:
    """A group that reads the topic of a stored message, and has no delivery of it in its journals.

    Attributes:
        members: names of its consumers.
        incomplete: members whose journal is not whole, so that one of them may have been given the
            message.
    """

    group: str
    members: tuple[str, ...]
    incomplete: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEvent:
    """An event that a worker reported about its client: a connection lost or restored, an
    assignment."""

    t_s: float
    worker: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything the capture says of a message."""

    run_id: str
    message: str
    asked: str
    lane: str  # what the lane number means: "orders-3", "orders/k000017", "orders"
    producer: str
    sends: tuple[SendAttempt, ...]
    log: tuple[Stored, ...]
    log_text: str  # what an empty ``log`` means: absent, only unread, or that a queue keeps none
    acked_places: tuple[AckedPlace, ...] = ()  # of a message that is not in the log
    deliveries: tuple[Delivered, ...]
    not_given: tuple[NotGiven, ...] = ()
    faults: tuple[FaultRow, ...]
    classes: tuple[str, ...] = field(default=())  # classes that name it as a witness, if judged
    # what the broker calls its producer, where the client says it
    client_names: tuple[str, ...] = ()
    events: tuple[ClientEvent, ...] = ()  # of its clients, around it
    hangs: tuple[HangRow, ...] = ()  # of its clients, with the stack of the call that waits
    logs: LogLines = field(default_factory=LogLines)
    # the leader change that lost or repeated it, as `analysis.findings.Cause` says it
    cause: str = ""
