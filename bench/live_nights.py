"""Ten nights of a small suite on live brokers: a real regression at night 6, a real slowdown at
night 8.

    python -m bench.live_nights FOLDER               nights that FOLDER has not seen, then a table
    python -m bench.live_nights FOLDER --nights 1    the next night only, or the rest of one

Night 6 brings a client version that has a known bug (kafka-python-3132) instead of the fixed one.
Night 8 brings brokers that are held to a share of a core, for one cell. Both stay. Only the nights
before say what is new. Ends with exit code 1 when a page named anything else, or did not name these
two.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
NIGHTS, REGRESSION, SLOWDOWN = 10, 6, 8
#: What is to be told: (kind, cell) -> its first night.
TRUTH: Final = {
    ("class", "group process"): REGRESSION,
    ("figure", "steady limited process"): SLOWDOWN,
}
FIXED, AFFECTED = "3.0.9", "3.0.8"

#: As scenarios/bugs/kafka-python-3132.yaml, shorter.
GROUP: Final = """\
name: group
about: a second member joins a group with a rebalance listener
topics:
  orders: {partitions: 12}
load:
  rate: 300
  duration: 9s
  warm_up: 1s
  producers:
    shop: {client: confluent-kafka, options: {acks: all, enable.idempotence: true, linger.ms: 10}}
  consumers:
    first: {client: kafka-python, group: billing, client_version: VERSION}
    second: {client: kafka-python, group: billing, client_version: VERSION, joins_after: 1s}
require: {rate_ratio: 0.5}
limits: {stall: 4s, drain: 6s}
"""
STEADY: Final = """\
name: steady
about: a load that any machine keeps
topics:
  orders: {partitions: 3}
load:
  rate: 300
  duration: 6s
  warm_up: 2s
  producers:
    shop: {client: confluent-kafka, options: {acks: all, enable.idempotence: true}}
require: {rate_ratio: 0.5}
"""
SUITE: Final = """\
name: ten-nights
about: a regression at night 6, a slowdown at night 8
cells:
  - scenarios: [steady.yaml]
    settings: {control: {load.rate: 301}}
    rounds: 3
    control: true
    runtimes: [process]
  - scenarios: [group.yaml]
    rounds: 3
    runtimes: [process]
  - scenarios: [steady.yaml]
    settings: {limited: LIMITED}
    rounds: 3
    runtimes: [process]
"""
LIMIT: Final = (
    "{faults: [{fault: cpu-limit, target: all, cores: 0.05, at: 0s, for: 6s, together: true}]}"
)


def write_suite(folder: Path, night: int) -> Path:
    """The files of a night; the names of its cells are the same every night."""
    version = AFFECTED if night >= REGRESSION else FIXED
    (folder / "group.yaml").write_text(GROUP.replace("VERSION", version))
    (folder / "steady.yaml").write_text(STEADY)
    suite = folder / "suite.yaml"
    suite.write_text(SUITE.replace("LIMITED", LIMIT if night >= SLOWDOWN else "{}"))
    return suite


def nights_of(folder: Path) -> list[Path]:
    """Folders of the nights that began, oldest first."""
    return sorted(
        path.parent for path in folder.glob("runs/*/night.json") if not path.parent.is_symlink()
    )


def play_next(folder: Path) -> None:
    """One night, as a nightly job runs it; the one that was cut short, if there is one."""
    begun = nights_of(folder)
    is_cut = bool(begun) and not (begun[-1] / "suite.json").exists()
    suite = write_suite(folder, len(begun) + (not is_cut))
    command = [
        sys.executable,
        "cli.py",
        "--run-dir",
        str(folder / "runs"),
        "suite",
        "run",
        str(suite),
    ]
    command += ["--fail-on", "new", *(["--resume"] if is_cut else [])]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"night {len(nights_of(folder))} ended with exit code {done.returncode}")


def told(folder: Path) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """(number, report, suite document) of each night that is over."""
    for number, night in enumerate(nights_of(folder), start=1):
        if (night / "suite.json").exists():
            yield (
                number,
                *(json.loads((night / name).read_text()) for name in ("report.json", "suite.json")),
            )


def table(folder: Path) -> tuple[list[str], list[str]]:
    """(the nights as Markdown, what was reported wrongly or was not reported)."""
    lines = [
        "| night | cells | exit code of `--fail-on new` | told | took |",
        "|---|---|---|---|---|",
    ]
    ids: list[str] = []
    wrong: list[str] = []
    missing = dict(TRUTH)
    for number, report, suite in told(folder):
        ids.append(report["night"])
        fresh = [change for change in report["changes"] if change["told"] == report["night"]]
        for change in fresh:
            at = ids.index(change["at"]) + 1
            key = (change["kind"], change["cell"])
            missing.pop(key, None)
            if not change["machine"] and TRUTH.get(key) != at:
                wrong.append(
                    f"night {number}: {change['subject']} of {change['cell']} at night {at}"
                )
        words = ", ".join(f"{count} {word}" for word, count in report["words"].items())
        took = datetime.fromisoformat(suite["ended"]) - datetime.fromisoformat(suite["started"])
        said = report["headline"].partition(": ")[2]
        for place, night in enumerate(ids, start=1):
            said = said.replace(night, f"night {place}")
        lines.append(f"| {number} | {words} | {suite['exit_code']} | {said} | {took.seconds} s |")
    late = {key: at for key, at in missing.items() if at < len(ids)}
    wrong += [f"not told: {kind} of {cell} since night {at}" for (kind, cell), at in late.items()]
    return lines, wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--nights", type=int, default=NIGHTS, help="how many more (default: all that are left)"
    )
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(min(given.nights, NIGHTS - sum(1 for _ in told(folder)))):
        play_next(folder)
    lines, wrong = table(folder)
    print("\n".join([*lines, "", *(wrong or ["Nothing else was reported."])]))
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
