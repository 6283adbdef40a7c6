"""The same scenarios on processes and in containers, side by side.

    python -m bench.runtimes [SCENARIO ...] [--seed 7] [--set KEY=VALUE ...] [--json]

One run of each scenario on each runtime, with the same seed and so the same faults. Time to ready
is that of a cluster started for it alone: from the first file written until a probe went through.
Rate, p99 and the recovery after each fault are from the report.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from analysis.findings import Result
from analysis.report.documents import result_of_document
from harness.clusters import open_cluster
from harness.rundir import Document
from harness.scenario.file import load_scenario

ROOT = Path(__file__).resolve().parents[1]
RUNTIMES = ("process", "docker")
SUITE = ("kafka-storm", "pulsar-storm", "qpid-storm")
UP_S = 300.0


def up_and_down_s(scenario: str, runtime: str, root: Path) -> tuple[float, float]:
    """Seconds until a cluster works, and until nothing is left of it."""
    loaded = load_scenario(scenario)
    cluster = open_cluster(
        loaded.system,
        run_id=f"bench-{time.monotonic_ns()}",
        folder=root / f"{scenario}-{runtime}",
        version=loaded.cluster.version,
        topology=loaded.cluster.topology,
        runtime=runtime,
    )
    started = time.monotonic()
    try:
        cluster.up(timeout_s=UP_S)
        took = time.monotonic() - started
    finally:
        began = time.monotonic()
        cluster.down()
    return took, time.monotonic() - began


def run(scenario: str, runtime: str, root: Path, seed: int, overrides: list[str]) -> Result:
    """Run a scenario on a runtime, and return its result."""
    command = [sys.executable, "cli.py", "--json", "--run-dir", str(root / "runs"), "run", scenario]
    command += ["--seed", str(seed), "--runtime", runtime]
    command += [word for override in overrides for word in ("--set", override)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return result_of_document(json.loads(done.stdout), root)


def figures(result: Result) -> Document:
    """Return the figures of a run that are compared."""
    return {
        "verdict": str(result.verdict),
        "reasons": result.reasons,
        "sends": result.sends["attempted"],
        "rate_per_s": round(result.rate["achieved_per_s"]),
        "p50_ms": result.latency_ms.get("p50"),
        "p99_ms": result.latency_ms.get("p99"),
        "faults": [
            {
                "fault": f"{fault.kind} {fault.target}",
                "effective": fault.effective,
                "outage_s": fault.outage_s,
                "recovery_s": fault.recovery_s,
            }
            for fault in result.faults
            if not fault.skipped
        ],
    }


def show(scenario: str, found: dict[str, Document]) -> None:
    """Print the figures of a scenario, one column for each runtime."""
    print(f"\n{scenario}")
    for name in ("ready_s", "down_s", "verdict", "sends", "rate_per_s", "p50_ms", "p99_ms"):
        print(f"  {name:12}" + "".join(f"{_text(found[each].get(name)):>16}" for each in RUNTIMES))
    pairs = zip(*(found[each].get("faults", []) for each in RUNTIMES), strict=False)
    for rows in pairs:
        cells = "".join(
            f"{_text(row['outage_s']):>9} / {_text(row['recovery_s']):>5}" for row in rows
        )
        print(f"  {rows[0]['fault']:34.34}{cells}   outage / recovery, s")
    for each in RUNTIMES:
        for reason in found[each].get("reasons", []):
            print(f"  {each}: {reason}")


def _text(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else "-" if value is None else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("scenarios", nargs="*", default=list(SUITE))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--up-only", action="store_true", help="only time to ready")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    everything: dict[str, dict[str, Document]] = {}
    with tempfile.TemporaryDirectory(prefix="brokerstorm-bench-") as folder:
        for scenario in options.scenarios:
            found: dict[str, Document] = {}
            for runtime in RUNTIMES:
                ready_s, down_s = up_and_down_s(scenario, runtime, Path(folder))
                found[runtime] = {"ready_s": ready_s, "down_s": down_s}
                if not options.up_only:
                    result = run(scenario, runtime, Path(folder), options.seed, options.overrides)
                    found[runtime] |= figures(result)
            everything[scenario] = found
            if not options.json:
                show(scenario, found)
    if options.json:
        print(json.dumps(everything, indent=2))


if __name__ == "__main__":
    main()
