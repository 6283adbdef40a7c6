"""Adds the results of a night of the suite `answers` to scenarios/suites/answers-results.json.

python -m bench.client_answers [NIGHT]     a folder of `suite run answers`; default: the newest one

A cell of the file that the night did not measure stays as it was. `docs/generate.py` makes the page
of it.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
import pyarrow.dataset as ds

from analysis.findings import Status
from experiments.client_answers import RESULTS_FILE, ClientAnswer, read_answers
from experiments.nights.night import NightDir, nights
from harness.faultlog import FaultRecord, read_faults
from harness.records import Event, Kind, Outcome
from harness.rundir import read_json

RUNS: Final = Path("runs")
OF_PRODUCERS: Final = (
    *("Produce", "InitProducerId", "Metadata", "AddPartitionsToTxn", "EndTxn"),
    *("SEND", "PUB", "basic.publish"),
)
#: Figures of the messages that a client tried to send.
ATTEMPTED: Final = ("messages", "failed", "unknown")
#: By role, class of a finding -> what the page calls its messages.
COUNTED: Final = {
    "producer": {
        "acked-lost": "lost",
        "write-duplicate": "twice",
        "producer-reorder": "late",
        "premature-then-repeat": "late",
        "hang": "hung",
    },
    "consumer": {
        "not-dispatched": "skipped",
        "delivery-duplicate": "again",
        "rewind-past-commit": "again",
        "stall": "hung",
    },
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
    loaded = folder.load()
    for turn in loaded.turns:
        run, cell = folder.folder(turn.folder).root, loaded.cell(turn)
        if (run / "result.json").exists():
            # Of a round that was cut short, faults that never began are left out.
            faults = [each for each in read_faults(run / "faults.jsonl") if each.inject_ns]
            errors: Iterable[_FalseError] = [_of_cell(cell.settings, faults)]
            if len({each.planned_s for each in faults}) > 1:
                errors = _one_by_one(faults, read_json(run / "result.json")["faults"])
            for each in errors:
                yield from _of_fault(run, cell.system, each)


@dataclass(frozen=True, slots=True)
class _FalseError:
    """An error that clients received. Times: CLOCK_MONOTONIC ns and, with ``_s``, whole seconds of
    the load; ``until``: the next error."""

    request: str
    error: str
    since_ns: float
    healed_ns: int
    until_ns: float
    since_s: int
    until_s: float = math.inf


def _of_cell(settings: str, faults: Sequence[FaultRecord]) -> _FalseError:
    """The error of a cell that is about one: all messages of the round count."""
    request, _, error = settings.partition("-")
    since_s = min(int(each.planned_s) for each in faults)
    healed_ns = max(each.heal_ns or 0 for each in faults)
    return _FalseError(request, error, -math.inf, healed_ns, math.inf, since_s)


def _one_by_one(
    faults: Sequence[FaultRecord], rows: Sequence[dict[str, Any]]
) -> Iterator[_FalseError]:
    """The errors of a round that has several, one after the other: the messages of each time."""
    at_s = {row["id"]: int(row["t_s"]) for row in rows}
    ends = [*faults[1:], None]
    for each, later in zip(faults, ends, strict=True):
        if each.effective and each.heal_ns is not None:
            yield _FalseError(
                each.params["requests"][0],
                _error(each),
                each.start_ns,
                each.heal_ns,
                later.start_ns if later else math.inf,
                at_s[each.id],
                at_s[later.id] if later else math.inf,
            )


def _error(fault: FaultRecord) -> str:
    """What clients received, in a few words."""
    params = fault.params
    if "error" in params:
        return f"{params['error']}{', done' if params.get('answered') == 'after' else ''}"
    return params.get("says") or ("answer lost" if "then" in params else "closed by the broker")


def _of_fault(run: Path, system: str, error: _FalseError) -> Iterator[ClientAnswer]:
    result, manifest = read_json(run / "result.json"), read_json(run / "manifest.json")
    role = "producer" if error.request in OF_PRODUCERS else "consumer"
    clients = _clients_of_topics(read_json(run / "plan.json"))
    counts, broke, died = _findings(result, clients, role, error)
    versions: dict[str, str] = {}
    numbers: dict[str, list[int]] = {}
    for worker in manifest["workers"]:
        if worker["role"] == role:
            key = "instance" if role == "producer" else "session"
            numbers.setdefault(worker["client"], []).append(worker[key])
            versions[worker["client"]] = worker["client_version"]
    read = _sends if role == "producer" else _deliveries
    for client, own in sorted(numbers.items()):
        why, died_s = died.get((client, role), ("", math.inf))
        if died_s < error.since_s:
            continue  # by an error before this one
        figures = read(run, own, error)
        if role == "producer" and not sum(figures[name] for name in ATTEMPTED):
            continue  # it hung since an error before this one, and its worker was ended
        yield ClientAnswer.model_validate(
            {
                "system": system,
                "request": error.request,
                "error": error.error,
                "client": client,
                "version": versions[client],
                "role": role,
                "verdict": result["verdict"],
                "broke": sorted(broke.get(client, ())),
                "day": result["started"][:10],
                "died": why if died_s < error.until_s else "",
                **counts.get(client, {}),
                **figures,
            }
        )


def _clients_of_topics(plan: dict[str, Any]) -> dict[str, str]:
    """Topic -> the client whose producer sends to it."""
    groups = plan["lane_groups"]
    return {
        groups[number]["topic"]: producer["client"]
        for producer in plan["producers"]
        for number in producer["groups"]
    }


def _findings(
    result: dict[str, Any], clients: Mapping[str, str], own_role: str, error: _FalseError
) -> tuple[dict[str, Counter[str]], dict[str, set[str]], dict[tuple[str, str], tuple[str, float]]]:
    """By client, messages of each kind since clients received an error, and the classes of
    promises that its producer or its consumer broke; by client and role, why and when it died."""
    counts: dict[str, Counter[str]] = {}
    broke: dict[str, set[str]] = {}
    died: dict[tuple[str, str], tuple[str, float]] = {}
    others = COUNTED["consumer" if own_role == "producer" else "producer"]
    for finding in result["findings"]:
        for stream in finding["by_stream"]:
            client = clients.get(stream["stream"].rpartition("-")[0], "")
            since = sum(
                count
                for start_s, count in stream["windows"]
                if error.since_s <= start_s < error.until_s
            )
            if name := COUNTED[own_role].get(finding["class"]):
                counts.setdefault(client, Counter())[name] += since
            is_own = finding["class"] not in others
            if since and is_own and finding["status"] == Status.VIOLATION:
                broke.setdefault(client, set()).add(finding["class"])
        if finding["class"] == "client-died":
            for witness in finding["witnesses"]:
                role = "consumer" if witness["message"].startswith("consumer") else "producer"
                why = witness["error"] or "died", witness["t_s"]
                died[witness["where"].split()[0], role] = why
    return counts, broke, died


def _sends(run: Path, instances: list[int], error: _FalseError) -> dict[str, Any]:
    table = ds.dataset(run / "sealed" / "sends", partitioning="hive").to_table(
        columns=["outcome", "t_start_ns", "t_done_ns"],
        filter=ds.field("instance").isin(instances) & (ds.field("kind") != int(Kind.PROBE)),
    )
    begun, done = table["t_start_ns"].to_numpy(), table["t_done_ns"].to_numpy()
    own = (begun >= error.since_ns) & (begun < error.until_ns)
    outcome = table["outcome"].to_numpy()[own]
    return {
        "messages": int((outcome == Outcome.OK).sum()),
        "failed": int((outcome == Outcome.FAIL).sum()),
        "unknown": int((outcome == Outcome.INFO).sum()),
        "back_s": _back_s(done[table["outcome"].to_numpy() == Outcome.OK], error),
    }


def _deliveries(run: Path, sessions: list[int], error: _FalseError) -> dict[str, Any]:
    table = ds.dataset(run / "sealed" / "deliveries", partitioning="hive").to_table(
        columns=["t_ns"],
        filter=ds.field("session").isin(sessions) & (ds.field("event") == int(Event.DELIVER)),
    )
    times = table["t_ns"].to_numpy()
    own = (times >= error.since_ns) & (times < error.until_ns)
    return {"messages": int(own.sum()), "back_s": _back_s(times, error)}


def _back_s(times: npt.NDArray[Any], error: _FalseError) -> float | None:
    """From the end of the fault to the first of these times; None = there is none in its time."""
    after = times[(times >= error.healed_ns) & (times < error.until_ns)]
    return round(float(after.min() - error.healed_ns) / 1e9, 2) if len(after) else None


def main() -> None:
    """Write the file anew, in the order of the night, what it did not measure at its old place."""
    night = Path(sys.argv[1]) if len(sys.argv) > 1 else newest_night()
    kept = {each.about: each for each in read_answers()}
    measured = {each.about: each for each in answers_of(night)}
    rows = [
        each.model_dump(mode="json", exclude_defaults=True) for each in (kept | measured).values()
    ]
    RESULTS_FILE.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")
    print(f"{len(measured)} results of {night.name} are in {RESULTS_FILE}")


if __name__ == "__main__":
    main()
