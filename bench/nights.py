"""False alarms and detection delay of the nightly's changes, over simulated nights whose truth is
known.

    python -m bench.nights                    200 nights of 50 cells, several seeds; prints Markdown
    python -m bench.nights --rounds 1         with one round a cell and night
    python -m bench.nights --page PAGE.html   365 nights of 50 cells as a page: size and time
                                              Chromium needs to draw it
    python -m bench.nights --plan             `suite plan` of 1,000 cells: time and CPU time

Of 50 cells two are controls. Figures are log-normal with the spread of a small shared machine, one
night in fifty five times that. The machine is slow for three nights in every forty: all cells, and
the controls with them.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from math import exp, sqrt
from pathlib import Path
from statistics import median
from typing import Final

from experiments.history.changes import Change, Story, story_of
from experiments.history.page import write_suite_page
from experiments.history.report import report_of
from experiments.history.rounds import Found, Round

ROOT = Path(__file__).resolve().parents[1]
CELLS, CONTROLS, NIGHTS = 50, 2, 200
FIRST = date(2026, 1, 1)
LOST = "acked-lost"
#: Nights after which a change that has not been told counts as missed.
MISSED_AFTER = 30


@dataclass(frozen=True, slots=True)
class SimulatedCell:
    """The truth about a cell: its hit rate before and from ``turn``, the same of p99, and its
    drift."""

    name: str
    kind: str
    turn: int = 0  # night of the change, from 0
    rates: tuple[float, float] = (0.0, 0.0)
    slower: float = 1.0
    drift: float = 0.0  # of p99 a night
    wanders: float = 0.0  # standard deviation of a level of its own that drifts from night to night
    is_control: bool = False


def cells(dice: random.Random, nights: int = NIGHTS) -> list[SimulatedCell]:
    """22 stable cells, 2 controls, and the rest with a truth of their own."""

    def turn() -> int:
        return dice.randrange(nights // 4, nights - 2 * MISSED_AFTER // 2)

    plain = [SimulatedCell(f"stable-{n}", "stable") for n in range(CELLS - CONTROLS - 26)]
    plain += [SimulatedCell(f"control-{n}", "control", is_control=True) for n in range(CONTROLS)]
    plain += [SimulatedCell(f"flaky-{n}", "flaky at 5 %", rates=(0.05, 0.05)) for n in range(10)]
    plain += [
        SimulatedCell(f"half-{n}", "regression to 50 %", turn(), (0.0, 0.5)) for n in range(4)
    ]
    plain += [
        SimulatedCell(f"always-{n}", "regression to 100 %", turn(), (0.0, 1.0)) for n in range(2)
    ]
    plain += [SimulatedCell(f"fixed-{n}", "fix of 50 %", turn(), (0.5, 0.0)) for n in range(4)]
    plain += [SimulatedCell(f"slower-{n}", "p99 doubles", turn(), slower=2.0) for n in range(2)]
    plain += [
        SimulatedCell(f"half-more-{n}", "p99 grows by half", turn(), slower=1.5) for n in range(2)
    ]
    return plain + [
        SimulatedCell(f"drift-{n}", "p99 drifts 1 % a night", turn(), drift=0.01) for n in range(2)
    ]


def night_of(number: int) -> str:
    """Return the date of a night, by its number."""
    return (FIRST + timedelta(days=number)).isoformat()


@dataclass(frozen=True, slots=True)
class World:
    """The correlations: share of nights whose rounds share their fate; standard deviation of the
    machine's speed, which drifts from night to night (AR(1), as ``SimulatedCell.wanders``)."""

    fate: float = 0.0
    machine: float = 0.0
    persistence: float = 0.8


INDEPENDENT: Final = World()


def wandering(dice: random.Random, spread: float, persistence: float) -> Iterator[float]:
    """A stationary AR(1) of that standard deviation."""
    level = dice.gauss(0, spread)
    while True:
        yield level
        level = persistence * level + dice.gauss(0, spread * sqrt(1 - persistence**2))


def simulated(
    seed: int,
    *,
    nights: int = NIGHTS,
    rounds: int = 3,
    world: World = INDEPENDENT,
    every: Sequence[SimulatedCell] = (),
) -> tuple[list[SimulatedCell], list[Round]]:
    """(cells with their truth, every round)."""
    dice = random.Random(seed)
    every = list(every) or cells(dice, nights)
    # Of their own dice: an independent world is drawn as it always was.
    apart = random.Random(f"{seed} drift")
    levels = {cell.name: wandering(apart, cell.wanders, world.persistence) for cell in every}
    of_machine = wandering(apart, world.machine, world.persistence)
    made = []
    for night in range(nights):
        machine = (1.6 if night % 40 in (20, 21, 22) else 1.0) * exp(next(of_machine))
        for cell in every:
            odd = 5.0 if dice.random() < 0.02 else 1.0
            level = machine * exp(next(levels[cell.name]))
            fate = apart.random() if apart.random() < world.fate else None
            made += [
                _round(dice, cell, night, number, level, odd, fate)
                for number in range(1, rounds + 1)
            ]
    return every, made


def _round(
    dice: random.Random,
    cell: SimulatedCell,
    night: int,
    number: int,
    machine: float,
    odd: float,
    fate: float | None,
) -> Round:
    has_turned = night >= cell.turn and cell.turn > 0
    luck = dice.random()
    hit = (luck if fate is None else fate) < cell.rates[has_turned]
    slower = (cell.slower if has_turned else 1.0) * (1 + cell.drift) ** max(0, night - cell.turn)
    p99 = 80.0 * slower * machine * dice.lognormvariate(0, 0.08 * odd)
    lost = Found(
        cls=LOST,
        status="violation",
        count=3,
        message="1/3/88121",
        where="orders-3",
        said="1/3/88121",
    )
    return Round(
        key=f"{night_of(night)} {cell.name} {number}",
        night=night_of(night),
        suite="simulated",
        cell=cell.name,
        scenario=cell.name,
        client="a-client",
        client_version="1.0",
        round=number,
        seed=dice.randrange(2**31),
        is_control=cell.is_control,
        folder=f"runs/{night_of(night)}/{cell.name}-{number}",
        duration_s=60.0,
        verdict="fail" if hit else "pass",
        exit_code=int(hit),
        found=[lost] if hit else [],
        rate_asked_per_s=50_000.0,
        rate_held_per_s=50_000.0 * min(1.0, dice.lognormvariate(0, 0.002)),
        latency_ms={"p50": p99 / 8, "p99": p99},
        longest_outage_s=5.0 * machine * dice.lognormvariate(0, 0.1 * odd),
        recoveries_s=[0.8 * machine * dice.lognormvariate(0, 0.25)],
        command=f"brokerstorm run {cell.name} --seed 1",
    )


@dataclass(slots=True)
class Score:
    """The reported changes, compared with the true ones."""

    nights: int = 0
    false: list[str] = field(default_factory=list)
    machine: int = 0
    delays: dict[str, list[int]] = field(default_factory=dict)  # nights until told, 1 = the first
    missed: Counter[str] = field(default_factory=Counter)

    def add(self, every: Sequence[SimulatedCell], story: Story) -> None:
        told: dict[str, list[Change]] = {}
        for change in story.changes:
            told.setdefault(change.cell, []).append(change)
        self.nights += len(story.nights)
        for cell in every:
            self._add_cell(
                cell, told.get(cell.name, []), {n: i for i, n in enumerate(story.nights)}
            )

    def _add_cell(
        self, cell: SimulatedCell, told: Sequence[Change], number: dict[str, int]
    ) -> None:
        truth = "class" if cell.rates[0] != cell.rates[1] else "p99"
        true: list[int] = []
        for change in told:
            is_of_it = cell.turn and (
                change.kind == "class" if truth == "class" else change.subject == "p99"
            )
            in_time = number[change.told] >= cell.turn and number[change.at] >= cell.turn - 2
            if change.machine:
                self.machine += 1
            elif (
                is_of_it and in_time and (cell.drift or number[change.at] <= cell.turn + 3 or true)
            ):
                true.append(number[change.told] - cell.turn + 1)
            else:
                self.false.append(
                    f"{cell.name} {change.subject} at {change.at}, told {change.told}"
                )
        if cell.turn and true and true[0] <= MISSED_AFTER * (3 if cell.drift else 1):
            self.delays.setdefault(cell.kind, []).append(true[0])
        elif cell.turn:
            self.missed[cell.kind] += 1


def measure(seeds: int, rounds: int) -> Score:
    """Simulate histories and count which changes were found."""
    score = Score()
    for seed in range(seeds):
        every, made = simulated(seed, rounds=rounds)
        score.add(every, story_of(made))
    return score


def table(score: Score) -> str:
    """Return the score as Markdown."""
    lines = [
        "| truth | cells | told on night 1 | by night 2 | median | slowest | missed |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in sorted({*score.delays, *score.missed}):
        delays = sorted(score.delays.get(kind, []))
        known = len(delays) + score.missed[kind]
        shares = [f"{sum(d <= night for d in delays) / known:.0%}" for night in (1, 2)]
        middle, worst = (f"{median(delays):g}", f"{delays[-1]}") if delays else ("-", "-")
        lines.append(
            f"| {kind} | {known} | {shares[0]} | {shares[1]} | {middle} | {worst} | "
            f"{score.missed[kind]} |"
        )
    alarms = 100 * len(score.false) / score.nights
    lines += [
        "",
        f"False alarms: {len(score.false)} in {score.nights} nights ({alarms:.2f} in 100).",
    ]
    lines.append(f"Changes told as the machine's: {score.machine}.")
    return "\n".join([*lines, *(f"  {text}" for text in score.false)])


def page(path: Path) -> str:
    """Write a year as a page; its size, and how long Chromium took to parse, lay out and paint it,
    cold."""
    nights = 365
    _, rounds = simulated(1, nights=nights)
    began = time.process_time()
    report = report_of("simulated", night_of(nights - 1), rounds, {})
    judged = time.process_time()
    write_suite_page(report, path)
    written = time.process_time()
    lines = [
        f"{nights} nights of {CELLS} cells, {len(rounds)} rounds: {path.stat().st_size / 1e6:.2f} MB",
        f"{judged - began:.1f} s of CPU to find what changed, {written - judged:.2f} s to write the page",
    ]
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if browser is None:
        return "\n".join([*lines, "no Chromium on this machine: not drawn"])
    drawn = [_drawn_ms(browser, path) for _ in range(5)]
    return "\n".join(
        [*lines, f"drawn in {median(drawn):.0f} ms (median of 5; {min(drawn)} to {max(drawn)})"]
    )


def _drawn_ms(browser: str, path: Path) -> int:
    """From the start of the navigation to a frame after the load event, by the page's own clock."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name, "page.html")
        said = "document.documentElement.dataset.drawn = Math.round(performance.now())"
        spy = f"addEventListener('load', () => setTimeout(() => {{ document.body.offsetHeight; {said} }}))"
        copy.write_text(path.read_text().replace("</body>", f"<script>{spy}</script></body>"))
        argv = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={name}/profile",
        ]
        argv += ["--window-size=1400,900", "--timeout=15000", "--dump-dom", copy.as_uri()]
        dom = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
    found = re.search(r'data-drawn="(\d+)"', dom)
    if found is None:
        raise SystemExit("the page's load event never came")
    return int(found[1])


#: 1,000 cells: 5 scenarios by 10 client and 5 broker versions and 4 settings.
THOUSAND = """\
name: thousand
cells:
  - scenarios: [kafka-smoke, kafka-quick, kafka-mix, kafka-network, kafka-storm]
    clients: {confluent-kafka: [CLIENTS]}
    brokers: {kafka: [3.6.2, 3.7.2, 3.8.1, 3.9.1, 4.1.2]}
    settings: {plain: {}, slow: {load.rate: 1000}, quiet: {load.rate: 500}, small: {load.payload: 100}}
""".replace("CLIENTS", ", ".join(f"2.{minor}.0" for minor in (5, 6, 7, 8, 9, 10, 11, 12, 13, 15)))


def planned() -> str:
    """Five times `suite plan` of `THOUSAND`, with nothing asked of a package index."""
    lines = []
    with tempfile.TemporaryDirectory() as name:
        suite = Path(name, "thousand.yaml")
        suite.write_text(THOUSAND)
        command = [
            sys.executable,
            "cli.py",
            "--run-dir",
            name,
            "suite",
            "plan",
            str(suite),
            "--offline",
        ]
        for _ in range(5):
            began, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            said = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout
            took_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
            lines.append(
                f"{said.splitlines()[-1]}: planned in {took_s:.2f} s, {cpu_s:.2f} s of CPU"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--plan", action="store_true")
    given = parser.parse_args()
    if given.plan:
        print(planned())
        return
    if given.page:
        print(page(given.page))
        return
    began = time.process_time()
    print(table(measure(given.seeds, given.rounds)))
    print(f"{time.process_time() - began:.1f} s of CPU")


if __name__ == "__main__":
    main()
