"""Makes the plan and the manifest of an imported capture, from what its rows show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.systems import DEFAULT

_DEADLINE_S = 120.0  # what most clients give a send by default
#: Without settings to read, an imported producer is held to what most applications count on.
_PROMISE = {
    "delivery": "durable",
    "order": True,
    "dedup": True,
    "because": dict.fromkeys(("delivery", "order", "dedup"), "assumed of an imported capture"),
    "required": {},
}


def renumbered(names: Iterable[Mapping[str, Any]], uri: str) -> tuple[dict[str, int], dict[int, int]]:
    """Topics with their partitions, and the plan's stream id (1, 2 ... by topic, partition) of each id.

    Raises:
        UsageError: no stream has a name, or one is not ``topic-partition``.
    """
    streams = {int(row["id"]): str(row["text"]) for row in names if row["kind"] == "stream"}
    if not streams:
        raise UsageError(
            f"{uri}/names.jsonl names no stream",
            hint='one line each: {"id": 1, "kind": "stream", "text": "orders-0"}',
        )
    topics: dict[str, int] = {}
    for text in streams.values():
        topic, _, partition = text.rpartition("-")
        if not topic or not partition.isdigit():
            raise UsageError(f"{uri}/names.jsonl: stream {text!r} is not of the form topic-partition")
        topics[topic] = max(topics.get(topic, 0), int(partition) + 1)
    topics = dict(sorted(topics.items()))
    number = {f"{t}-{p}": i for i, (t, p) in enumerate(_places(topics), start=1)}
    return topics, {old: number[text] for old, text in streams.items()}


def _places(topics: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((topic, p) for topic, count in topics.items() for p in range(count))


@dataclass(frozen=True, slots=True)
class Routing:
    """Bucket of every lane and stream, and the topic of every lane."""

    lanes: Mapping[int, int]
    streams: Mapping[int, int]
    topics: Mapping[int, str]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]], topics: Mapping[str, int], buckets: int) -> Routing:
        """Lanes that share a stream share a bucket, and so do the streams of a lane.

        Args:
            pairs: (lane, stream) of every place a lane was found in; stream 0 = nowhere.
        """
        parent: dict[tuple[str, int], tuple[str, int]] = {}

        def root(node: tuple[str, int]) -> tuple[str, int]:
            parent.setdefault(node, node)
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for lane, stream in sorted(pairs):
            lane_root = root(("lane", lane))
            if stream:
                parent[root(("stream", stream))] = lane_root
        roots = sorted({root(node) for node in tuple(parent)})
        bucket = {node: i % buckets for i, node in enumerate(roots)}
        topic_of = dict(enumerate((topic for topic, _ in _places(topics)), start=1))
        first = next(iter(topics))
        lane_topic: dict[int, str] = {}
        for lane, stream in sorted(pairs):
            if stream or lane not in lane_topic:
                lane_topic[lane] = topic_of.get(stream, lane_topic.get(lane, first))
        return cls(
            lanes={lane: bucket[root(("lane", lane))] for lane in lane_topic},
            streams={s: bucket[root(("stream", s))] for s in topic_of if ("stream", s) in parent},
            topics=lane_topic,
        )


def routing_of(plan: Mapping[str, Any]) -> Routing:
    """The routing of a plan that came with the capture (as `harness.seal.route`)."""
    lanes: dict[int, int] = {}
    topics: dict[int, str] = {}
    for group in plan["lane_groups"]:
        for i in range(int(group["count"])):
            lanes[int(group["first"]) + i] = int(group["buckets"][i % len(group["buckets"])])
            topics[int(group["first"]) + i] = group["topic"]
    group_of = {g["topic"]: g for g in reversed(plan["lane_groups"])}
    places = _places({t["name"]: int(t["partitions"]) for t in plan["topics"]})
    streams = {
        number: int(group_of[topic]["buckets"][p % len(group_of[topic]["buckets"])])
        for number, (topic, p) in enumerate(places, start=1)
        if topic in group_of
    }
    return Routing(lanes, streams, topics)


def make_plan(
    topics: Mapping[str, int],
    routing: Routing,
    buckets: int,
    instances: Sequence[int],
    sessions: Sequence[int],
    load_s: float,
) -> dict[str, Any]:
    """A plan without a target rate; lanes count as routed by the client, for nobody says otherwise."""
    common = {"client": "imported", "client_version": "", "options": {}}
    return {
        "schema_version": 1,
        "scenario": "imported",
        "variant": "",
        "expect": "clean",
        "about": "a capture of another tool",
        "seed": 0,
        "run_tag": 0,
        "system": DEFAULT.name,
        "version": "",
        "broker_config": {},
        "topics": [{"name": t, "partitions": n, "replication": 1, "config": {}} for t, n in topics.items()],
        "lane_groups": list(_lane_groups(routing)),
        "buckets": buckets,
        "producers": [
            {**common, "name": f"producer-{i}", "instance": i, "groups": [], "rate_per_s": 0.0,
             "when_full": "wait", "call_deadline_s": _DEADLINE_S, "promise": _PROMISE}
            for i in instances
        ],
        "consumers": [
            {**common, "name": f"consumer-{s}", "session": s, "group": "imported", "topics": list(topics),
             "commit_every_s": 1.0}
            for s in sessions
        ],
        "payload_bytes": 0,
        "rate_per_s": 0.0,
        "warm_up_s": 0.0,
        "load_s": load_s,
        "faults": [],
        "limits": {},
        "rate_ratio": 0.0,
    }  # fmt: skip


def _lane_groups(routing: Routing) -> Iterator[dict[str, Any]]:
    """Runs of consecutive lanes of one topic."""
    group: dict[str, Any] | None = None
    for lane in sorted(routing.lanes):
        topic, bucket = routing.topics[lane], routing.lanes[lane]
        if group and group["topic"] == topic and lane == group["first"] + group["count"]:
            group["count"] += 1
            group["buckets"].append(bucket)
            continue
        if group:
            yield group
        group = {"topic": topic, "mode": "routed", "first": lane, "count": 1, "buckets": [bucket]}
    if group:
        yield group


def make_manifest(
    run_id: str, plan: Mapping[str, Any], uri: str, first_ns: int, last_ns: int
) -> dict[str, Any]:
    """A finished run from the first intended time to the last outcome; every worker counts as complete."""
    workers = [
        *({"name": p["name"], "role": "producer", "instance": p["instance"]} for p in plan["producers"]),
        *({"name": c["name"], "role": "consumer", "session": c["session"]} for c in plan["consumers"]),
    ]
    ended = {"exit_code": 0, "done": True, "t_start_ns": first_ns, "t_end_ns": last_ns}
    return {
        "schema_version": 1,
        "run_id": run_id,
        "status": "complete",
        "command": f"imported from {uri}",
        "epoch_ns": first_ns,
        "epoch_wall": "",
        "versions": {},
        "machine": {},
        "phases": [{"name": "load", "start_ns": first_ns, "end_ns": last_ns}],
        "workers": [worker | ended for worker in workers],
        "readiness_restored": True,
        "drained": True,
        "problems": [],
    }
