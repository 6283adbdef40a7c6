"""Does a hunt find known bugs sooner than random seeds of `mix`?

python -m bench.hunt_against_dice BUDGET [BUG ...] [--seeds N] [--results FILE] [--runs DIR]
                                  [--searches N] [--arm hunt|dice]

Each bug is looked for N times in each arm, in turns, from a load without faults that holds no hint.
An arm ends at the first round that shows the class of the bug, or when its rounds have taken BUDGET
(e.g. 10m). Results are added to FILE, a line each, so that the searches can be made in pieces, of
`--searches` each: what FILE has with the same budget is not played again; `--arm` makes the
searches of one arm only.
DIR keeps the rounds; the default is a folder that is removed.
"""

from __future__ import annotations

import argparse
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import yaml

import faults
from analysis.classes import CLASSES
from experiments.hunt.changes import load_seconds
from experiments.plans import read_scenario, resolve_scenario
from experiments.resolved import RoundOptions, cluster_of, refuse_impossible
from harness.durations import parse_seconds
from harness.errors import BrokerstormError, Exit
from harness.rundir import append_jsonl, read_json, read_jsonl

if TYPE_CHECKING:
    from faults.kit.params import Inventory
    from faults.schedule.timeline import Timeline
    from harness.contracts.plan import FaultStep

ROOT: Final = Path(__file__).resolve().parents[1]
#: Bug -> the affected client, its system, and the class that it shows.
BUGS: Final[Mapping[str, tuple[str, str, str]]] = {
    "sarama-2377": ("sarama@1.37.2", "kafka", "hang"),
    "sarama-2619": ("sarama@1.43.3", "kafka", "producer-reorder"),
    "sarama-3422": ("sarama@1.47.0", "kafka", "acked-lost"),
    "kafkajs-1050": ("kafkajs@1.16.0", "kafka", "acked-lost"),
    "kafka-python-3132": ("kafka-python@3.0.8", "kafka", "stall"),
    "kafka-python-endtxn": ("kafka-python@3.0.12", "kafka", "hang"),
    "aiokafka-1134": ("aiokafka@0.12.0", "kafka", "hang"),
    "franz-go-777": ("franz-go@1.17.0", "kafka", "hang"),
    "franz-go-endtxn": ("franz-go@1.21.5", "kafka", "mixed-transaction"),
    "librdkafka-4736": ("confluent-kafka@2.4.0", "kafka", "client-died"),
    "librdkafka-4953": ("confluent-kafka@2.16.1", "kafka", "write-duplicate"),
    "librdkafka-crc": ("confluent-kafka@2.16.1", "kafka", "client-died"),
    "nats.go-1812": ("nats.go@1.39.1", "nats", "hang"),
    "amqp091-go-nack": ("amqp091-go@1.16.0", "rabbitmq", "acked-lost"),
    "amqp091-go-183": ("amqp091-go@1.7.0", "qpid", "hang"),
    "qpid-2703": ("qpid-jms-legacy@qpid-client 0.12", "qpid", "acked-lost"),
    "pulsar-18911": ("pulsar-client-java@2.11.4", "pulsar", "premature-redelivery"),
    "pulsar-client-228": ("pulsar-client@3.1.0", "pulsar", "backlog-stuck"),
    "pulsar-client-go-1252": ("pulsar-client-go@0.13.0", "pulsar", "dedup-silent-loss"),
    "pulsar-client-go-1181": ("pulsar-client-go@0.12.0", "pulsar", "backlog-stuck"),
    "pulsar-client-go-1332": ("pulsar-client-go@0.16.0", "pulsar", "hang"),
    "pulsar-client-577": ("pulsar-client@3.12.0", "pulsar", "backlog-stuck"),
}
#: Bug -> settings of the brokers that it needs, in both arms; a hunt does not change brokers.
_SETTINGS: Final[Mapping[str, Sequence[str]]] = {
    "pulsar-client-go-1252": ["cluster.config.brokerDeduplicationEnabled=true"],
}
#: Seconds from one fault of a mix to the next, and until the first one.
_EVERY_S, _FROM_S = 3, 1
_POLL_S: Final = 1.0
#: Steps of a kind of fault that are drawn until one is possible.
_STEPS: Final = 5
#: A budget with which a hunt plays one round.
_ONE_ROUND_S: Final = 20.0
#: Exit codes of a hunt or a run that played its rounds, or was ended by SIGINT; the last one if it
#: was ending by itself at that moment.
_ENDS: Final = (Exit.PASS, Exit.FAIL, Exit.UNKNOWN, Exit.INTERRUPTED, -signal.SIGINT)
#: Of a page.
_COLUMNS: Final = 120
#: No round is shorter.
_SHORTEST_ROUND_S: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class BugSearch:
    """One search for a bug.

    Attributes:
        budget_s: seconds of rounds after which the search ends.
        rounds: that were played.
        hit_round, hit_s: the round that showed it, and the seconds that all rounds until then took;
            None = it was not found.
        spent_s: seconds that all rounds took.
        classes: class -> the first round that violated a promise by it.
    """

    bug: str
    arm: str
    seed: int
    budget_s: float
    rounds: int
    hit_round: int | None
    hit_s: float | None
    spent_s: float = 0.0
    classes: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the result in words."""
        if self.hit_s is None:
            return f"not found in {self.rounds} rounds, {self.spent_s:.0f} s"
        return f"found in round {self.hit_round}, after {self.hit_s:.0f} s"


def hunted(bug: str, seed: int, budget_s: float, runs: Path) -> BugSearch:
    """A hunt, which is ended at the first hit. As the dice do, it continues after an anomaly of
    another class without playing it again."""
    client, system, wanted = BUGS[bug]
    words = ["hunt", "--client", client, "--system", system, "--reference", "none"]
    # As the dice, it is ended from here: by itself, it ends before a round that may not fit.
    words += ["--budget", f"{2 * budget_s:g}s"]
    words += [word for cls in CLASSES if cls != wanted for word in ("--known", cls)]
    words += [word for each in _SETTINGS.get(bug, ()) for word in ("--set", each)]
    return _played(bug, "hunt", seed, words, budget_s, runs)


def diced(bug: str, seed: int, budget_s: float, runs: Path) -> BugSearch:
    """Random seeds of a mix of the faults that a hunt of the same client chooses from."""
    asked = _asked(bug, runs)
    if asked is None:  # the hunts are of another piece
        hunted(bug, seed, _ONE_ROUND_S, runs)
        asked = _asked(bug, runs)
    assert asked is not None, f"no hunt of {bug} can be started"
    path = runs / f"{bug}-dice-{seed}.yaml"
    path.write_text(yaml.safe_dump(_dice(asked["data"], asked["kinds"], seed, path)))
    # Unlike --until-hit, this continues after an anomaly of another class.
    words = ["run", str(path), "--rounds", str(int(budget_s / _SHORTEST_ROUND_S) + 1)]
    return _played(bug, "dice", seed, words, budget_s, runs)


def _asked(bug: str, runs: Path) -> dict[str, Any] | None:
    """What a hunt of a bug began with; None if there was none in this folder."""
    for folder in sorted(runs.glob(f"{bug}-hunt-*")):
        path = _newest(folder) / "experiment.json"
        if path.exists():
            asked: dict[str, Any] = read_json(path)["asked"]
            return asked
    return None


def _dice(data: Mapping[str, Any], kinds: Sequence[str], seed: int, path: Path) -> dict[str, Any]:
    """The load that a hunt begins with, and a mix of its kinds of fault."""
    inventory = _planned(data, seed, path).inventory
    steps = [
        step
        for kind in kinds
        if (step := _possible_step(kind, inventory, data, seed, path)) is not None
    ]
    return {**data, "faults": [_mix(steps)]}


def _possible_step(
    kind: str, inventory: Inventory, data: Mapping[str, Any], seed: int, path: Path
) -> FaultStep | None:
    """The first of a few steps of a kind that this cluster can have in a mix; None if it can have
    none of them."""
    rng = random.Random(f"{seed} {kind}")
    for _ in range(_STEPS):
        step = {**faults.draw_step(kind, inventory, rng, load_seconds(dict(data)))}
        step.pop("at", None)
        try:
            _planned({**data, "faults": [_mix([step])]}, seed, path)
        except BrokerstormError:
            continue
        return step
    return None


def _planned(data: Mapping[str, Any], seed: int, path: Path) -> Timeline:
    """The faults of a scenario.

    Raises:
        BrokerstormError: its cluster cannot have them.
    """
    path.write_text(yaml.safe_dump(dict(data)))
    resolved = resolve_scenario(read_scenario(str(path)), RoundOptions(), seed=seed, rounds=1)
    (plan,), (timeline,) = resolved.plans, resolved.timelines
    refuse_impossible(timeline, cluster_of(plan), resolved.checked_runtime, plan.broker_config)
    return timeline


def _mix(steps: Sequence[FaultStep]) -> dict[str, Any]:
    return {"mix": {"of": [*steps], "every": _EVERY_S, "from": _FROM_S, "jitter": _EVERY_S / 2}}


def _played(
    bug: str, arm: str, seed: int, words: Sequence[str], budget_s: float, runs: Path
) -> BugSearch:
    """One arm, ended by SIGINT at its first hit, or when its rounds have taken the budget."""
    folder = runs / f"{bug}-{arm}-{seed}"
    command = [str(ROOT / "brokerstorm"), "--quiet", "--run-dir", str(folder), *words]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--seed", str(seed), "--runtime", "process"],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        while process.poll() is None and _first_hit(bug, folder) is None:
            if sum(row["duration_s"] for row in _rounds(folder)) >= budget_s:
                break
            time.sleep(_POLL_S)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
    hit = _first_hit(bug, folder)
    rows = _rounds(folder)
    if not rows or process.returncode not in _ENDS:
        raise SystemExit(f"{bug}: {shlex.join(command)} failed; see {folder / 'stderr.log'}")
    return BugSearch(
        bug=bug,
        arm=arm,
        seed=seed,
        budget_s=budget_s,
        rounds=len(rows),
        hit_round=hit and hit[0],
        hit_s=hit and hit[1],
        spent_s=round(sum(row["duration_s"] for row in rows), 1),
        classes={
            cls: number
            for number, row in reversed([*enumerate(rows, 1)])
            for cls in _violations(row)
        },
    )


def _first_hit(bug: str, folder: Path) -> tuple[int, float] | None:
    """The first round that shows the class of a bug, and the seconds of all rounds until it."""
    took_s = 0.0
    for number, row in enumerate(_rounds(folder), 1):
        took_s += row["duration_s"]
        if BUGS[bug][2] in _violations(row):
            return number, round(took_s, 1)
    return None


def _violations(row: Mapping[str, Any]) -> Mapping[str, int]:
    """The classes by which a round violated a promise."""
    return (row.get("run") or {}).get("violations") or {}


def _rounds(folder: Path) -> list[dict[str, Any]]:
    root = _newest(folder)
    return read_jsonl(root / "rounds.jsonl") if (root / "rounds.jsonl").exists() else []


def _newest(folder: Path) -> Path:
    found = sorted(path.parent for path in folder.glob("*/experiment.json"))
    found += sorted(path.parent for path in folder.glob("*/rounds.jsonl"))
    return found[-1] if found else folder


def results(path: Path) -> list[BugSearch]:
    """Return the searches in a file of results; none if it is missing."""
    return [BugSearch(**row) for row in read_jsonl(path)] if path.exists() else []


_WAYS: Final = {"hunt": "the hunt", "dice": "random faults"}
_ARMS: Final[Sequence[tuple[str, Callable[[str, int, float, Path], BugSearch]]]] = (
    ("hunt", hunted),
    ("dice", diced),
)


def table(found: Sequence[BugSearch]) -> list[str]:
    """Return the results in lines of Markdown, as the page about hunts has them: how often each bug
    was found in each way, the medians, and which way found more.

    Searches with different budgets have rows of their own. In the sums, a bug counts with the
    largest budget that both ways had.
    """
    lines = ["| bug | budget, s | way | found | rounds, median | seconds, median | other classes |"]
    lines.append("|---|---|---|---|---|---|---|")
    compared: dict[str, Mapping[str, Sequence[BugSearch]]] = {}
    for bug, budget_s in sorted({(each.bug, each.budget_s) for each in found}):
        asked = [each for each in found if (each.bug, each.budget_s) == (bug, budget_s)]
        ways = {arm: own for arm, _ in _ARMS if (own := [e for e in asked if e.arm == arm])}
        lines += [_row(own) for own in ways.values()]
        if len(ways) == len(_ARMS):
            compared[bug] = ways
    first = {
        bug: {
            arm: median(each.hit_round for each in own if each.hit_round)
            for arm, own in ways.items()
            if any(each.hit_round for each in own)
        }
        for bug, ways in compared.items()
    }
    spent = {
        bug: {
            arm: median(each.hit_round or each.rounds for each in own) for arm, own in ways.items()
        }
        for bug, ways in compared.items()
    }
    wrapped = (
        textwrap.wrap(line, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
        for line in _summary(first, spent)
    )
    return [*lines, "", *chain.from_iterable(wrapped)]


def _row(own: Sequence[BugSearch]) -> str:
    """A line of the table: the searches for one bug in one way with one budget."""
    bug = own[0].bug
    hits = [each for each in own if each.hit_s is not None]
    played = median(each.hit_round or each.rounds for each in hits or own)
    took_s = median(each.hit_s or each.spent_s for each in hits or own)
    others = Counter(cls for each in own for cls in each.classes if cls != BUGS[bug][2])
    more = ", ".join(f"*{cls}* {n}" for cls, n in others.items()) or "none"
    way = _WAYS[own[0].arm].removeprefix("the ")
    return (
        f"| `{bug}` | {own[0].budget_s:g} | {way} | {len(hits)} of {len(own)} "
        f"| {played:g} | {took_s:.0f} | {more} |"
    )


def _summary(
    first: Mapping[str, Mapping[str, float]], spent: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """Lines that compare the two ways.

    Args:
        first: bug -> way -> the round of its first hit, where it was found.
        spent: bug -> way -> the same over all searches; one without a hit counts with its rounds.
    """
    ratios = [each["hunt"] / each["dice"] for each in first.values() if len(each) == len(_ARMS)]
    if ratios:
        yield (
            f"- Bugs that were found in both ways: {len(ratios)}. The hunt needed "
            f"{median(ratios):.2g} times the rounds in the median."
        )
    if found := [spent[bug] for bug, each in first.items() if each]:
        rounds = median(each["hunt"] / each["dice"] for each in found)
        yield (
            f"- Bugs that were found in one way at least: {len(found)}. If a way that did not find a bug "
            "counts with the rounds that it played, the hunt needed "
            f"{rounds:.2g} times the rounds in the median."
        )
    for arm, way in _WAYS.items():
        yield f"- Only {way} found: {_names(bug for bug, each in first.items() if [*each] == [arm])}."
    yield f"- Neither way found: {_names(bug for bug, each in first.items() if not each)}."


def _names(bugs: Iterable[str]) -> str:
    return ", ".join(f"`{bug}`" for bug in sorted(bugs)) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("budget", type=parse_seconds)
    parser.add_argument("bugs", nargs="*", choices=[*BUGS, []], default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path("hunt-against-dice.jsonl"))
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--searches", type=int, help="searches to make now; default: all")
    parser.add_argument("--arm", choices=[name for name, _ in _ARMS], help="default: both")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the search under way is ended, too
    found = results(asked.results)
    budget_s = float(asked.budget)
    done = {(each.bug, each.arm, each.seed, each.budget_s) for each in found}
    with tempfile.TemporaryDirectory(prefix="brokerstorm-hunts-") as temporary:
        runs = asked.runs or Path(temporary)
        runs.mkdir(parents=True, exist_ok=True)
        left = [
            (bug, seed, arm, search)
            for seed in range(1, asked.seeds + 1)
            for bug in asked.bugs or BUGS
            for arm, search in _ARMS
            if asked.arm in (None, arm) and (bug, arm, seed, budget_s) not in done
        ]
        for bug, seed, arm, search in left[: asked.searches]:
            one = search(bug, seed, budget_s, runs)
            print(f"{bug} seed {seed} {arm}: {one.text}", file=sys.stderr)
            append_jsonl(asked.results, asdict(one), sync=True)
            found.append(one)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
