"""The journal of transactions of the Python kit, and the rows of their sends."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.records import RAW_SENDS, RAW_TRANSACTIONS, SEGMENT_HEADER_BYTES, Asked, Outcome
from workers.python_kit.worker_kit import layouts as lay
from workers.python_kit.worker_kit.transactions import Transactions


def made(folder: Path, thread: int = 0, threads: int = 2, **asked: Any) -> Transactions:
    spec = SimpleNamespace(folder=folder, part={"instance": 4}, run_tag=7)
    wanted = {"id": "shop", "messages": 3, "every_s": 0.0, "abort_every": 2} | asked
    return Transactions(cast("Any", SimpleNamespace(spec=spec)), wanted, thread, threads)


def rows_of(folder: Path) -> Any:
    paths = sorted(folder.glob("transactions-4-*.seg"))
    parts = [
        np.frombuffer(path.read_bytes()[SEGMENT_HEADER_BYTES:], RAW_TRANSACTIONS) for path in paths
    ]
    rows = np.concatenate(parts)
    return rows[rows["state"] > 0]


def test_intents_are_there_before_answers(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path, thread=1)
    second.share(first)
    for own in (first, second, first):
        own.begin()
        own.sent = 3
        assert own.is_due()
        own.ask(Asked.COMMIT)
        if own is second:
            break  # the process is killed here
        if own.aborts:
            own.ask(Asked.ABORT)
        own.answered(Outcome.ABORTED if own.aborts else Outcome.OK)
    first.begin()
    rows = {int(row["number"]): row for row in rows_of(tmp_path)}
    assert sorted(rows) == [1, 2, 3]
    assert (rows[1]["outcome"], rows[1]["id"], rows[2]["id"]) == (Outcome.OK, 0, 1)
    assert (rows[2]["asked"], rows[2]["outcome"]) == (Asked.COMMIT, 0)
    assert rows[2]["t_begin_ns"] <= rows[2]["t_asked_ns"]
    assert rows[3]["asked"] == 0


def test_rows_get_the_outcome_of_their_transaction_but_for_what_was_refused(tmp_path: Path) -> None:
    own, size = made(tmp_path), lay.ROW_BYTES[lay.SENDS]
    rows = mmap.mmap(-1, 8 * size)
    own.begin()
    own.wrote(rows, 0, 2 * size)
    own.wrote(rows, 2 * size, 4 * size)
    for k in range(3):  # the brokers have answered these
        lay.SENDS_DONE.pack_into(
            rows, k * size + lay.SENDS_DONE_OFFSET, 5 + k, 1, 0, 0, 1, 0, 0, 0, 0
        )
    # the client refused it at once
    rows[size + lay.SENDS_DONE_OFFSET + lay.OUTCOME_IN_DONE] = lay.FAIL
    assert own.complete(lay.ABORTED) == 3
    seen = np.frombuffer(rows[:], RAW_SENDS)
    assert seen["outcome"].tolist() == [4, 2, 4, 4, 0, 0, 0, 0]
    assert seen["t_done_ns"][:3].tolist() == [5, 6, 7]
    assert seen["t_done_ns"][3] > 0
    assert own.complete(lay.OK) == 0


@pytest.mark.parametrize(("error", "wanted"), [(0, 0), (9, 9)])
def test_rows_that_were_all_answered(tmp_path: Path, error: int, wanted: int) -> None:
    own, size = made(tmp_path), lay.ROW_BYTES[lay.SENDS]
    rows = mmap.mmap(-1, 4 * size)
    own.begin()
    own.wrote(rows, 0, 4 * size)
    for k in range(4):
        lay.SENDS_DONE.pack_into(
            rows, k * size + lay.SENDS_DONE_OFFSET, 5 + k, k, 0, 0, 1, 0, 0, 0, 0
        )
    assert own.complete(lay.INFO if error else lay.OK, error) == 4
    seen = np.frombuffer(rows[:], RAW_SENDS)
    assert set(seen["outcome"].tolist()) == {lay.INFO if error else lay.OK}
    assert seen["error"].tolist() == [wanted] * 4
    assert seen["position"].tolist() == [0, 1, 2, 3]


def test_one_ends_by_number_or_by_time(tmp_path: Path) -> None:
    by_time = made(tmp_path, messages=0, every_s=0.000001)
    by_time.begin()
    assert by_time.room() > 10**9
    assert by_time.is_due()
    by_number = made(tmp_path / "other", messages=3)
    (tmp_path / "other").mkdir()
    by_number.begin()
    assert (by_number.room(), by_number.is_due()) == (3, False)
