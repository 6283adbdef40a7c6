"""Large planted runs: millions of rows, anomalies at random places, and the exact truth about them.

    truth = plant(tmp / "run", messages=30_000_000, producers=200, topics=100, partitions=3,
                  anomalies={"acked-lost-middle": 40, "legal-redelivery": 20}, seed=7)
    truth.counts()                      # {"acked-lost": 40, "delivery-duplicate": 60}

``raw=True`` leaves the workers' segments instead of sealed tables; sealing them gives the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from harness.contracts.plan import Plan
from harness.records import SEALED, Outcome, TableId
from harness.rundir import RunDir, write_json, write_jsonl
from tests.planted import emitting, journals, sending
from tests.planted.anomalies import ERRORS, plant_all
from tests.planted.emitting import EPOCH_NS, Columns, World
from tests.planted.plans import build_plan
from tests.planted.planters import Truth
from tests.planted.raw import SegmentWriter, raw_rows, write_worker_names
from tests.planted.scripts import Stream, settle_all
from tests.planted.writing import GroupedFile, write_around

RATE_PER_S = 50_000.0
_FAULTS = (("kill", "kafka-1", 0.2, 0.35), ("move-leaders", "orders", 0.6, 0.61))


def plant(
    root: Path,
    *,
    messages: int,
    producers: int = 2,
    topics: int = 1,
    partitions: int = 12,
    sessions: int = 2,
    buckets: int | None = None,
    deliveries: bool = True,
    anomalies: Mapping[str, int] | None = None,
    deaths: int = 0,
    seed: int = 0,
    raw: bool = False,
    threads: int = 2,
) -> Truth:
    """Write a complete run below ``root`` and return what judging must find in it.

    Args:
        messages: sends in all, rounded down to the same number for every (producer, partition).
        producers: producer ``i`` sends to every topic, or to topic ``i % topics`` if there are as
            many.
        buckets: default: one a partition, at most 16.
        anomalies: number of each kind of `tests.planted.anomalies.PLANTERS`.
        deaths: clients that give themselves up as the load ends, producers and consumers by turns.
        raw: segments of two or more workers instead of sealed tables.
    """
    names = [f"orders-{t:03d}" if topics > 1 else "orders" for t in range(topics)]
    count = buckets or min(16, topics * partitions)
    plan = build_plan(
        topics=dict.fromkeys(names, partitions),
        buckets=count,
        producers=producers,
        sessions=sessions if deliveries else 0,
        seed=seed,
        rate_per_s=RATE_PER_S,
    )
    plan = _shared_out(plan, producers, topics)
    streams = _streams(plan, messages, max(sessions, 1))
    texts = _texts(plan, deliveries)
    error = {row["text"]: row["id"] for row in texts if row["kind"] == "error"}
    rng = np.random.default_rng(seed)
    siblings = {s.number: streams[_sibling(n, partitions)] for n, s in enumerate(streams)}
    truth = plant_all(streams, siblings, anomalies or {}, error, rng)
    batches = settle_all(streams)
    world = World(streams, [p.instance for p in plan.producers], RATE_PER_S, batches)
    plan = plan.model_copy(update={"load_s": round(world.load_ns / 1e9, 3)})
    run = RunDir(root).create()
    truth.dead = _dead(plan, deaths)
    write_documents(run, plan, world.load_ns, truth.dead)
    bounds = [_bounds(plan, stream) for stream in streams]
    if raw:
        _write_raw(run, plan, world, bounds, deliveries)
    else:
        run.sealed.mkdir()
        write_jsonl(run.names, texts)
        write_jsonl(run.log_bounds, bounds)
        _write_sealed(run, plan, world, deliveries, threads)
    _count(truth, world, deliveries)
    if not raw:
        write_json(run.seal_report, {"schema_version": 1, "rows": truth.rows} | _UNDAMAGED)
    return truth


_UNDAMAGED: dict[str, Any] = {"tables": {}, "workers": {}, "wall_s": 0.0, "cpu_s": 0.0}


def _shared_out(plan: Plan, producers: int, topics: int) -> Plan:
    """Every producer on every topic, or, with at least as many producers as topics, on one each."""
    if producers < topics:
        return plan
    own = [p.model_copy(update={"groups": [n % topics]}) for n, p in enumerate(plan.producers)]
    return plan.model_copy(update={"producers": own if topics > 1 else plan.producers})


def _streams(plan: Plan, messages: int, sessions: int) -> list[Stream]:
    instances = {
        group.topic: np.array([p.instance for p in plan.producers if n in p.groups], np.uint32)
        for n, group in enumerate(plan.lane_groups)
    }
    pairs = sum(len(instances[group.topic]) * group.count for group in plan.lane_groups)
    each = messages // pairs
    if not each:
        raise ValueError(f"{messages} messages are too few for {pairs} producers x partitions")
    lanes = [
        (group.topic, lane)
        for group in plan.lane_groups
        for lane in range(group.first, group.first + group.count)
    ]
    return [
        Stream(number, lane, instances[topic], each, (number - 1) % sessions, sessions)
        for number, (topic, lane) in enumerate(lanes, start=1)
    ]


def _sibling(number: int, partitions: int) -> int:
    """Index of the next stream of the same topic."""
    topic, partition = divmod(number, partitions)
    return topic * partitions + (partition + 1) % partitions


def _texts(plan: Plan, deliveries: bool) -> list[dict[str, Any]]:
    """Global names in the order in which sealing finds them: streams, group, errors."""
    names = [("stream", text) for text in plan.streams()]
    names += [("subscription", "group")] if deliveries else []
    names += [("error", text) for text in ERRORS]
    return [{"id": n, "kind": kind, "text": text} for n, (kind, text) in enumerate(names, start=1)]


def _bounds(plan: Plan, stream: Stream) -> dict[str, Any]:
    end = len(stream.log)
    text = plan.streams()[stream.number - 1]
    place = {"stream": text, "stream_id": stream.number, "begin": 0, "end": end, "read_to": end}
    return {**place, "why": "end", "isolation": "read_uncommitted"}


def _dead(plan: Plan, deaths: int) -> list[str]:
    pairs = zip_longest((p.name for p in plan.producers), (c.name for c in plan.consumers))
    names = [name for pair in pairs for name in pair if name]
    if deaths > len(names):
        raise ValueError(f"{deaths} dead clients, but there are only {len(names)}")
    return names[:deaths]


def write_documents(run: RunDir, plan: Plan, load_ns: int, dead: Sequence[str]) -> None:
    """What lies beside the tables: two faults, and clients that die as the load ends."""
    faults = []
    for number, (kind, target, begin, end) in enumerate(_FAULTS, start=1):
        start_ns, end_ns = (EPOCH_NS + round(load_ns * part) for part in (begin, end))
        what = {"kind": kind, "target": target, "targets": [target], "params": {}}
        planned_s = round(load_ns * begin / 1e9, 3)
        proof = {"effective": True, "evidence": "planted", "details": {}}
        faults += [
            {"id": number, "event": "inject", **what, "planned_s": planned_s, "t_ns": start_ns},
            {"id": number, "event": "effect", **proof, "t_ns": start_ns},
            {"id": number, "event": "heal", "t_ns": end_ns},
            {"id": number, "event": "healed", "ok": True, "t_ns": end_ns},
        ]
    words = {"name": "_FATAL", "text": "_FATAL: Local: Fatal error", "why": "error"}
    death = {"kind": "client-died", "t_ns": EPOCH_NS + load_ns, **words}
    write_around(
        run,
        plan=plan,
        faults=faults,
        events=[{"worker": name, **death} for name in dead],
        epoch_ns=EPOCH_NS,
        end_ns=EPOCH_NS + load_ns + 2 * emitting.DELIVERY_LAG_NS,
        workers={},
        manifest={},
    )


# -- sealed


def _write_sealed(run: RunDir, plan: Plan, world: World, deliveries: bool, threads: int) -> None:
    buckets = {
        n: plan.stream_bucket(plan.streams()[s.number - 1]) for n, s in enumerate(world.streams)
    }
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(_write_bucket, run, plan, world, buckets, bucket, deliveries)
            for bucket in range(plan.buckets)
        ]
        for job in jobs:
            job.result()


def _write_bucket(
    run: RunDir, plan: Plan, world: World, buckets: Mapping[int, int], bucket: int, deliveries: bool
) -> None:
    view = [n for n, number in buckets.items() if number == bucket]
    chunks: dict[str, Iterable[Columns]] = {
        "sends": _each(sending.sends(world, view, p.instance) for p in plan.producers),
        "log": emitting.log(world, view, buckets, bucket),
    }
    if deliveries:
        group = len(plan.streams()) + 1
        chunks["deliveries"] = _each(
            journals.deliveries(world, view, c.session, group, buckets, bucket)
            for c in plan.consumers
        )
    for table, parts in chunks.items():
        file = GroupedFile(run.bucket_file(table, bucket, 0), table)
        for columns in parts:
            file.write(columns)
        file.commit()


def _each(sources: Iterable[Iterator[Columns]]) -> Iterator[Columns]:
    for source in sources:
        yield from source


# -- raw


def _write_raw(
    run: RunDir, plan: Plan, world: World, bounds: list[dict[str, Any]], deliveries: bool
) -> None:
    view = list(range(len(world.streams)))
    streams = [("stream", text) for text in plan.streams()]
    first_error = len(streams) + 1 + deliveries
    for producer in plan.producers:
        # every second worker numbers its errors backwards, so local ids collide
        texts = ERRORS if producer.instance % 2 else ERRORS[::-1]
        local = {
            first_error + ERRORS.index(text): n
            for n, text in enumerate(texts, start=len(streams) + 1)
        }
        write_worker_names(run, producer.name, streams + [("error", text) for text in texts])
        writer = SegmentWriter(run, producer.name, TableId.SENDS, producer.instance)
        for columns in sending.sends(world, view, producer.instance):
            rows = raw_rows(TableId.SENDS, columns)
            for number in np.flatnonzero(columns["error"]).tolist():
                rows["error"][number] = local[int(columns["error"][number])]
            writer.append(rows)
        writer.close()
    write_worker_names(run, "audit-1", streams)
    write_jsonl(run.worker("audit-1") / "log_bounds.jsonl", bounds)
    writer = SegmentWriter(run, "audit-1", TableId.LOG, 1)
    for columns in emitting.log(world, view, None, 0):
        writer.append(raw_rows(TableId.LOG, columns))
    writer.close()
    group = len(streams) + 1
    for consumer in plan.consumers:
        write_worker_names(run, consumer.name, [*streams, ("subscription", "group")])
        writer = SegmentWriter(
            run, consumer.name, TableId.DELIVERIES, consumer.session, subscription=group
        )
        for columns in journals.deliveries(world, view, consumer.session, group, None, 0):
            writer.append(raw_rows(TableId.DELIVERIES, columns))
        writer.close()


# -- truth


def _count(truth: Truth, world: World, deliveries: bool) -> None:
    """Sends by outcome and rows by table, from the edits."""
    outcomes = {outcome: 0 for outcome in Outcome}
    attempted = 0
    for stream in world.streams:
        attempted += stream.size + len(stream.resends) - len(stream.unrecorded)
        for change in stream.sends.values():
            outcomes[Outcome(change["outcome"])] += 1
    changed = outcomes[Outcome.FAIL] + outcomes[Outcome.INFO]
    truth.sends = {
        "attempted": attempted,
        "ok": attempted - changed,
        "fail": outcomes[Outcome.FAIL],
        "info": outcomes[Outcome.INFO],
    }
    truth.rows = {
        "sends": attempted,
        "log": sum(len(s.log) for s in world.streams),
        "deliveries": int(world.session_rows.sum()) if deliveries else 0,
    }
    assert set(truth.rows) == set(SEALED)
