"""Adds the results of a night of the suite `answers` to scenarios/suites/answers-results.json.

python -m bench.client_answers [NIGHT]     a folder of `suite run answers`; default: the newest one

A cell of the file that the night did not measure stays as it was. `docs/generate.py` makes the page
of it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from experiments.client_answers import RESULTS_FILE, ClientAnswer, read_answers
from experiments.nights.night import NightDir, nights
from harness.records import Event, Kind, Outcome
from harness.rundir import read_json, read_jsonl

RUNS: Final = Path("runs")
OF_PRODUCERS: Final = ("Produce", "InitProducerId", "Metadata", "AddPartitionsToTxn", "EndTxn")
#: Class of a finding -> what the page calls its messages.
COUNTED: Final = {
    "acked-lost": "lost",
    "write-duplicate": "twice",
    "producer-reorder": "late",
    "premature-then-repeat": "late",
    "not-dispatched": "skipped",
    "delivery-duplicate": "again",
    "rewind-past-commit": "again",
    "hang": "hung",
    "stall": "hung",
}


def newest_night() -> Path:
    """The newest folder of a night of the suite, which may have been interrupted.

    Raises:
        SystemExit: there is none.
    """
    found = next(nights(RUNS, "answers"), None)
    if found is None:
        raise SystemExit(f"no night of the suite answers in {RUNS}: brokerstorm suite run answers")
    return found.root


def answers_of(night: Path) -> Iterator[ClientAnswer]:
    """What each client did in each round of a night that was judged."""
    folder = NightDir(night)
    settings = {cell.id: cell.settings for cell in folder.load().cells}
    for ended in folder.ended().values():
        run = folder.folder(ended.folder).root
        if (run / "result.json").exists():
            request, _, error = settings[ended.cell].partition("-")
            yield from _of_round(run, request, error)


def _of_round(run: Path, request: str, error: str) -> Iterator[ClientAnswer]:
    result, manifest = read_json(run / "result.json"), read_json(run / "manifest.json")
    role = "producer" if request in OF_PRODUCERS else "consumer"
    healed_ns = max(
        row["t_ns"] for row in read_jsonl(run / "faults.jsonl") if row["event"] == "heal"
    )
    counts, died = _findings(result)
    versions = {each["client"]: each["client_version"] for each in manifest["workers"]}
    numbers: dict[str, list[int]] = {}
    for worker in manifest["workers"]:
        if worker["role"] == role:
            key = "instance" if role == "producer" else "session"
            numbers.setdefault(worker["client"], []).append(worker[key])
    read = _sends if role == "producer" else _deliveries
    for client, own in sorted(numbers.items()):
        yield ClientAnswer.model_validate(
            {
                "request": request,
                "error": error,
                "client": client,
                "version": versions[client],
                "role": role,
                "verdict": result["verdict"],
                "day": result["started"][:10],
                "died": died.get((client, role), ""),
                **counts.get(client, {}),
                **read(run, own, healed_ns),
            }
        )


def _findings(result: dict[str, Any]) -> tuple[dict[str, Counter[str]], dict[tuple[str, str], str]]:
    """By client, messages of each kind since the first fault; and by client and role, why it died.
    A topic has the name of its client."""
    begun_s = min(int(fault["t_s"]) for fault in result["faults"])
    counts: dict[str, Counter[str]] = {}
    died: dict[tuple[str, str], str] = {}
    for finding in result["findings"]:
        if name := COUNTED.get(finding["class"]):
            for stream in finding["by_stream"]:
                client = stream["stream"].rpartition("-")[0]
                since = sum(count for start_s, count in stream["windows"] if start_s >= begun_s)
                counts.setdefault(client, Counter())[name] += since
        if finding["class"] == "client-died":
            for witness in finding["witnesses"]:
                role = "consumer" if witness["message"].startswith("consumer") else "producer"
                died[witness["where"].split()[0], role] = witness["error"] or "died"
    return counts, died


def _sends(run: Path, instances: list[int], healed_ns: int) -> dict[str, Any]:
    table = ds.dataset(run / "sealed" / "sends", partitioning="hive").to_table(
        columns=["outcome", "t_done_ns"],
        filter=ds.field("instance").isin(instances) & (ds.field("kind") != int(Kind.PROBE)),
    )
    outcome, done = table["outcome"].to_numpy(), table["t_done_ns"].to_numpy()
    after = done[(outcome == Outcome.OK) & (done >= healed_ns)]
    return {
        "messages": int((outcome == Outcome.OK).sum()),
        "failed": int((outcome == Outcome.FAIL).sum()),
        "unknown": int((outcome == Outcome.INFO).sum()),
        "back_s": round(float(after.min() - healed_ns) / 1e9, 2) if len(after) else None,
    }


def _deliveries(run: Path, sessions: list[int], healed_ns: int) -> dict[str, Any]:
    table = ds.dataset(run / "sealed" / "deliveries", partitioning="hive").to_table(
        columns=["t_ns"],
        filter=ds.field("session").isin(sessions) & (ds.field("event") == int(Event.DELIVER)),
    )
    given = table["t_ns"].to_numpy()
    after = given[given >= healed_ns]
    return {
        "messages": len(given),
        "back_s": round(float(after.min() - healed_ns) / 1e9, 2) if len(after) else None,
    }


def main() -> None:
    """Write the file anew, in the order of the night, what it did not measure at its old place."""
    night = Path(sys.argv[1]) if len(sys.argv) > 1 else newest_night()
    kept = {(each.request, each.error, each.client): each for each in read_answers()}
    measured = {(each.request, each.error, each.client): each for each in answers_of(night)}
    rows = [
        each.model_dump(mode="json", exclude_defaults=True) for each in (kept | measured).values()
    ]
    RESULTS_FILE.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")
    print(f"{len(measured)} results of {night.name} are in {RESULTS_FILE}")


if __name__ == "__main__":
    main()
