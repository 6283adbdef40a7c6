"""A tiny history judged by the kernels, with every message named, and its context without a
disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from analysis.capture.bucket import Bucket
from analysis.capture.context import Context
from analysis.capture.context_files import context_of
from analysis.kernels import atomicity, deaths, episodes, replicas, unsent
from analysis.kernels.classify import classify
from analysis.kernels.partial import Partial
from harness.contracts import typed
from harness.contracts.rows import (
    Bounds,
    CommittedOffset,
    EventRow,
    FaultEvent,
    Leadership,
    Manifest,
    NameRow,
    ReplicaRow,
    TransactionRow,
)
from harness.faultlog import FaultLog
from tests.planted.tiny import EPOCH_NS, History
from tests.planted.writing import Tables

SECOND_NS = 1_000_000_000
#: (class, split, unmet, message or row, time)
Label = tuple[str, str, frozenset[str], str]


def context_from(history: History, *, end_ns: int = 0, consumers: bool | None = None) -> Context:
    """The context of a tiny history, every worker done at ``end_ns`` unless the history says
    otherwise.

    ``consumers``: whether there were any; None = if there are deliveries.
    """
    plan = history.plan
    end = end_ns or history.now_ns + SECOND_NS
    workers: list[dict[str, Any]] = []
    for role, number, clients in (
        ("producer", "instance", plan.producers),
        ("consumer", "session", plan.consumers),
    ):
        for client in clients:
            own = {number: getattr(client, number), "done": True, "t_end_ns": end}
            workers.append(
                {"name": client.name, "role": role} | own | history.workers.get(client.name, {})
            )
    manifest = {
        "run_id": "tiny",
        "epoch_ns": EPOCH_NS,
        "phases": [{"name": "drain", "start_ns": EPOCH_NS, "end_ns": end}],
        "workers": workers,
        "readiness_restored": True,
        "drained": True,
        **history.manifest,
    }
    context = context_of(
        plan,
        typed(manifest, Manifest, "manifest"),
        names=[typed(row, NameRow, "names") for row in history.texts],
        transactions=[typed(row, TransactionRow, "transactions") for row in history.transactions],
        committed=[typed(row, CommittedOffset, "committed_offsets") for row in history.committed],
        replicas=[typed(row, ReplicaRow, "replicas") for row in history.replicas],
        leaderships=[typed(row, Leadership, "leaderships") for row in history.leaderships],
        bounds=[typed(row, Bounds, "bounds") for row in history.log_bounds()],
        faults=FaultLog(typed(row, FaultEvent, "faults") for row in history.faults).records,
        events=[typed(row, EventRow, "events") for row in history.events],
    )
    with_consumers = bool(history.rows["deliveries"]) if consumers is None else consumers
    return context if with_consumers else replace(context, sessions={})


@contextmanager
def all_witnesses() -> Iterator[None]:
    """Every message of every episode becomes a witness."""
    with (
        patch.object(episodes, "WITNESSES_AN_EPISODE", 1 << 30),
        patch.object(episodes, "WITNESS_EPISODES", 1 << 30),
    ):
        yield


def judged(history: History, context: Context | None = None) -> Partial:
    """The partial of a tiny history, all witnesses kept."""
    return judged_tables(history.tables(), context or context_from(history))


def judged_tables(tables: Tables, context: Context) -> Partial:
    """The same of sealed columns, with what is judged once a run."""
    with all_witnesses():
        found = classify(Bucket(0, context, tables["sends"], tables["log"], tables["deliveries"]))
    whole = deaths.judge(context)
    torn = atomicity.judge(context, [found.atoms] if found.atoms else [])
    apart = [*replicas.judge(context).episodes, *unsent.judge(context).episodes]
    counts = {**found.counts, **whole.counts}
    told = [*found.episodes, *whole.episodes, *apart, *torn.episodes]
    return replace(found, episodes=told, counts=counts)


def plain(seqs: Sequence[int], count: int) -> Tables:
    """Tables of one producer and partition: 0 .. count-1 sent 20 us apart and acknowledged,
    ``seqs`` stored.

    For histories too long for the DSL, which compares every row with every other.
    """
    numbers, stored = np.arange(count), np.asarray(seqs)
    start = EPOCH_NS + numbers * 20_000
    common = {"instance": 1, "kind": 2, "stream": 1}
    sends = {
        "seq": numbers,
        "t_start_ns": start,
        "t_done_ns": start + 5_000_000,
        "position": numbers * 0 - 1,
    }
    log = {"seq": stored, "position": np.arange(len(stored))}
    return {
        "sends": sends
        | {"outcome": numbers * 0 + 1}
        | {k: numbers * 0 + v for k, v in common.items()},
        "log": log | {k: stored * 0 + v for k, v in common.items()},
        "deliveries": {},
    }


def labels(partial: Partial) -> Counter[Label]:
    """What was said of which message; the counts of the episodes are checked on the way."""
    found: Counter[Label] = Counter()
    for episode in partial.episodes:
        assert episode.count == len(episode.witnesses)
        for witness in episode.witnesses:
            found[episode.cls, episode.split, frozenset(episode.unmet), witness.message] += 1
    return found
