"""kill -9 of `suite run` at random moments on live brokers, and --resume each time: every round
once.

    python -m bench.killed_nights FOLDER --kills 10    (or --kills 5 twice: FOLDER remembers)

The suite is eight rounds of a load without faults. A night that is over before the last kill is
followed by another one. At each kill it is noted which rounds were finished. After each night it is
checked that those were not run again, that every round is in the history once, with the planned
seed and the verdict of its folder, that the history is whole, and that no process of the night is
left. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import psutil

from bench.live_nights import ROOT, STEADY, nights_of
from harness.rundir import read_jsonl

SUITE: Final = """\
name: killed
cells:
  - scenarios: [steady.yaml]
    settings: {one: {load.duration: 2s, load.warm_up: 1s}, two: {load.duration: 3s, load.warm_up: 1s}}
    rounds: 4
    runtimes: [process]
"""
#: A kill comes this many seconds after the start, evenly spread: before the cluster is up, or
#: rounds later.
FIRST_S, LAST_S = 2.0, 180.0


def play(folder: Path, kill_after_s: float | None, *, resume: bool) -> tuple[bool, str]:
    """Start or continue a night, and kill it; (whether it ended before, the last line it said)."""
    command = [sys.executable, "cli.py", "--run-dir", str(folder / "runs"), "suite", "run"]
    command += [str(folder / "suite.yaml"), "--offline", *(["--resume"] if resume else [])]
    log = folder / "said.log"
    start = log.stat().st_size if log.exists() else 0
    with (
        log.open("a") as said,
        subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said) as night,
    ):
        try:
            night.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            night.kill()
    lines = log.read_bytes()[start:].decode().splitlines() or ["- before it said anything"]
    if night.returncode in (0, 1, 3):
        return True, lines[-1]
    if night.returncode != -9:
        raise SystemExit(f"ended with exit code {night.returncode}: {lines[-1]}")
    return False, lines[-1].partition(" ")[2]


def finished(night: Path) -> dict[str, Any]:
    """Rounds that are finished, and how."""
    return {row["folder"]: row for row in read_jsonl(night / "rounds.jsonl")}


def faults_of(folder: Path, night: Path, kills: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with a night that is over."""
    planned = {
        turn["folder"]: turn for turn in json.loads((night / "night.json").read_text())["turns"]
    }
    ended, wrong = finished(night), []
    if set(ended) != set(planned):
        wrong.append(f"finished {sorted(ended)}, planned {sorted(planned)}")
    for kill in (kill for kill in kills if kill["night"] == night.name):
        wrong += [
            f"{name} was run again"
            for name, each in kill["finished"].items()
            if ended[name] != each
        ]
    with sqlite3.connect(folder / "runs" / "history.sqlite") as history:
        query = "SELECT cell, round, seed, verdict, folder FROM rounds WHERE night = ? ORDER BY cell, round"
        rows = history.execute(query, (night.name,)).fetchall()
        (sound,) = history.execute("PRAGMA integrity_check").fetchone()
    wrong += [] if sound == "ok" else [f"the history: {sound}"]
    wanted = sorted(
        (
            each["cell"],
            each["number"],
            planned[name]["seed"],
            each["verdict"],
            str(night / each["folder"]),
        )
        for name, each in ended.items()
    )
    if rows != wanted:
        wrong.append(f"the history has {rows}, and the night {wanted}")
    left = [process.pid for process in psutil.process_iter() if _is_of(process, night)]
    return wrong + ([f"processes are left: {left}"] if left else [])


def _is_of(process: psutil.Process, night: Path) -> bool:
    try:
        return any(str(night) in word for word in process.cmdline())
    except psutil.Error:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steady.yaml").write_text(STEADY)
    (folder / "suite.yaml").write_text(SUITE)
    kept = folder / "kills.json"
    kills: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    left, is_over = given.kills, False
    while left or not is_over:
        nights = nights_of(folder)
        is_cut = bool(nights) and not (nights[-1] / "suite.json").exists()
        after_s = random.uniform(FIRST_S, LAST_S) if left else None
        began = time.monotonic()
        is_over, last = play(folder, after_s, resume=is_cut)
        took_s = round(time.monotonic() - began, 1)
        nights = nights_of(folder)
        if not is_over and nights and not (nights[-1] / "suite.json").exists():
            left -= 1
            done = finished(nights[-1])
            kills.append(
                {"night": nights[-1].name, "after_s": took_s, "amid": last, "finished": done}
            )
            kept.write_text(json.dumps(kills))
            print(f"killed after {took_s} s, {len(done)} rounds finished, amid: {last}", flush=True)
    wrong = []
    for night in nights_of(folder):
        wrong += faults_of(folder, night, kills)
        cut = len(list(night.glob("*-cut-*")))
        of_it = sum(kill["night"] == night.name for kill in kills)
        print(
            f"{night.name}: {of_it} kills, {len(finished(night))} rounds, {cut} captures of rounds "
            "cut short"
        )
    print(
        "\n".join(wrong)
        or f"{len(kills)} kills: every round once, history whole, nothing left running"
    )
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
