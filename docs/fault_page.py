"""docs/reference/faults.md, made from the registry of fault kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from docs.markdown import MADE, item, paragraph
from faults.kinds import KINDS
from faults.kit.cluster_view import ability_text
from faults.kit.params import Schedule, in_units
from faults.schedule.mix import MixParams
from faults.schedule.reference import MIX_ABOUT, keys


def faults_page() -> str:
    """docs/reference/faults.md."""
    lines = [
        "# Faults",
        "",
        MADE,
        "",
        "A scenario's `faults:` is a list of steps. Times count from the start of load.",
        "",
        "```yaml",
        "faults:",
        "  - {fault: kill, target: leader-of:orders, at: 10s, for: 5s}",
        "  - {fault: leader-move, topic: orders, partitions: 6, every: 5s, jitter: 1s, from: 5s, until: 40s}",
        "  - {fault: leader-move, topic: orders, at: 20s, storm: {times: 3, gap: [20ms, 200ms]}}",
        "  - mix: {of: [{fault: kill, weight: 2}, {fault: pause, for: 3s}], every: 8s, jitter: 2s}",
        "```",
        "",
        "`brokerstorm plan SCENARIO` prints every firing with its time and the commands that it would send.",
        "What faults on CPU, memory and disk need of the machine, and what to expect of them:",
        "[resource faults](../explanation/resource-faults.md).",
        "",
        "## When: keys of every step",
        "",
        *_list(keys(Schedule)),
        "",
        "A step needs either `at` or `every`. Every random choice comes from the run's seed, the step's",
        "place in the list and the number of the firing. A firing that meets a node which another fault",
        "still holds, or that would take a second node away without `together: true`, is skipped and",
        "recorded, after `wait`.",
        *_mix_page(),
    ]
    for kind in KINDS.values():
        lines += ["", f"## {kind.kind}", "", kind.doc(), ""]
        lines += [*_list(keys(kind.params)), ""]
        able = "; ".join(map(ability_text, kind.abilities))
        lines += paragraph(
            f"The cluster must be able to: {able}." if able else "Needs nothing of the cluster."
        )
        if kind.needs:
            lines.append(f"It must be started with {', '.join(f'`{need}`' for need in sorted(kind.needs))}.")
    return "\n".join(lines) + "\n"


def _mix_page() -> list[str]:
    return [
        "",
        "## mix: random draws",
        "",
        MIX_ABOUT,
        "",
        "```yaml",
        "  - mix:",
        "      of:",
        "        - {fault: kill, target: random, for: 5s, weight: 3}",
        "        - {fault: leader-move, topic: orders, weight: 5}",
        "      every: 4s",
        "      jitter: 2s",
        "      quiet: {every: 30s, for: 10s}",
        "      from: 5s",
        "```",
        "",
        *_list(keys(MixParams)),
        "",
        "A draw becomes a firing with its place in the timeline before the run starts: the same seed gives",
        "the same mix, and `run --replay` repeats it. What could not be healed before the next quiet period",
        "or the end of the load is not drawn, nor is a fault that takes a node away while another one does.",
        "Kinds that take an unknown time (rolling-restart, unload-storm) cannot be part of a",
        "mix.",
    ]


def _list(rows: list[dict[str, Any]]) -> list[str]:
    return [line for row in rows for line in item(f"`{row['key']}`{_default_text(row)}: {row['about']}")]


def _default_text(row: Mapping[str, Any]) -> str:
    if row["default"] == "required":
        return " (**required**)"
    default = _default(row)
    return f" (default {default})" if default else ""


def _default(key: Mapping[str, Any]) -> str:
    value, unit = key["default"], key["unit"]
    if value in (None, "", {}, []):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return " to ".join(_default({"default": each, "unit": unit}) for each in value)
    if unit == "bytes":
        return in_units(value)
    number = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return f"{number} {unit}".strip()
