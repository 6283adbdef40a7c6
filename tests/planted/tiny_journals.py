"""Consumers, faults and clients of a tiny history; `tests.planted.tiny.History` adds sends and the
log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from harness.contracts.rows import LaneMode
from harness.records import SEALED, Event, Kind

EPOCH_NS = 1_000_000_000_000  # CLOCK_MONOTONIC at start of load
TICK_NS = 1_000_000

Row = dict[str, Any]


@dataclass
class Journals:
    """Rows of the tables, a clock, and the verbs of consumers."""

    mode: LaneMode = "partition"
    system: str = "kafka"
    rows: dict[str, list[Row]] = field(default_factory=lambda: {t: [] for t in SEALED})

    def __post_init__(self) -> None:
        self.now_ns = EPOCH_NS
        self._next: dict[int, int] = {}  # stream -> next position
        self._epoch: dict[int, int] = {}  # session -> epoch
        self._owned: dict[int, set[int]] = {}
        self._read: dict[tuple[int, int], int] = {}  # (session, stream) -> next position to deliver
        self._subscription = 0
        self.faults: list[Row] = []
        self.transactions: list[Row] = []
        self.events: list[Row] = []

    def at(self, ms: float) -> Self:
        """Set the clock, milliseconds since start of load."""
        self.now_ns = EPOCH_NS + round(ms * 1e6)
        return self

    def deliver(
        self,
        *seqs: int,
        session: int = 1,
        instance: int = 1,
        partition: int = 0,
        lane: int | None = None,
        attempt: int = 0,
        kind: Kind = Kind.LOAD,
        position: int | None = None,
        redelivery: int = -1,
        at_ms: float | None = None,
    ) -> Self:
        """A session was given these messages; the first delivery of a stream assigns it if nobody
        did.

        ``position``: of the first of them; left out, each is the next copy of that message in the
        log at or after what the session read last, else its first copy.
        """
        stream = partition + 1
        if self.system == "kafka" and stream not in self._owned.get(session, set()):
            self.assign(partition, session=session)
        for seq in seqs:
            identity = self._identity(instance, lane, partition, seq, attempt, kind)
            found = self._find(session, stream, identity) if position is None else position
            self._event(
                Event.DELIVER, session, stream, found, at_ms, **identity, redelivery=redelivery
            )
            self._read[session, stream] = found + 1
            position = None if position is None else position + 1
        return self

    def assign(
        self, *partitions: int, session: int = 1, position: int = -1, at_ms: float | None = None
    ) -> Self:
        """A rebalance gave these partitions to the session: one row each, one new epoch."""
        self._epoch[session] = self._epoch.get(session, 0) + 1
        for partition in partitions:
            self._owned.setdefault(session, set()).add(partition + 1)
            self._read[session, partition + 1] = max(position, 0)
            self._event(Event.ASSIGN, session, partition + 1, position, at_ms)
        return self

    def revoke(self, *partitions: int, session: int = 1, at_ms: float | None = None) -> Self:
        for partition in partitions:
            self._owned.get(session, set()).discard(partition + 1)
            self._event(Event.REVOKE, session, partition + 1, -1, at_ms)
        return self

    def commit(
        self, position: int, partition: int = 0, *, session: int = 1, at_ms: float | None = None
    ) -> Self:
        """Commit confirmed: the group would read on from ``position``."""
        self._event(Event.COMMIT, session, partition + 1, position, at_ms)
        return self

    def acked(
        self,
        *positions: int,
        partition: int = 0,
        session: int = 1,
        at_ms: float | None = None,
        confirmed_ms: float | None = None,
        confirmed: bool = True,
    ) -> Self:
        """Messages at these positions acknowledged; confirmed at once, at ``confirmed_ms``, or
        never."""
        for position in positions:
            self._event(Event.ACK_CALLED, session, partition + 1, position, at_ms)
        for position in positions if confirmed else ():
            self._event(Event.ACK_CONFIRMED, session, partition + 1, position, confirmed_ms)
        return self

    def nack(
        self, *positions: int, partition: int = 0, session: int = 1, at_ms: float | None = None
    ) -> Self:
        """Messages at these positions refused."""
        for position in positions:
            self._event(Event.NACK, session, partition + 1, position, at_ms)
        return self

    def ends(self, *events: Event, session: int = 1, at_ms: float | None = None) -> Self:
        """The session's transaction ends (or is said to): commit, roll back, recover; no stream is
        named."""
        for event in events:
            self._event(event, session, 0, -1, at_ms)
        return self

    def seek(
        self, position: int, partition: int = 0, *, session: int = 1, at_ms: float | None = None
    ) -> Self:
        self._read[session, partition + 1] = position
        self._event(Event.SEEK, session, partition + 1, position, at_ms)
        return self

    # -- inside

    def _tick(self, at_ms: float | None) -> int:
        if at_ms is None:
            self.now_ns += TICK_NS
        else:
            self.at(at_ms)
        return self.now_ns

    def _identity(
        self, instance: int, lane: int | None, partition: int, seq: int, attempt: int, kind: Kind
    ) -> Row:
        natural = partition if self.mode == "partition" else 0
        chosen = natural if lane is None else lane
        return {"instance": instance, "lane": chosen, "seq": seq, "attempt": attempt, "kind": kind}

    def _event(
        self,
        event: Event,
        session: int,
        stream: int,
        position: int,
        at_ms: float | None,
        **more: Any,
    ) -> None:
        mine = [row for row in self.rows["deliveries"] if row["session"] == session]
        self.rows["deliveries"].append(
            {
                "session": session,
                "subscription": self._subscription,
                "ordinal": len(mine),
                "event": event,
                "t_ns": self._tick(at_ms),
                "epoch": self._epoch.get(session, 0),
                "stream": stream,
                "position": position,
                "redelivery": -1,
                **more,
            }
        )

    def _same(self, row: Mapping[str, Any], identity: Mapping[str, Any]) -> bool:
        return all(row[k] == v for k, v in identity.items())

    def _find(self, session: int, stream: int, identity: Row) -> int:
        copies = [
            int(row["position"])
            for row in self.rows["log"]
            if row["stream"] == stream and self._same(row, identity)
        ]
        ahead = [p for p in copies if p >= self._read.get((session, stream), 0)]
        return (ahead or copies or [self._next.get(stream, 0)])[0]

    # -- what happened beside the messages

    def fault(
        self,
        kind: str,
        target: str,
        at_ms: float,
        until_ms: float,
        *,
        effective: bool = True,
        healed: bool = True,
        acks: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Self:
        """A fault from ``at_ms`` to ``until_ms``, with its proof and its heal. ``acks``: what it
        did to confirmed acknowledgements; None as in captures that do not say it."""
        number = len({r["id"] for r in self.faults}) + 1
        begin, end = (EPOCH_NS + round(ms * 1e6) for ms in (at_ms, until_ms))
        inject = {
            "kind": kind,
            "target": target,
            "targets": [target],
            "planned_s": at_ms / 1e3,
            "params": {},
        }
        effect = {"effective": effective, "evidence": "planted", "details": dict(details or {})}
        said = {} if acks is None else {"confirmed_acks": acks}
        self.faults += [
            {"id": number, "event": "inject", "t_ns": begin, **inject},
            {"id": number, "event": "effect", "t_ns": begin, **effect},
            {"id": number, "event": "heal", "t_ns": end},
            {"id": number, "event": "healed", "t_ns": end, "ok": healed, **said},
        ]
        return self

    def client_died(self, worker: str, *, why: str = "error", at_ms: float | None = None) -> Self:
        """The client of a worker (p-1, c-1) said that it is of no further use."""
        words = {"name": "_FATAL", "text": "_FATAL: Local: Fatal error"}
        self.events.append(
            {
                "worker": worker,
                "kind": "client-died",
                "t_ns": self._tick(at_ms),
                "why": why,
                **words,
            }
        )
        return self

    def commit_not_sent(self, position: int, *, partition: int = 0, worker: str = "c-1") -> Self:
        """The client of a consumer confirmed the commit of this position and sent no request."""
        place = {"stream": self.plan.streams()[partition], "position": position}
        event = {"worker": worker, "kind": "commit-not-sent", "t_ns": self._tick(None)}
        self.events.append(event | place)
        return self
