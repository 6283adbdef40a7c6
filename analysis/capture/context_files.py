"""Reads a `Context` from the small JSON files of a run directory.

It never imports the harness's models: a run judged years later, or written by another tool, needs only the
files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from analysis.capture.capture import damaged_workers
from analysis.capture.context import (
    UNREAD,
    Bounds,
    Context,
    FaultWindow,
    Instance,
    LaneGroup,
    Promise,
    Reading,
    Session,
)
from analysis.capture.deaths import Death, deaths
from analysis.capture.hangs import waits_in
from analysis.capture.lives import all_lives
from analysis.capture.terms import terms_of
from harness.faultlog import FaultRecord, read_faults
from harness.rundir import RunDir, read_json, read_jsonl, reading
from harness.systems import DEFAULT, System, system_of

_NS = 1_000_000_000


def load_context(run: RunDir) -> Context:
    """Read the small files of a run.

    Raises:
        UsageError: one of them is missing or damaged.
    """
    with reading(run):
        return context_of(
            read_json(run.plan),
            read_json(run.manifest),
            names=read_jsonl(run.names),
            bounds=read_jsonl(run.log_bounds),
            leaderships=read_jsonl(run.leaderships),
            faults=read_faults(run.faults),
            events=read_jsonl(run.events),
            seal_report=read_json(run.seal_report) if run.seal_report.exists() else {},
        )


Row = Mapping[str, Any]


def context_of(
    plan: Row,
    manifest: Row,
    *,
    names: Iterable[Row] = (),
    bounds: Iterable[Row] = (),
    leaderships: Iterable[Row] = (),
    faults: Iterable[FaultRecord] = (),
    events: Iterable[Row] = (),
    seal_report: Row | None = None,
) -> Context:
    """A context from the documents of a run, as their files hold them."""
    streams = _streams(plan)
    workers = list(manifest.get("workers", []))
    damaged = damaged_workers(seal_report or {})
    told = list(events)
    frozen = _frozen(told)
    died = deaths(told)
    epoch_ns = int(manifest.get("epoch_ns", 0))
    system = system_of(str(plan.get("system", DEFAULT.name)))
    return Context(
        run_id=str(manifest.get("run_id", "")),
        has_offsets=system.has_offsets,
        has_queues_only=system.is_queue,
        term=system.term,
        terms=terms_of(leaderships),
        usual_reading=_usual_reading(system),
        streams=streams,
        lane_groups=tuple(
            LaneGroup(g["topic"], g["mode"], int(g["first"]), int(g["count"])) for g in plan["lane_groups"]
        ),
        instances=_instances(plan, workers, damaged, frozen, waits_in(told), died),
        sessions=_sessions(plan, workers, damaged, frozen, died, _usual_reading(system)),
        bounds=_bounds(bounds, damaged),
        names={int(row["id"]): str(row["text"]) for row in names if int(row["id"]) > len(streams)},
        faults=fault_windows(faults, _last_ns(manifest)),
        buckets=int(plan["buckets"]),
        epoch_ns=epoch_ns,
        load_start_ns=epoch_ns,
        load_end_ns=epoch_ns + round(float(plan["load_s"]) * _NS),
        end_ns=_end_of_observation(manifest),
        stall_ns=round(float(plan["limits"].get("stall", 15.0)) * _NS),
        readiness_restored=bool(manifest.get("readiness_restored", False)),
        drained=bool(manifest.get("drained", False)),
        unstated={str(name): str(why) for name, why in (manifest.get("unstated") or {}).items()},
    )


def fault_windows(records: Iterable[FaultRecord], last_ns: int) -> tuple[FaultWindow, ...]:
    """The faults that were injected. One that is not over lasts until ``last_ns``."""
    return tuple(
        FaultWindow(
            id=record.id,
            kind=record.kind,
            target=record.hit,
            start_ns=record.inject_ns,
            end_ns=max(last_ns, record.inject_ns) if record.end_ns is None else record.end_ns,
            effective=record.effective,
            confirmed_acks=record.confirmed_acks,
            targets=record.targets,
        )
        for record in records
        if record.inject_ns is not None
    )


def _streams(plan: Row) -> tuple[str, ...]:
    return tuple(f"{t['name']}-{p}" for t in plan["topics"] for p in range(int(t["partitions"])))


Spans = dict[str, tuple[tuple[int, int], ...]]


def _frozen(events: Iterable[Row]) -> Spans:
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in events:
        if row.get("kind") == "frozen" and "worker" in row and row.get("frozen_ns"):
            end = int(row["t_ns"])
            spans.setdefault(str(row["worker"]), []).append((end - int(row["frozen_ns"]), end))
    return {worker: tuple(sorted(found)) for worker, found in spans.items()}


def _worker(workers: Iterable[Row], role: str, key: str, number: int) -> Row:
    return next((w for w in workers if w.get("role") == role and w.get(key) == number), {})


def _instances(
    plan: Row,
    workers: list[dict[str, Any]],
    damaged: set[str],
    frozen: Spans,
    waiting: Mapping[str, str],
    died: Mapping[str, Death],
) -> dict[int, Instance]:
    found = {}
    for p in all_lives(plan["producers"], workers, "instance"):
        worker = _worker(workers, "producer", "instance", p["instance"])
        promise = p["promise"]
        found[int(p["instance"])] = Instance(
            number=int(p["instance"]),
            name=p["name"],
            client=_client(p, worker),
            promise=Promise(
                delivery=promise["delivery"],
                order=promise["order"],
                dedup=promise["dedup"],
                because=dict(promise["because"]),
                required={k: v for k, v in promise["required"].items() if v},
            ),
            deadline_ns=round(float(p["call_deadline_s"]) * _NS),
            complete=_is_whole(worker) and p["name"] not in damaged,
            end_ns=int(worker.get("t_end_ns") or 0),
            frozen=frozen.get(p["name"], ()),
            results=str(p.get("results", "checked")),
            waits_in=waiting.get(p["name"], ""),
            died=died.get(p["name"]),
            says_died=bool(p.get("says_died", False)),
        )
    return found


def _is_whole(worker: Row) -> bool:
    """It said so, or the run itself ended it by SIGKILL: every row was written before what it is about."""
    return bool(worker.get("done") or worker.get("killed"))


def _client(planned: Row, worker: Row) -> str:
    """``kafka-clients 3.9.1``."""
    return " ".join(filter(None, (str(planned.get("client", "")), str(worker.get("client_version", "")))))


def _sessions(
    plan: Row,
    workers: list[dict[str, Any]],
    damaged: set[str],
    frozen: Spans,
    died: Mapping[str, Death],
    usual: Reading,
) -> dict[int, Session]:
    found = {}
    for c in all_lives(plan["consumers"], workers, "session"):
        worker = _worker(workers, "consumer", "session", c["session"])
        options = c.get("options") or {}
        isolation = options.get("isolation.level") or options.get("isolation_level") or ""
        death = died.get(c["name"])
        ends = [int(worker.get("t_end_ns") or 0), death.t_ns if death else 0]
        found[int(c["session"])] = Session(
            number=int(c["session"]),
            name=c["name"],
            group=c["group"],
            topics=tuple(c["topics"]),
            complete=_is_whole(worker) and c["name"] not in damaged,
            end_ns=min(filter(None, ends), default=0),
            committed_only=isolation == "read_committed",
            frozen=frozen.get(c["name"], ()),
            start_ns=int(worker.get("t_start_ns") or 0),
            reading=_reading(c, usual),
            client=_client(c, worker),
            died=death,
            says_died=bool(c.get("says_died", False)),
        )
    return found


#: Names under which client libraries know a subscription type.
_SUBSCRIPTIONS = {
    "exclusive": "exclusive",
    "failover": "failover",
    "shared": "shared",
    "keyshared": "key_shared",
    "key_shared": "key_shared",
}
_ORDER = {"group": "stream", "exclusive": "stream", "failover": "stream", "key_shared": "key"}
_TRUE = ("true", "1", "yes")


def _usual_reading(system: System) -> Reading:
    settle = "auto" if system.subscription == "group" else "ack"  # a group commits positions
    return Reading(system.subscription, order=system.order, settle=settle)


def _reading(consumer: Row, usual: Reading) -> Reading:
    """From the plan's promise where it makes one, else from the client's options by their own names."""
    options = {k: str(v) for k, v in (consumer.get("options") or {}).items()}
    said = consumer.get("promise") or {}
    asked = options.get("subscriptionType") or options.get("consumer_type") or ""
    found = _SUBSCRIPTIONS.get(asked.rpartition(".")[2].lower(), usual.subscription)
    subscription = str(said.get("subscription") or found)
    timeout_ms = options.get("ackTimeoutMillis") or options.get("unacked_messages_timeout_ms") or 0
    return Reading(
        subscription=subscription,
        order=str(said.get("order") or _ORDER.get(subscription, "none")),
        settle=str(consumer.get("settle") or usual.settle),
        ack_timeout_ns=round(float(said.get("ack_timeout_s", float(timeout_ms) / 1e3)) * _NS),
        acks_confirmed=bool(said.get("acks_confirmed", _is_on(options, "ackReceiptEnabled"))),
        batch_index_acks=bool(said.get("batch_index_acks", False)),  # the broker must have it too
        because=dict(said.get("because") or {}),
        unknown=frozenset(said.get("unknown") or ()),
    )


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in _TRUE


def _bounds(rows: Iterable[Row], damaged: Collection[str]) -> dict[int, Bounds]:
    """Of several readers of a stream the one that got furthest counts; what a reader said to have read is
    worth nothing when some of its rows are gone."""
    best: dict[int, Bounds] = {}
    for row in rows:
        remaining = row.get("isolation") == "remaining"
        is_whole = row.get("reader") not in damaged
        read_to, why = (int(row["read_to"]), str(row["why"])) if is_whole else (0, UNREAD)
        bounds = Bounds(int(row["begin"]), int(row["end"]), read_to, why, remaining)
        number = int(row["stream_id"])
        if number not in best or bounds.read_to > best[number].read_to:
            best[number] = bounds
    return best


def _last_ns(manifest: Row) -> int:
    return max((int(p.get("end_ns") or 0) for p in manifest.get("phases", [])), default=0)


def _end_of_observation(manifest: Row) -> int:
    ends = [int(w.get("t_end_ns") or 0) for w in manifest.get("workers", []) if w.get("role") == "producer"]
    return max(ends, default=0) or _last_ns(manifest)
