"""Classes that a run could not have shown: not applicable to its load, or without the evidence they
need.

Nothing found is a result only for a class that was looked for. One without consumers has shown
nothing of deliveries, one whose audit was cut short nothing of losses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from analysis.capture.context import Context
from analysis.classes import ASKS, CLASSES, PRECONDITIONS
from analysis.findings import NOT_APPLICABLE
from harness.contracts.rows import Bounds

Counts = Mapping[str, int]

#: By name in `ASKS`: whether the run has what the class is about.
_HAS: Final[Mapping[str, Callable[[Context, Counts], bool]]] = {
    "sends": lambda context, counts: counts.get("attempted", 0) > 0,
    "consumers": lambda context, counts: (
        bool(context.sessions) or counts.get("delivery_rows", 0) > 0
    ),
    "readers": lambda context, counts: (
        bool(context.sessions or context.applications) or counts.get("delivery_rows", 0) > 0
    ),
    "log": lambda context, counts: not context.is_queue[1:].all(),
    "queues": lambda context, counts: context.has_queues,
    "fixed-lanes": lambda context, counts: any(g.mode != "routed" for g in context.lane_groups),
    "deadlines": lambda context, counts: any(i.deadline_ns for i in context.instances.values()),
    "silence-limit": lambda context, counts: context.stall_ns > 0,
    "emptied-queues": lambda context, counts: (
        not context.has_queues
        or any(not context.stays_full(name.rpartition("-")[0]) for name in context.streams)
    ),
    "client-sequence": lambda context, counts: counts.get("numbered_rows", 0) > 0,
    "ignored-results": lambda context, counts: _any_results(context, "ignored"),
    "resent": lambda context, counts: _any_results(context, "resent"),
    "transactions": lambda context, counts: (
        len(context.transactions) > 0 or counts.get("transaction_rows", 0) > 0
    ),
    "transaction-journal": lambda context, counts: len(context.transactions) > 0,
    # Pulsar's have the transaction's id
    "shared-markers": lambda context, counts: context.has_offsets,
    # Pulsar's are a transaction's own
    "transactional-ids": lambda context, counts: context.has_offsets,
    "counted-outputs": lambda context, counts: (
        bool(context.pipelines) or any(each.makes != "any" for each in context.applications)
    ),
    "required-outputs": lambda context, counts: (
        bool(context.pipelines) or any(each.makes == "one" for each in context.applications)
    ),
    "ordered-outputs": lambda context, counts: (
        bool(context.pipelines) or any(each.order != "none" for each in context.applications)
    ),
    "applications": lambda context, counts: bool(context.applications),
    "refusals": lambda context, counts: counts.get("refusal_rows", 0) > 0,
    "rollbacks": lambda context, counts: counts.get("rollback_rows", 0) > 0,
    "replicas": lambda context, counts: bool(context.replicas),
    "self-reports": lambda context, counts: _any_says_died(context),
    "watched-commits": lambda context, counts: any(
        s.watches_commits for s in context.sessions.values()
    ),
}

#: By name in `PRECONDITIONS`: whether it holds for the whole run. What is not here is judged hit by
#: hit only.
_HOLDS: Final[Mapping[str, Callable[[Context], bool]]] = {
    "audit-complete": lambda context: (
        all(b.is_complete for b in _bounds(context))
        and all(each.outputs_read for each in context.applications)
    ),
    "outputs-named": lambda context: not any(each.nameless for each in context.applications),
    "log-kept": lambda context: all(
        bounds.begin <= cut for bounds, cut in zip(_bounds(context), context.cut[1:], strict=True)
    ),
    "producer-ended": lambda context: all(i.end_ns for i in context.instances.values()),
    "readiness-restored": lambda context: context.readiness_restored,
    "send-capture": lambda context: all(i.complete for i in context.instances.values()),
    "delivery-capture": lambda context: all(s.complete for s in context.sessions.values()),
    "markers-read": lambda context: all(b.is_marked for b in _bounds(context)),
    "drained": lambda context: context.drained,
    "offsets-read": lambda context: all(
        stream in committed
        for committed, source in [
            *((each.committed, each.source) for each in context.pipelines),
            *((each.committed, each.source) for each in context.applications),
        ]
        for stream in context.topic_streams(source)
    ),
}


def untested(context: Context, counts: Counts, found: Collection[str] = ()) -> dict[str, str]:
    """Class -> why nothing found proves nothing, in the order of the table.

    Args:
        counts: sums over the buckets (`Partial.counts`).
        found: classes with findings; these were seen, so they are left out.
    """
    reasons: dict[str, str] = {}
    for name, entry in CLASSES.items():
        unknown = [
            context.unstated[name]
            for name in (*entry.asks, *entry.needs)
            if name in context.unstated
        ]
        told = [ask for ask in entry.asks if ask not in context.unstated]
        missing = [ASKS[ask] for ask in told if not _HAS.get(ask, _always)(context, counts)]
        unmet = [PRECONDITIONS[n] for n in entry.needs if n in _HOLDS and not _HOLDS[n](context)]
        if name in found:
            continue
        if missing:
            reasons[name] = f"{NOT_APPLICABLE}{missing[0]}"
        elif unknown:
            reasons[name] = f"not known: {unknown[0]}"
        elif unmet:
            reasons[name] = f"not shown that {unmet[0]}"
    return reasons


def _always(context: Context, counts: Counts) -> bool:
    """Return whether the evidence exists: every run of ours has it, and an import may lack it
    (`Context.unstated`).
    """
    return True


def _any_results(context: Context, handling: str) -> bool:
    return any(instance.results == handling for instance in context.instances.values())


def _any_says_died(context: Context) -> bool:
    return bool(context.applications) or any(client.says_died for client in context.clients)


def _bounds(context: Context) -> list[Bounds]:
    return [context.stream_bounds(stream) for stream in range(1, len(context.streams) + 1)]
