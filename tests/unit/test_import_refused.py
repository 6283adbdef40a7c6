"""Refused imports: one line with file, row, value and what is allowed, and nothing is left
behind."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import UsageError
from harness.importing.capture import import_run
from harness.importing.source import ImportSource
from tests.planted.foreign import Rows, description, rows_of, write_import, write_table
from tests.planted.tiny import History

Change = Callable[[Rows], object]


def history() -> History:
    return History(partitions=2).sent(5).log(*range(5)).assign(0).deliver(*range(5)).commit(5)


def refused(tmp_path: Path, folder: Path) -> str:
    """The message; nothing is left where runs are kept."""
    with pytest.raises(UsageError) as error:
        import_run(ImportSource.open(str(folder)), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def put(table: str, index: int, **values: Any) -> Change:
    return lambda rows: rows[table][index].update(values)


NO_OUTCOME = "allowed: ok, fail, info"
CELLS: list[tuple[str, Change, str]] = [
    ("outcome 0", put("sends", 1, outcome="0"), f"sends.csv, row 2: outcome is '0'; {NO_OUTCOME}"),
    ("outcome 9", put("sends", 1, outcome="9"), f"sends.csv, row 2: outcome is '9'; {NO_OUTCOME}"),
    ("no outcome", put("sends", 1, outcome=None), f"sends.csv, row 2: outcome has no value; {NO_OUTCOME}"),
    ("half a seq", put("sends", 4, seq="5.5"),
     "sends.csv, row 5: seq is '5.5'; allowed: a whole number from 0"),
    ("text as a seq", put("sends", 0, seq="abc"),
     "sends.csv, row 1: seq is 'abc'; allowed: a whole number from 0"),
    ("a seq below 0", put("sends", 0, seq=-1),
     "sends.csv, row 1: seq is '-1'; allowed: a whole number from 0"),
    ("a huge seq", put("log", 0, seq="9" * 19), "log.csv, row 1: seq is '9999999999999999999'"),
    ("a huge lane", put("sends", 0, lane=1_000_000),
     "lane is '1000000'; allowed: a whole number from 0 to 999999"),
    ("instance 0", put("sends", 0, instance=0),
     "instance is '0'; allowed: a whole number from 1 to 2^32 - 1"),
    ("no instance", put("log", 2, instance=None), "log.csv, row 3: instance has no value, but check is ok"),
    ("an unknown stream", put("sends", 0, stream="order-0"),
     "stream is 'order-0'; did you mean orders-0?"),
    ("far too many partitions", put("log", 0, stream="orders-20000000"),
     "stream is 'orders-20000000'; did you mean orders-0?"),
    ("an unknown event", put("deliveries", 0, event="99"),
     "deliveries.csv, row 1: event is '99'; allowed: deliver,"),
    ("an unknown group", put("deliveries", 2, subscription="grp"),
     "row 3: subscription is 'grp', which import.yaml"),
    ("a time without zone", put("sends", 0, t_done_ns="2026-01-31T12:00:00"),
     "t_done_ns is '2026-01-31T12:00:00'"),
    ("time 0", put("sends", 0, t_start_ns=0),
     "sends.csv, row 1: t_start_ns is '0'; allowed: a time with its zone"),
    ("done before it began", put("sends", 0, t_done_ns=1),
     "sends.csv, row 1: t_done_ns is before t_start_ns"),
    ("done without a time", put("sends", 0, t_done_ns=None),
     "row 1: t_done_ns is empty, but the client gave"),
    ("due after the call", put("sends", 0, t_intended_ns=2**60), "row 1: t_intended_ns is after t_start_ns"),
    ("other clocks", put("deliveries", 6, t_ns=2**60), "the times span 13,344 days; at most 30"),
    ("no position", put("log", 0, position=None), "log.csv, row 1: position has no value"),
    ("no stream delivered", put("deliveries", 1, stream=None),
     "row 2: stream has no value, but a message was"),
    ("a second row", put("sends", 1, seq=0), "sends: message 1/0/0 has two rows of attempt 0"),
    ("two messages at a place", put("log", 1, position=0),
     "log: orders-0 holds both 1/0/0 and 1/0/1 at position 0"),
    ("a message at a place, of two kinds",
     lambda rows: ([row.update(kind="load") for row in rows["log"]],
                   rows["log"].insert(1, {**rows["log"][0], "kind": "warm-up"})),
     "log: orders-0 holds both 1/0/0 and 1/0/0 at position 0"),
    ("re-sends that no other table tells",
     lambda rows: [row.update(attempt=int(row["seq"] == 1)) for row in rows["sends"]],
     "sends holds re-sends (attempt above 0), and there is no column attempt in log and deliveries"),
    ("a hole in a journal", put("deliveries", 6, ordinal=9), "deliveries: session 1: ordinal 6 is missing"),
    ("a journal twice", put("deliveries", 6, ordinal=5), "deliveries: session 1: ordinal 5 is there twice"),
    ("time goes back", put("deliveries", 3, t_ns=10**12), "session 1: t_ns of ordinal 3 is earlier"),
    ("read beyond the end", put("log", 4, position=70),
     "position is 70, but log_bounds says that positions 0 to 4"),
    ("bounds that fall", put("log_bounds", 0, end=3), "row 1: begin 0, read_to 5, end 3: they must not fall"),
    ("bounds twice", put("log_bounds", 1, stream="orders-0"), "log_bounds.csv, row 2: there is another row"),
    ("no sends", lambda rows: rows["sends"].clear(),
     "holds no sends: neither a folder nor a file of that name"),
    ("no log", lambda rows: rows["log"].clear(), "holds no log: neither a folder nor a file of that name"),
    ("no deliveries", lambda rows: rows["deliveries"].clear(),
     "import.yaml:7: groups: there are groups, but no"),
    ("no seq", lambda rows: [row.pop("seq") for row in rows["sends"]],
     "sends.csv: column 'seq' is missing; found"),
    ("a strange column", lambda rows: [row.update(attemp=1) for row in rows["sends"]],
     "sends.csv: no column 'attemp' is known; did you mean attempt?"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"), [case[1:] for case in CELLS], ids=[case[0] for case in CELLS]
)
def test_a_value_that_is_not_allowed(tmp_path: Path, change: Change, message: str) -> None:
    planted = history()
    rows = rows_of(planted)
    change(rows)
    assert message in refused(tmp_path, write_import(tmp_path / "in", rows, description(planted)))


TYPES: list[tuple[str, str, str, pa.Array, str]] = [
    ("floats", "sends", "seq", pa.array([0, 1, 2.5, 3, 4]), "row 3: seq is '2.5'; allowed: a whole number"),
    ("texts", "sends", "seq", pa.array(list("abcde")),
     "sends.parquet, row 1: seq is 'a'; allowed: a whole number"),
    ("booleans", "log", "position", pa.array([True] * 5),
     "log.parquet: column position is of type bool; allowed:"),
    ("times without zone", "sends", "t_start_ns", pa.array([datetime.datetime(2026, 1, 1)] * 5),
     "is of type timestamp[us], which has no time zone, so it names no moment"),
    ("times as floats", "sends", "t_start_ns", pa.array([1.7e18 + 1] * 5),
     "as floating point, exact up to 2^53"),
    ("unsigned", "log", "position", pa.array([2**64 - 1] * 5, pa.uint64()),
     "position is '18446744073709551615'"),
    ("numbers as names", "log", "stream", pa.array([0] * 5),
     "log.parquet: column stream is of type int64; allowed:"),
    ("lists", "log", "seq", pa.array([[1]] * 5), "log.parquet: column seq is of type list"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "column", "values", "message"),
    [case[1:] for case in TYPES],
    ids=[case[0] for case in TYPES],
)
def test_a_column_of_another_type(
    tmp_path: Path, table: str, column: str, values: pa.Array, message: str
) -> None:
    planted = history()
    folder = write_import(tmp_path / "in", rows_of(planted), description(planted), "parquet")
    path = folder / f"{table}.parquet"
    whole = pq.read_table(path)
    pq.write_table(whole.set_column(whole.schema.get_field_index(column), column, values), path)
    assert message in refused(tmp_path, folder)


def no_change(folder: Path) -> None: ...


def csv_in_a_parquet_folder(folder: Path) -> None:
    (folder / "sends").mkdir()
    (folder / "sends.csv").rename(folder / "sends" / "part-0.parquet")


def junk_in_a_folder(folder: Path) -> None:
    (folder / "log").mkdir()
    (folder / "log.csv").rename(folder / "log" / "0.csv")
    (folder / "log" / "notes.doc").write_bytes(b"\0\1\2")


def other_columns(folder: Path) -> None:
    (folder / "sends").mkdir()
    rows = rows_of(history())["sends"]
    write_table(folder / "sends" / "0.csv", rows[:2])
    write_table(
        folder / "sends" / "1.csv",
        [{k: v for k, v in row.items() if k != "position"} for row in rows[2:]],
    )
    (folder / "sends.csv").unlink()


def cut_gzip(folder: Path) -> None:
    whole = gzip.compress((folder / "log.csv").read_bytes())
    (folder / "log.csv.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "log.csv").unlink()


def ragged(folder: Path) -> None:
    (folder / "log.csv").write_text((folder / "log.csv").read_text() + "1,2\n")


def not_utf8(folder: Path) -> None:
    (folder / "log.csv").write_bytes(
        (folder / "log.csv").read_bytes().replace(b"orders-0", b"\xff\xfe-0", 1)
    )


def bad_json(folder: Path) -> None:
    (folder / "log.csv").unlink()
    (folder / "log.jsonl").write_text('{"seq": 1, "seq": 2}\n')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            csv_in_a_parquet_folder,
            "sends/part-0.parquet: cannot be read as parquet: Parquet magic bytes not found",
        ),
        (junk_in_a_folder, "log/notes.doc is not a table file"),
        (other_columns, "sends/1.csv: column 'position' is missing, which sends/0.csv has"),
        (cut_gzip, "log.csv.gz: cannot be read as csv.gz: Compressed file ended before"),
        (
            ragged,
            "log.csv: cannot be read as csv: CSV parse error: Row #6: Expected 5 columns, got 2: 1,2",
        ),
        (
            not_utf8,
            "cannot be read as csv: In CSV column #0: Row #1: CSV conversion error to string: invalid UTF8",
        ),
        (bad_json, "log.jsonl, row 1: 'seq' is there twice"),
        (
            lambda folder: (folder / "log.csv").write_text(""),
            "log.csv: the first line must name the columns",
        ),
        (
            lambda folder: (folder / "import.yaml").unlink(),
            "holds no import.yaml: it names the system",
        ),
        (
            lambda folder: (folder / "delivery.csv").write_text("x"),
            "delivery.csv has no place in an import",
        ),
        (
            lambda folder: (folder / "sends.jsonl").write_text("{}"),
            "sends.csv and sends.jsonl are both there",
        ),
        (
            lambda folder: (folder / "plan.json").write_text("{}"),
            "plan.json has no place in an import",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_file_that_is_not_a_table(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    planted = history()
    folder = write_import(tmp_path / "in", rows_of(planted), description(planted))
    damage(folder)
    assert message in refused(tmp_path, folder)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"system": "rabbit"}, "import.yaml:1: system: unknown system 'rabbit'"),
        ({"sytem": "kafka"}, "sytem: unknown key, got 'kafka'; did you mean system?"),
        ({"topics": {"orders": 200_000}}, "topics.orders: must be at most 100000, got 200000"),
        (
            {"topics": {"orders": 90_000, "b": 90_000}},
            "topics: 180,000 partitions in all; at most 100,000",
        ),
        (
            {"producers": {"acks": "1"}},
            "producers.acks: must be 'all', 'leader' or 'none', got '1'",
        ),
        ({"groups": {"group": {"topics": ["order"]}}}, "no topic 'order'; did you mean orders?"),
        (
            {"groups": {"other": {"topics": ["orders"]}}},
            "subscription is 'group', which import.yaml does not have",
        ),
        (
            {"columns": {"sends": {"sec": "n"}}},
            "columns.sends.sec: no column of ours; did you mean seq?",
        ),
        (
            {"columns": {"log": {"position": "{offset"}}},
            "columns.log.position: '{offset' is neither a column name",
        ),
        ({"evidence": {"drained": "yes, surely"}}, "evidence.drained: must be true or false"),
        (
            {"lanes": [{"topic": "orders", "mode": "key"}]},
            "lanes[0]: count is missing: how many keys there are",
        ),
        (
            {"faults": [{"kind": "kill", "start": 5, "end": 4}]},
            "faults[0].end: is before the start",
        ),
        (
            {"faults": [{"kind": "kill", "start": "noon"}]},
            "faults[0].start: must be a time as 2026-01-31T12:00:00Z",
        ),
        ({"system": "qpid"}, "groups.group: settle is missing: without it, messages lost"),
        ({"system": "pulsar"}, "log.csv: column 'ledger' is missing"),
    ],
)
def test_an_import_yaml_that_is_wrong(tmp_path: Path, said: dict[str, Any], message: str) -> None:
    planted = history()
    folder = write_import(tmp_path / "in", rows_of(planted), description(planted) | said)
    assert message in refused(tmp_path, folder)


def test_numbers_in_a_column_of_another_name_have_no_unit(tmp_path: Path) -> None:
    planted = history()
    rows = rows_of(planted)
    for row in rows["sends"]:
        row["called_at"] = row.pop("t_start_ns")
    said = description(planted, columns={"sends": {"t_start_ns": "called_at"}})
    message = refused(tmp_path, write_import(tmp_path / "in", rows, said))
    assert message == "sends.csv: called_at holds numbers, and import.yaml does not say their unit"


def test_a_lane_in_two_topics_is_nobodys_guess(tmp_path: Path) -> None:
    planted = history()
    rows = rows_of(planted)
    rows["log"][3]["stream"] = "bills-0"
    rows["log_bounds"] = []
    said = description(planted, topics={"orders": 2, "bills": 1})
    message = refused(tmp_path, write_import(tmp_path / "in", rows, said))
    assert message == "lane 0 is found in topics bills and orders"
