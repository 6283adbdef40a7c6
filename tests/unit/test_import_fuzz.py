"""Damaged imports: refused in one line and nothing left, or read as what they now say, and
judged."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from harness.errors import UsageError
from harness.importing.capture import import_run
from harness.importing.source import ImportSource
from tests.planted.foreign import COLUMNS, Rows, description, rows_of, write_import
from tests.planted.judged import judge_here
from tests.planted.tiny import History

SYSTEMS = ("kafka", "pulsar", "qpid")
KINDS = ("csv", "csv.gz", "jsonl", "jsonl.gz", "parquet")
#: Values that readers take for something else.
ODD: tuple[Any, ...] = (
    None, 0, -1, 1, 5.5, 5.0, 2**31, 2**53 + 1, 2**62, 2**63, -(2**63), 2**70, float("nan"), float("inf"),
    True, "", " ", "0", "-0", "+7", "007", "1e3", "0x10", "1_000", "nan", "null", "ok", "OK", "deliver",
    "orders-0", "orders-00", "orders-1 ", "orders-20000000", "orders", "-1", "2026-01-31", "\0", "\x1b[2J",
    "2026-01-31T12:00:00Z", "a\nb", '"', "'", "é", "💥", "x" * 5_000, "=1+1", [1], {"a": 1},
)  # fmt: skip


def planted(system: str) -> tuple[Rows, dict[str, Any]]:
    """A clean import of a system, whatever the shape of its rows."""
    history = History(partitions=2, system=system, settle="ack" if system == "qpid" else "auto")
    for partition in range(2):
        history.sent(6, partition=partition)
        if system != "qpid":
            history.log(*range(6), partition=partition)
        history.deliver(*range(6), partition=partition)
    groups: dict[str, Any] = {"topics": ["orders"], "from_start": True}
    ledger = ("ledger",) if system == "pulsar" else ()
    rows = rows_of(history, {table: (*names, *ledger) for table, names in COLUMNS.items()})
    if system == "qpid":
        rows["log"] = [{"stream": "orders-0", "position": 0, "instance": 1, "lane": 0, "seq": 5}]
        groups["settle"] = "auto"
    if system == "pulsar":
        groups["subscription"] = "shared"
    return rows, copy.deepcopy(description(history, system=system, groups={"group": groups}))


def damage_cell(rows: Rows, said: dict[str, Any], chance: random.Random) -> None:
    row = chance.choice(rows[chance.choice([table for table in rows if rows[table]])])
    row[chance.choice(list(row))] = chance.choice(ODD)


def damage_column(rows: Rows, said: dict[str, Any], chance: random.Random) -> None:
    own = rows[chance.choice([table for table in rows if rows[table]])]
    name = chance.choice(list(own[0]))
    value, new = (
        chance.choice(ODD),
        chance.choice([name, name, "kind", "check", "txn", "attempt", "ordinal", "extra"]),
    )
    for row in own:
        old = row.pop(name, None)
        row[new] = value if chance.random() < 0.5 else old


def damage_rows(rows: Rows, said: dict[str, Any], chance: random.Random) -> None:
    own = rows[chance.choice([table for table in rows if rows[table]])]
    change: Callable[[], object] = chance.choice([
        lambda: own.pop(chance.randrange(len(own))),
        lambda: own.append(dict(chance.choice(own))),
        lambda: chance.shuffle(own),
        own.clear,
    ])  # fmt: skip
    change()


def damage_description(rows: Rows, said: dict[str, Any], chance: random.Random) -> None:
    at: Any = said
    while True:
        key = chance.choice(list(at) if isinstance(at, dict) else list(range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or chance.random() < 0.3:
            break
        at = at[key]
    if isinstance(at, dict) and chance.random() < 0.5:
        at[f"{key}s"] = at.pop(key)
    else:
        at[key] = chance.choice([*ODD, -5, {}, [], {"orders": 3}, "partition", "{seq}"])


def damage_bytes(folder: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(folder.iterdir()))
    raw = bytearray(path.read_bytes())
    how = chance.randrange(5)
    if how == 0:
        raw = raw[: chance.randrange(len(raw) + 1)]
    elif how == 1:
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
    elif how == 2:
        at = chance.randrange(len(raw))
        raw[at:at] = chance.randbytes(chance.randint(1, 40))
    elif how == 3:
        raw = bytearray(chance.choice(sorted(folder.iterdir())).read_bytes())
    else:
        path = path.rename(
            path.with_name(chance.choice(["sends", "log", "sends.csv", "x.csv", "log.parquet"]))
        )
    path.write_bytes(raw)


def write_damaged(folder: Path, chance: random.Random) -> None:
    rows, said = planted(chance.choice(SYSTEMS))
    changes = (damage_cell, damage_cell, damage_column, damage_rows, damage_description)
    for change in chance.choices(changes, k=chance.choice([0, 1, 1, 2])):
        change(rows, said, chance)
    try:
        write_import(folder, rows, json.loads(json.dumps(said, default=str)), chance.choice(KINDS))
    except (pa.ArrowException, OverflowError, UnicodeError, yaml.YAMLError):  # no file can hold it
        shutil.rmtree(folder)
        rows, said = planted("kafka")
        write_import(folder, rows, said, chance.choice(KINDS))
    if chance.random() < 0.4:
        damage_bytes(folder, chance)


def check(tmp_path: Path, seed: int) -> bool:
    """Import and judge one damaged import; whether it was accepted."""
    source, runs = tmp_path / "in", tmp_path / "runs"
    for folder in (source, runs):
        shutil.rmtree(folder, ignore_errors=True)
    write_damaged(source, random.Random(seed))
    try:
        run = import_run(ImportSource.open(str(source)), runs)
    except UsageError as error:
        said = f"{error}{error.hint}"
        assert not runs.exists(), said
        assert said.isprintable(), ascii(said)
        return False
    checks = {check.name: check for check in judge_here(run).coverage}
    assert checks["analysis"].ok, checks["analysis"].text
    return True


@pytest.mark.long
def test_damaged_imports_are_refused_or_judged(tmp_path: Path) -> None:
    accepted = [check(tmp_path, seed) for seed in range(80)]
    assert 10 < sum(accepted) < 60, "a fuzzer that is always refused, or never, tests little"


@pytest.mark.slow
def test_many_damaged_imports_are_refused_or_judged(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    for number in range(seed, seed + 10_000):
        try:
            check(tmp_path, number)
        except BaseException as error:
            error.add_note(f"seed {number}: check(Path('/tmp/x'), {number}) does it again")
            raise
