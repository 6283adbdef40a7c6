"""The faults of an earlier run as a timeline: the nodes that were hit, when they really were hit."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from faults.kinds import KINDS
from faults.kit.params import Shape
from faults.schedule.timeline import Firing, Timeline
from harness.errors import UsageError
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_json, read_jsonl

#: A node that recovers more slowly than the first time makes the next fault late, not absent.
REPLAY_WAIT_S: Final = 30.0


def load_replay(run: RunDir) -> Timeline:
    """Every fault that ``run`` injected, with resolved targets and real times; skipped ones stay out.

    Raises:
        UsageError: the run injected none, or its files do not say when and whom.
    """
    rows = read_jsonl(run.faults)
    injected = [row for row in rows if row.get("event") == "inject"]
    if not injected:
        raise UsageError(
            f"run {run.run_id} injected no fault: there is nothing to replay",
            hint=f"looked into {run.faults}",
        )
    epoch_ns = read_json(run.manifest).get("epoch_ns")
    if not epoch_ns:
        raise UsageError(f"run {run.run_id} never got to its load: its manifest has no epoch_ns")
    heals = {row["id"]: row["t_ns"] for row in rows if row.get("event") == "heal"}
    plan = read_json(run.plan)
    try:
        firings = [_firing(row, int(epoch_ns), heals) for row in injected]
        topics = [TopicSettings(t["name"], t["partitions"], t["replication"]) for t in plan["topics"]]
        seed, load_s = int(plan["seed"]), float(plan["load_s"])
    except (KeyError, TypeError, ValidationError) as error:
        raise UsageError(f"{run.faults} or {run.plan} is not as this version writes it: {error!r}") from error
    nodes = sorted({node for row in injected for node in _nodes(row)})
    firings.sort(key=lambda firing: firing.t_s)
    return Timeline(tuple(firings), seed, load_s, Shape(tuple(topics), tuple(nodes)))


def _firing(row: dict[str, Any], epoch_ns: int, heals: dict[int, int]) -> Firing:
    kind = KINDS[row["kind"]]
    params = kind.params.model_validate(row["params"])
    planned_for_s = kind.lasts_s(params)
    for_s = planned_for_s
    if "for" in row["params"] and row["id"] in heals:
        for_s = (heals[row["id"]] - row["t_ns"]) / 1e9  # what was cut short is cut short again
    t_s = (row["t_ns"] - epoch_ns) / 1e9
    dumped = params.model_dump(mode="json", by_alias=True)
    number = int(row["id"])
    return Firing(
        number, row["kind"], kind.target(params), t_s, for_s, dumped, number - 1, number, REPLAY_WAIT_S
    )


def _nodes(row: dict[str, Any]) -> list[str]:
    moves = row["params"].get("moves") or {}
    return list(moves.values()) if "topic" in row["params"] else list(row["targets"])
