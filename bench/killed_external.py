"""kill -9 of `run --cluster` at random moments on a cluster full of topics of others.

    python -m bench.killed_external FOLDER --system pulsar --kills 10

A cluster of three brokers is started (`up`) and filled: topics with settings and messages of their
own, a group with offsets. The first run against it goes to its end. Each of the others is to be
killed at a random moment before that, then `clean --cluster` is called. After each it is checked
that nothing of ours is left there (topics, groups, processes), and that names, settings, offsets
and contents of the others are equal to the ones before the first. A run that was over before its
moment is not a kill; at most twice as many are begun. Exit code 1 if anything is left or touched.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from bench import external_kafka as external_kafka
from bench import external_pulsar as external_pulsar
from bench import external_qpid as external_qpid

ROOT: Final = Path(__file__).resolve().parents[1]
#: System -> what others have there, and how it is looked at.
SYSTEMS_OF_OTHERS: Final[Mapping[str, Any]] = {
    "kafka": external_kafka,
    "pulsar": external_pulsar,
    "qpid": external_qpid,
}
#: A kill comes so many seconds after the start, or later: up to what a run takes here, evenly
#: spread.
FIRST_S = 1.0
BY_ITSELF = "ended by itself"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line of text for each difference."""
    for kind, old in before.items():
        new = now[kind]
        yield from (f"{kind}: {name} is new" for name in sorted(new.keys() - old.keys()))
        yield from (f"{kind}: {name} is gone" for name in sorted(old.keys() - new.keys()))
        yield from (
            f"{kind}: {n} was changed" for n in sorted(old.keys() & new.keys()) if old[n] != new[n]
        )


def _command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "cli.py", "--run-dir", str(folder / "runs"), *words]


def _run(folder: Path, system: str, file: Path, killed_after_s: float | None) -> tuple[str, float]:
    """Run and kill: the last line that it said, or how it ended before, and the seconds until
    then."""
    command = _command(folder, "run", f"{system}-own", "--cluster", str(file), "--offline")
    begun_s = time.monotonic()
    with (folder / "said.log").open("w+") as said:
        with subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said) as run:
            try:
                run.wait(killed_after_s)
            except subprocess.TimeoutExpired:
                run.kill()
        said.seek(0)
        lines = said.read().splitlines() or ["before it said anything"]
    how = lines[-1] if run.returncode == -9 else f"{BY_ITSELF} with exit code {run.returncode}"
    return how, time.monotonic() - begun_s


def _left_running(folder: Path) -> list[str]:
    """Processes of runs below a folder, but of the cluster itself."""
    words = [(p.pid, " ".join(p.info["cmdline"] or ())) for p in psutil.process_iter(["cmdline"])]
    return [
        f"process {pid} is left: {text[:80]}"
        for pid, text in words
        if f"{folder}/runs" in text and "raw/" in text
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--system", choices=SYSTEMS_OF_OTHERS, default="kafka")
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    theirs = SYSTEMS_OF_OTHERS[given.system]
    words = _command(folder, "--json", "up", "--runtime", "process", "--system", given.system)
    cluster = json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout)
    admins = [node["admin"] for node in cluster["nodes"] if node["client"] in cluster["bootstrap"]]
    where = cluster["bootstrap"], f"http://{','.join(admins)}"
    wrong: list[str] = []
    try:
        theirs.fill(*where)
        file, before = theirs.connection(folder, *where), theirs.fingerprint(*where)
        how, last_s = _run(folder, given.system, file, None)
        print(f"not killed: {how} after {last_s:.1f} s", flush=True)
        kills = 0
        for _ in range(2 * given.kills):
            if kills == given.kills:
                break
            amid, after_s = _run(folder, given.system, file, random.uniform(FIRST_S, last_s))
            kills += not amid.startswith(BY_ITSELF)
            clean = subprocess.run(
                _command(folder, "clean", "--cluster", str(file)),
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            found = list(differences(before, theirs.fingerprint(*where))) + _left_running(folder)
            found += (
                [f"clean ended with {clean.returncode}: {clean.stderr}"] if clean.returncode else []
            )
            wrong += found
            print(f"{kills} killed; this one after {after_s:.1f} s: {amid}", flush=True)
            print(
                f"   clean: {clean.stdout.strip()}; "
                f"{'; '.join(found) or 'theirs as before, nothing of ours'}"
            )
    finally:
        subprocess.run(_command(folder, "down", cluster["run_id"]), cwd=ROOT, check=True)
    print("\n".join(wrong) or f"{kills} kills: nothing of ours left, nothing of theirs touched")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
