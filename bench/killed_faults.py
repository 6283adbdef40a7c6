"""kill -9 of runs amid each kind of fault, then `clean`: nothing of the run may be left.

    python -m bench.killed_faults FOLDER [--kinds power-loss,clock-jump] [--kills 10] [--runtime
    process] [--system rabbitmq]

Each run has one fault, a second after its load began, for 40 s if it lasts. Up to three seconds
after the fault was injected (`--seed` draws) the command is killed, `clean RUN` is called, and this
is looked for, not by what `clean` says but by the machine: processes that say they are the run's or
have its folder in their environment (a preloaded clock, too), mounts, loop devices, control groups,
packet filters, containers, addresses, entries of the ledger, data of brokers. That the next run
comes to its fault shows that a cluster starts again. Exit code 1 if anything is left, or a run does
not come to its fault. Kinds that this machine lacks something for are reported and left out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from faults.kinds import KINDS
from faults.kit.params import keys_of
from harness.clusters.leftovers import find
from harness.clusters.limits.groups import groups_left
from harness.errors import Exit
from harness.rundir import RunDir, read_jsonl
from harness.systems import DEFAULT, SYSTEMS
from harness.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
#: A kind's own: its system, cluster and keys of its step, where they are not the defaults.
_SHOWN: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_TOPIC: Final = {DEFAULT.name: {"partitions": 3, "replication": 2, "grows_to": 6}}
#: An application under test, where a fault is about one; ``to`` and ``env`` are the kind's.
_APPLICATION: Final = {
    "run": ["{python}", str(ROOT / "scenarios/applications/python/invoices.py")],
    "instances": 2,
    "ready": {"log": "started"},
    "from": "orders",
}
_LASTS: Final = "40s"
_AMID_S: Final = 3.0
#: From the start of the command to its fault, images and downloads not counted.
_BEGINS_S: Final = 180.0
_POLL_S: Final = 0.05


def scenario(kind: str, on: str = "") -> dict[str, Any]:
    """A short load with one fault of a kind.

    Args:
        on: the system; empty = the kind's own.
    """
    shown = _SHOWN.get(kind, {})
    if on:
        shown = {**shown.get("systems", {}).get(on, {}), "system": on}
    system = shown.get("system", DEFAULT.name)
    lasts = dict.fromkeys({"for", "down"} & set(keys_of(KINDS[kind].params)), _LASTS)
    step = {"fault": kind, "at": "1s", **lasts, **shown.get("step", {})}
    application = shown.get("application")
    topic = {} if application else _TOPIC.get(system, {"replication": 3} if on else {})
    return {
        "name": "killed",
        "system": system,
        "cluster": shown.get("cluster", {}),
        "topics": {name: topic for name in ("orders", *shown.get("topics", ()))},
        "load": {
            "rate": 300,
            "duration": "60s",
            "warm_up": "1s",
            "producers": {"shop": {"topics": ["orders"]}},
            "consumers": {"billing": {"group": "billing", "topics": ["orders"]}},
        },
        "applications": {"invoices": {**_APPLICATION, **application}} if application else {},
        "faults": [step],
    }


@dataclass(frozen=True, slots=True)
class KilledRun:
    """``begun_s``: from the start to the fault; ``amid_s``: from there to the kill."""

    begun_s: float
    amid_s: float
    clean_s: float
    left: tuple[str, ...]


class NotPossible(Exception):
    """The fault is not possible on this machine; the text says why."""


def _command(runs: Path, *words: str) -> list[str]:
    return [sys.executable, "cli.py", "--run-dir", str(runs), *words]


def _injected(runs: Path) -> RunDir | None:
    """The run, once its fault is injected."""
    for path in runs.glob("*/**/faults.jsonl"):
        if any(row["event"] == "inject" for row in read_jsonl(path)):
            return RunDir(path.resolve().parent)  # not by the link to the latest run
    return None


def kill(folder: Path, kind: str, on: str, runtime: str, amid_s: float) -> KilledRun:
    """Start a run, kill it amid its fault, clean up, and look.

    Args:
        on: as `scenario`.

    Raises:
        NotPossible: the machine lacks something.
        RuntimeError: the run ended before its fault, or none came.
    """
    folder.mkdir(parents=True)
    runs, file = folder / "runs", folder / f"{kind}.yaml"
    file.write_text(json.dumps(scenario(kind, on), indent=1))  # JSON is YAML
    begun_s = time.monotonic()
    command = _command(runs, "run", str(file), "--offline", "--runtime", runtime)
    log = folder / "said.log"
    with (
        log.open("w") as said,
        subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said) as run,
    ):
        try:
            wait_until(
                lambda: _injected(runs) or run.poll() is not None, _BEGINS_S, every_s=_POLL_S
            )
            injected = _injected(runs)
            fault_s = time.monotonic()
            if injected is not None:
                time.sleep(amid_s)
        finally:
            run.kill()
    last = " ".join(log.read_text().splitlines()[-2:]) or "it said nothing"
    if run.returncode == Exit.ENVIRONMENT:
        raise NotPossible(last)
    if injected is None or run.returncode != -9:
        raise RuntimeError(
            f"no fault to be killed in: {last} (exit code {run.returncode}); see {log}"
        )
    run_id = injected.root.relative_to(runs).parts[0]
    cleaned_s = time.monotonic()
    clean = subprocess.run(
        _command(runs, "clean", run_id), cwd=ROOT, capture_output=True, text=True
    )
    took_s = time.monotonic() - cleaned_s
    wrong = list(left(run_id, folder))
    if clean.returncode:
        wrong.append(f"clean ended with {clean.returncode}: {clean.stderr.strip()}")
    return KilledRun(fault_s - begun_s, cleaned_s - fault_s, took_s, tuple(wrong))


def left(run_id: str, folder: Path) -> Iterator[str]:
    """Yield what is left of a run: its resources, and processes, mounts and loop devices of
    ``folder``."""
    yield from (one.describe() for one in find(run_id))
    here = f"{folder}/"
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(here in word for word in words):
            yield f"process {process.pid} ({process.name()})"
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    yield from (f"mount {line}" for line in mounts if here in line)
    for device in Path("/sys/block").glob("loop*/loop/backing_file"):
        if here in (file := device.read_text().strip()):
            yield f"{device.parts[3]} of {file}"
    yield from (f"control group {path}" for _, path in groups_left(run_id))
    if shutil.which("iptables-save"):
        rules = subprocess.run(
            ["iptables-save"], capture_output=True, text=True, check=False
        ).stdout
        yield from (f"packet filter {line}" for line in rules.splitlines() if run_id in line)
    for pattern, what in (("ledger/*.json", "ledger"), ("cluster/*/data", "data")):
        yield from (f"{what} {path}" for path in folder.glob(f"runs/**/{pattern}"))


def show(
    folder: Path, kind: str, on: str, runtime: str, kills: int, draw: random.Random
) -> tuple[str, ...]:
    """Kill runs of a kind, and tell of each; what is left."""
    done: list[KilledRun] = []
    for number in range(1, kills + 1):
        try:
            one = kill(folder / f"{kind}-{number}", kind, on, runtime, draw.uniform(0, _AMID_S))
        except NotPossible as why:
            print(f"{kind}: left out: {why}", flush=True)
            return ()
        except RuntimeError as error:
            print(f"{kind} {number}: {error}", flush=True)
            return (*(text for each in done for text in each.left), f"{kind}: {error}")
        done.append(one)
        text = "; ".join(one.left) or "nothing is left"
        times = f"killed {one.amid_s:.1f} s into it, clean in {one.clean_s:.1f} s"
        print(f"{kind} {number}: {times}: {text}", flush=True)
    whole_s = statistics.median(one.begun_s + one.amid_s + one.clean_s for one in done)
    print(f"{kind}: {len(done)} kills, {whole_s:.0f} s each", flush=True)
    return tuple(f"{kind}: {text}" for one in done for text in one.left)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--system", choices=SYSTEMS, default="")
    parser.add_argument("--runtime", choices=("process", "docker"), default="process")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := [kind for kind in given.kinds if kind not in KINDS]:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    folder = given.folder.resolve()
    if folder.exists():
        parser.error(f"{folder} is there already: each run is to have a folder of its own")
    wrong: list[str] = []
    for kind in given.kinds:
        draw = random.Random(f"{given.seed}:{kind}")
        wrong += show(folder, kind, given.system, given.runtime, given.kills, draw)
    print("\n".join(wrong) or "nothing is left of any")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
