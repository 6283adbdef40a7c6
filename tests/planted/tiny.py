"""Five-line histories: say what was sent, what the log holds, what was delivered.

    h = History()                            # topic "orders", one partition, producer 1, session 1
    h.sent(5)                                # messages 0..4, all ok
    h.log(0, 3, 1, 2, 3, 4)                  # what the broker holds, in log order
    h.deliver(0, 3, 1, 2, 3, 4)              # by default the copy that comes next in the log

    h.tables()["log"]["seq"]                 # arrays, exactly the sealed columns of harness.records
    run = h.write(tmp_path / "run")          # a complete run directory

Sequences are dense from 0. Every call advances the clock by `TICK_NS`; ``at_ms`` (since start of
load) sets it. In a topic of mode "partition", lane i is partition i, and ``partition`` alone is
enough; with "key" or "routed" give ``lane`` and ``partition`` (where it was found) apart.

Positions are numbers 0, 1, 2 ... in every system. With ``system="pulsar"`` they come out as ledger,
entry and batch index (`ENTRIES` entries a ledger, ``batch`` messages an entry); acknowledgements
name the same numbers. With "qpid" a delivery has no position and `log` says what remained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.contracts.plan import ConsumerPromise, Plan, PromisePlan
from harness.records import SEALED, Check, Kind, Outcome
from harness.rundir import RunDir
from harness.systems import system_of
from tests.planted.plans import DURABLE, build_plan
from tests.planted.tiny_journals import EPOCH_NS, Journals, Row
from tests.planted.writing import Tables, write_run

TOPIC = "orders"
ENTRIES = 4  # of a Pulsar ledger
FIRST_LEDGER = 7
_OUTCOMES = {"ok": Outcome.OK, "fail": Outcome.FAIL, "info": Outcome.INFO, "open": Outcome.INFO} | {
    "aborted": Outcome.ABORTED
}


@dataclass
class History(Journals):
    """A small run, row by row. ``workers`` overrides fields of the manifest's workers by name."""

    partitions: int = 1
    keys: int = 8
    buckets: int = 1
    producers: int = 1
    sessions: int = 1
    promise: PromisePlan = DURABLE
    batch: int = 1
    reading: ConsumerPromise | None = None
    settle: str = "auto"
    results: str = "checked"
    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plan: Plan = build_plan(
            topics={TOPIC: self.partitions},
            mode=self.mode,
            keys=self.keys,
            buckets=self.buckets,
            producers=self.producers,
            sessions=self.sessions,
            promise=self.promise,
            reading=self.reading,
            settle=self.settle,
            results=self.results,
            system=self.system,
        )
        self._bounds: dict[int, Row] = {}
        self.leaderships: list[Row] = []
        self.committed: list[Row] = []
        self.replicas: list[Row] = []
        self.planned(self.plan)

    def planned(self, plan: Plan) -> History:
        """Another plan, before anything happened."""
        self.plan = plan
        self.texts: list[Row] = [
            {"id": i, "kind": "stream", "text": text}
            for i, text in enumerate(plan.streams(), start=1)
        ]
        self._subscription = self.name("subscription", "group")
        return self

    # -- names

    def name(self, kind: str, text: str) -> int:
        """Id of a name, new or known."""
        for row in self.texts:
            if (row["kind"], row["text"]) == (kind, text):
                return int(row["id"])
        self.texts.append({"id": len(self.texts) + 1, "kind": kind, "text": text})
        return len(self.texts)

    # -- what happened

    def send(
        self,
        seq: int,
        outcome: str = "ok",
        *,
        instance: int = 1,
        partition: int = 0,
        lane: int | None = None,
        attempt: int = 0,
        kind: Kind = Kind.LOAD,
        error: str = "",
        late: str = "",
        position: int | None = None,
        at_ms: float | None = None,
        took_ms: float = 1.0,
        due_ms: float | None = None,
        dropped: bool = False,
        transaction: int = 0,
    ) -> History:
        """One send. ``outcome``: ok, fail, info, or open (never completed, t_done 0).
        ``dropped``: acknowledged at -1:-1, as a broker's deduplication does.

        ``position``: what the acknowledgement said; left out, it is where the log holds the
        message, or, for an ok one that the log lacks, the position after the ok before it.
        ``due_ms``: intended time, if not the time of the call.
        """
        start = self._tick(at_ms)
        due = start if due_ms is None else EPOCH_NS + round(due_ms * 1e6)
        self.rows["sends"].append(
            {
                **self._identity(instance, lane, partition, seq, attempt, kind),
                "t_intended_ns": due,
                "t_start_ns": start,
                "t_done_ns": 0 if outcome == "open" else start + round(took_ms * 1e6),
                "outcome": _OUTCOMES[outcome],
                "late_outcome": _OUTCOMES[late] if late else 0,
                "error": self.name("error", error) if error else 0,
                "position": -1 if dropped else position,
                "ledger": -1 if dropped else 0,
                "batch": -1 if dropped else 0,
                "transaction": transaction,
                "partition": partition,
            }
        )
        return self

    def sent(self, count: int, outcome: str = "ok", **where: Any) -> History:
        """Sends 0 .. count-1."""
        for seq in range(count):
            self.send(seq, outcome, **where)
        return self

    def log(
        self,
        *seqs: int,
        instance: int = 1,
        partition: int = 0,
        lane: int | None = None,
        attempt: int = 0,
        kind: Kind = Kind.LOAD,
        check: Check = Check.OK,
        position: int | None = None,
        client_seqs: Sequence[int] = (),
    ) -> History:
        """The log holds these messages next, from ``position`` or right after what it has.

        ``client_seqs``: the client's own sequence ids of them, under the producer name ``p``.
        """
        stream = partition + 1
        for number, seq in enumerate(seqs):
            here = self._next.get(stream, 0) if position is None else position
            named = (
                {"client_name": self.name("client", "p"), "client_seq": client_seqs[number]}
                if client_seqs
                else {}
            )
            identity = self._identity(instance, lane, partition, seq, attempt, kind)
            blank = dict.fromkeys(identity, 0)
            self.rows["log"].append(
                {
                    **(identity if check is Check.OK else blank),
                    "stream": stream,
                    "position": here,
                    "t_intended_ns": self._intended(identity) if check is Check.OK else 0,
                    "broker_time_ms": self.now_ns // 1_000_000,
                    "check": check,
                    **named,
                }
            )
            self._next[stream] = here + 1
            position = None if position is None else position + 1
        return self

    def bounds(
        self,
        partition: int = 0,
        *,
        begin: int = 0,
        end: int | None = None,
        read_to: int | None = None,
        why: str = "end",
        marked: int | None = None,
        stale: list[Row] | None = None,
    ) -> History:
        """Override what the audit says of a stream; otherwise it read all there is."""
        changes = {"begin": begin, "end": end, "read_to": read_to, "why": why, "marked": marked}
        changes |= {"stale": stale}
        self._bounds[partition + 1] = {k: v for k, v in changes.items() if v is not None}
        return self

    def led(
        self,
        leader: str | None,
        term: int,
        *,
        at_ms: float,
        partition: int = 0,
        over_ms: float = 0,
        **more: Any,
    ) -> History:
        """A leader of a stream from a time on; ``more``: other fields of leaderships.jsonl."""
        self.leaderships.append(
            {
                "stream_id": partition + 1,
                "stream": self.plan.streams()[partition],
                "term": term,
                "leader": leader,
                "t_ns": EPOCH_NS + round(at_ms * 1e6),
                "over_ns": EPOCH_NS + round(over_ms * 1e6) if over_ms else 0,
                **more,
            }
        )
        return self

    def replica(
        self,
        node: str,
        *odd: tuple[int, int, str],
        partition: int = 0,
        leads: bool = False,
        in_sync: bool = True,
        read_to: int | None = None,
        refused: bool = False,
        begin: int = 0,
        ledger: int = 0,
    ) -> History:
        """What a node has of a stream with ten positions. ``odd``: first, last, digest; empty =
        damaged."""
        self.plan = self.plan.model_copy(update={"audit": "every-replica"})
        spans = [
            {"first": first, "last": last, "digest": digest, "intact": bool(digest)}
            for first, last, digest in odd
        ]
        row = {"stream_id": partition + 1, "stream": self.plan.streams()[partition], "node": node}
        read = {
            "begin": begin,
            "end": 10,
            "read_to": 10 if read_to is None else read_to,
            "refused": refused,
        }
        self.replicas.append(
            row | read | {"leads": leads, "in_sync": in_sync, "odd": spans, "ledger": ledger}
        )
        return self

    # -- what comes out

    def tables(self) -> Tables:
        """Arrays by table and sealed column; sends by instance, deliveries by session."""
        self._settle_positions()
        owners = {"sends": "instance", "deliveries": "session"}
        tables: Tables = {}
        for table, columns in SEALED.items():
            rows = self.rows[table]
            if table in owners:
                rows = sorted(rows, key=lambda row: int(row[owners[table]]))
            rows = [row | self._place(table, row) for row in rows]
            arrays: dict[str, npt.NDArray[Any]] = {
                c.name: np.array([row.get(c.name, c.missing) for row in rows], c.dtype)
                for c in columns
            }
            tables[table] = arrays
        return tables

    def log_bounds(self) -> list[Row]:
        """Rows of log_bounds.jsonl."""
        rows = []
        for number, stream in enumerate(self.plan.streams(), start=1):
            end = self._next.get(number, 0)
            row: Row = {
                "stream": stream,
                "stream_id": number,
                "begin": 0,
                "end": end,
                "read_to": end,
            }
            isolation = "remaining" if self._are_queues() else "read_uncommitted"
            row |= {"why": "end", "isolation": isolation, "stable": end, "marked": end}
            change = self._bounds.get(number, {})
            if "end" in change and "read_to" not in change:
                row["read_to"] = change["end"]
            rows.append(row | change)
        return rows

    def write(self, root: Path) -> RunDir:
        """A complete run directory: plan, manifest, faults, events, sealed tables, seal.json."""
        return write_run(
            root,
            plan=self.plan,
            chunks=[self.tables()],
            names=self.texts,
            bounds=self.log_bounds(),
            leaderships=self.leaderships,
            transactions=self.transactions,
            committed=self.committed,
            replicas=self.replicas,
            faults=self.faults,
            events=self.events,
            epoch_ns=EPOCH_NS,
            end_ns=max(self.now_ns, EPOCH_NS) + 1_000_000_000,
            workers=self.workers,
            manifest=self.manifest,
        )

    # -- inside

    def _are_queues(self) -> bool:
        return all(
            system_of(self.system).removes_settled(topic.config) for topic in self.plan.topics
        )

    def _place(self, table: str, row: Row) -> Row:
        """Where the system says a row is, from its number."""
        number = int(row["position"])
        if self.system == "qpid" and table != "log":
            return {"position": -1}
        if self.system != "pulsar" or number < 0:
            return {}
        entry, index = divmod(number, self.batch)
        ledger, entry = divmod(entry, ENTRIES)
        return {
            "ledger": FIRST_LEDGER + ledger,
            "position": entry,
            "batch": index if self.batch > 1 else -1,
        }

    def _intended(self, identity: Row) -> int:
        times = [r["t_intended_ns"] for r in self.rows["sends"] if self._same(r, identity)]
        return int(times[0]) if times else self.now_ns

    def _settle_positions(self) -> None:
        """Fill in where an acknowledgement said the message is."""
        last: dict[int, int] = {}
        for row in self.rows["sends"]:
            stream = row["partition"] + 1
            identity = {k: row[k] for k in ("instance", "lane", "seq", "attempt", "kind")}
            if row["position"] is None and row["outcome"] == Outcome.OK:
                found = [r for r in self.rows["log"] if self._same(r, identity)]
                stream = int(found[0]["stream"]) if found else stream
                row["position"] = int(found[0]["position"]) if found else last.get(stream, -1) + 1
            if row["position"] is None or row["position"] < 0:
                row["stream"], row["position"] = 0, -1
                continue
            row["stream"] = stream
            last[stream] = int(row["position"])
