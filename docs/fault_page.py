"""docs/reference/faults.md, made from the registry of fault kinds: keys of several kinds are listed
once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from docs.markdown import MADE, item, paragraph
from faults.kinds import KINDS
from faults.kit.params import FaultSchedule, in_units
from faults.schedule.mix import MixParams
from faults.schedule.reference import MIX_ABOUT, FaultKey, keys

#: A key that so many kinds have with the same meaning is in a list of its own.
_SEVERAL = 3

_HEAD = f"""# Faults

{MADE}

A scenario's `faults:` is a list of steps. Times count from the start of load. [The matrix](matrix.md) says
on which systems, runtimes and clusters each kind works; `brokerstorm plan SCENARIO` prints every firing
with its time and the commands that it would send. How network faults work: [cut the
network](../howto/cut-the-network.md); what those on CPU, memory and disk need of the machine: [resource
faults](../explanation/resource-faults.md); what a disk keeps: [power loss](../explanation/power-loss.md);
what it gives back: [damaged files](../explanation/power-loss.md#damaged-files).

```yaml
faults:
  - {{fault: kill, target: leader-of:orders, at: 10s, for: 5s}}
  - {{fault: leader-move, topic: orders, partitions: 6, every: 5s, jitter: 1s, from: 5s, until: 40s}}
  - {{fault: leader-move, topic: orders, at: 20s, storm: {{times: 3, gap: [20ms, 200ms]}}}}
  - mix: {{of: [{{fault: kill, weight: 2}}, {{fault: pause, for: 3s}}], every: 8s, jitter: 2s}}
```

## When: keys of every step
"""
_WHEN = """
A step needs either `at` or `every`. Every random choice comes from the run's seed, the step's place in the
list and the number of the firing. A firing that meets a node which another fault still holds, or that would
take a second node away without `together: true`, is skipped and recorded, after `wait`.

## Keys that several kinds have
"""
_MIX_HEAD = ("", "## mix: random draws", "")
_MIX_RULES = (
    " A draw becomes a firing with its place in the timeline before the run starts: the same seed"
    " gives the same mix, and `run --replay` repeats it. What could not be healed before the next"
    " quiet period or the end of the load is not drawn, nor is a fault that takes a node away while"
    " another one does. Kinds that take an unknown time (rolling-restart, unload-storm) cannot be"
    " part of a mix."
)
_MIX_EXAMPLE = """
```yaml
  - mix:
      of:
        - {fault: kill, target: random, for: 5s, weight: 3}
        - {fault: leader-move, topic: orders, weight: 5}
      every: 4s
      jitter: 2s
      quiet: {every: 30s, for: 10s}
      from: 5s
```
"""


def faults_page() -> str:
    """docs/reference/faults.md."""
    rows = [row for kind in KINDS.values() for row in keys(kind.params)]
    counts = Counter((row.key, row.about) for row in rows)
    most = {
        key: about for (key, about), count in reversed(counts.most_common()) if count >= _SEVERAL
    }
    shared = set(most.items())  # one meaning of a key: what "as above" means
    lines = [*_HEAD.splitlines(), "", *_list(keys(FaultSchedule)), *_WHEN.splitlines(), ""]
    first = {(row.key, row.about): replace(row, default=None) for row in reversed(rows)}
    lines += _list([first[key] for key in counts if key in shared])
    lines += [
        *_MIX_HEAD,
        *paragraph(MIX_ABOUT + _MIX_RULES),
        *_MIX_EXAMPLE.splitlines(),
        "",
        *_list(keys(MixParams)),
    ]
    for kind in KINDS.values():
        lines += ["", f"## {kind.kind}", ""]
        own = keys(kind.params)
        also = [f"`{row.key}`{_default_text(row)}" for row in own if (row.key, row.about) in shared]
        lines += paragraph(f"{kind.doc()} As above: {', '.join(also)}." if also else kind.doc())
        lines += _list([row for row in own if (row.key, row.about) not in shared])
    return "\n".join(lines) + "\n"


def _list(rows: list[FaultKey]) -> list[str]:
    return [line for row in rows for line in item(f"`{row.key}`{_default_text(row)}: {row.about}")]


def _default_text(row: FaultKey) -> str:
    if row.default == "required":
        return " (**required**)"
    default = _default(row.default, row.unit)
    return f" (default {default})" if default else ""


def _default(value: Any, unit: str) -> str:
    if value in (None, "", {}, []):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return " to ".join(_default(each, unit) for each in value)
    if unit == "bytes":
        return in_units(value)
    number = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return f"{number} {unit}".strip()
