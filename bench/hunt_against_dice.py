"""Does a hunt find known bugs sooner than random seeds of `mix`?

python -m bench.hunt_against_dice BUDGET [BUG ...] [--seeds N] [--results FILE]

Each bug is looked for N times in each arm, in turns, from a load without faults that holds no hint.
An arm ends at the first round that shows the class of the bug, or when BUDGET (e.g. 10m) is used
up. Results are added to FILE, a line each, so that the searches can be made in pieces: what FILE
has is not played again.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

import faults
from experiments.hunt.changes import load_seconds
from experiments.plans import read_scenario, resolve_scenario
from experiments.resolved import RoundOptions
from harness.durations import parse_seconds
from harness.errors import BrokerstormError
from harness.rundir import append_jsonl, read_json, read_jsonl

ROOT: Final = Path(__file__).resolve().parents[1]
#: Bug -> the affected client, and the class that it shows.
BUGS: Final[Mapping[str, tuple[str, str]]] = {
    "sarama-2377": ("sarama@1.37.2", "hang"),
    "sarama-2619": ("sarama@1.43.3", "producer-reorder"),
    "kafkajs-1050": ("kafkajs@1.16.0", "acked-lost"),
    "aiokafka-1134": ("aiokafka@0.12.0", "hang"),
    "franz-go-777": ("franz-go@1.17.0", "hang"),
    "librdkafka-4736": ("confluent-kafka@2.4.0", "client-died"),
    "nats.go-1812": ("nats.go@1.39.1", "hang"),
    "pulsar-client-go-1181": ("pulsar-client-go@0.12.1", "backlog-stuck"),
    "pulsar-client-go-1332": ("pulsar-client-go@0.16.0", "hang"),
    "pulsar-client-577": ("pulsar-client@3.12.0", "backlog-stuck"),
}
#: Seconds from one fault of a mix to the next, and until the first one.
_EVERY_S, _FROM_S = 3, 1
_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BugSearch:
    """One search for a bug.

    Attributes:
        rounds: that were played.
        hit_round, hit_s: the round that showed it, and the seconds until it was judged, without the
            start of the first cluster; None = it was not found.
    """

    bug: str
    arm: str
    seed: int
    rounds: int
    hit_round: int | None
    hit_s: float | None

    @property
    def text(self) -> str:
        """Return the result in words."""
        if self.hit_s is None:
            return f"not found in {self.rounds} rounds"
        return f"found in round {self.hit_round}, after {self.hit_s:.0f} s"


def hunted(bug: str, seed: int, budget_s: float, runs: Path) -> BugSearch:
    """A hunt, which is ended at the first hit."""
    client, _ = BUGS[bug]
    words = ["hunt", "--client", client, "--reference", "none"]
    return _played(bug, "hunt", seed, [*words, "--budget", f"{budget_s:g}s"], runs)


def diced(bug: str, seed: int, budget_s: float, runs: Path) -> BugSearch:
    """Random seeds of a mix of the faults that a hunt of the same client chooses from."""
    if not (runs / f"{bug}-hunt-{seed}").exists():  # its result is known from before
        hunted(bug, seed, budget_s, runs)
    asked = read_json(_newest(runs / f"{bug}-hunt-{seed}") / "experiment.json")["asked"]
    path = runs / f"{bug}-dice-{seed}.yaml"
    path.write_text(yaml.safe_dump(_dice(asked["data"], asked["kinds"], seed, path)))
    words = ["run", str(path), "--until-hit", "--rounds", "1000"]
    return _played(bug, "dice", seed, [*words, "--max-time", f"{budget_s:g}s"], runs)


def _dice(data: Mapping[str, Any], kinds: Sequence[str], seed: int, path: Path) -> dict[str, Any]:
    """The load that a hunt begins with, and a mix of its kinds of fault."""
    path.write_text(yaml.safe_dump(dict(data)))
    resolved = resolve_scenario(read_scenario(str(path)), RoundOptions(), seed=seed, rounds=1)
    inventory = resolved.timelines[0].inventory
    steps = []
    for kind in kinds:
        rng, length_s = random.Random(f"{seed} {kind}"), load_seconds(dict(data))
        step = {**faults.draw_step(kind, inventory, rng, length_s)}
        step.pop("at", None)
        made = _mix([step])
        try:
            faults.compile([made], inventory, seed=seed, load_s=length_s)
        except BrokerstormError:
            continue
        steps.append(step)
    return {**data, "faults": [_mix(steps)]}


def _mix(steps: list[Any]) -> dict[str, Any]:
    return {"mix": {"of": steps, "every": _EVERY_S, "from": _FROM_S, "jitter": _EVERY_S / 2}}


def _played(bug: str, arm: str, seed: int, words: Sequence[str], runs: Path) -> BugSearch:
    """One arm, ended by SIGINT at its first hit."""
    folder = runs / f"{bug}-{arm}-{seed}"
    command = [str(ROOT / "brokerstorm"), "--quiet", "--run-dir", str(folder), *words]
    process = subprocess.Popen(
        [*command, "--seed", str(seed), "--runtime", "process"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None and _first_hit(bug, folder) is None:
            time.sleep(_POLL_S)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
    hit = _first_hit(bug, folder)
    rounds = len(_rounds(folder))
    return BugSearch(
        bug=bug, arm=arm, seed=seed, rounds=rounds, hit_round=hit and hit[0], hit_s=hit and hit[1]
    )


def _first_hit(bug: str, folder: Path) -> tuple[int, float] | None:
    """The first round that shows the class of a bug, and the seconds of all rounds until it."""
    took_s = 0.0
    for number, row in enumerate(_rounds(folder), 1):
        took_s += row["duration_s"]
        if BUGS[bug][1] in ((row.get("run") or {}).get("violations") or {}):
            return number, round(took_s, 1)
    return None


def _rounds(folder: Path) -> list[dict[str, Any]]:
    root = _newest(folder)
    return read_jsonl(root / "rounds.jsonl") if (root / "rounds.jsonl").exists() else []


def _newest(folder: Path) -> Path:
    found = sorted(path.parent for path in folder.glob("*/experiment.json"))
    found += sorted(path.parent for path in folder.glob("*/rounds.jsonl"))
    return found[-1] if found else folder


_ARMS: Final[Sequence[tuple[str, Callable[[str, int, float, Path], BugSearch]]]] = (
    ("hunt", hunted),
    ("dice", diced),
)


def _table(found: Sequence[BugSearch]) -> Iterator[str]:
    """Rows of Markdown: for each bug and arm, how often it was found and the median."""
    yield "| bug | arm | found | rounds, median | seconds, median |"
    yield "|---|---|---|---|---|"
    for bug in dict.fromkeys(each.bug for each in found):
        for arm, _ in _ARMS:
            own = [each for each in found if (each.bug, each.arm) == (bug, arm)]
            hits = [(each.hit_round, each.hit_s) for each in own if each.hit_s is not None]
            rounds = f"{median(n for n, _ in hits if n is not None):g}" if hits else "-"
            seconds = f"{median(s for _, s in hits if s is not None):.0f}" if hits else "-"
            yield f"| {bug} | {arm} | {len(hits)} of {len(own)} | {rounds} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("budget", type=parse_seconds)
    parser.add_argument("bugs", nargs="*", choices=[*BUGS, []], default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path("hunt-against-dice.jsonl"))
    asked = parser.parse_args()
    rows = read_jsonl(asked.results) if asked.results.exists() else []
    found = [BugSearch(**row) for row in rows]
    done = {(each.bug, each.arm, each.seed) for each in found}
    with tempfile.TemporaryDirectory(prefix="brokerstorm-hunts-") as temporary:
        for seed in range(1, asked.seeds + 1):
            for bug in asked.bugs or BUGS:
                for arm, search in _ARMS:
                    if (bug, arm, seed) in done:
                        continue
                    one = search(bug, seed, float(asked.budget), Path(temporary))
                    print(f"{bug} seed {seed} {arm}: {one.text}", file=sys.stderr)
                    append_jsonl(asked.results, asdict(one), sync=True)
                    found.append(one)
    print("\n".join(_table(found)))


if __name__ == "__main__":
    main()
