"""The indexes under the kernels: dense and sorted slots, places of several systems."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

from analysis.capture.bucket import Bucket, Columns
from analysis.kernels import slots
from analysis.kernels.history import BucketHistory
from analysis.kernels.places import Places
from analysis.kernels.slots import index_messages
from tests.oracles.judging import context_from, judged, labels
from tests.planted.tiny import History

FAR = 1 << 40


def indexed(history: History) -> BucketHistory:
    tables = history.tables()
    bucket = Bucket(0, context_from(history), tables["sends"], tables["log"], tables["deliveries"])
    return BucketHistory(bucket)


def test_slots_are_dense_by_instance_lane_and_sequence() -> None:
    h = indexed(History(partitions=2, producers=2).sent(3).sent(2, partition=1).sent(1, instance=2))
    assert h.n_slots == h.n_dense == 6
    slots = np.arange(6)
    expected = [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 2, 0], [1, 1, 0, 0], [1, 1, 1, 0], [2, 0, 0, 0]]
    assert h.identity(slots).tolist() == expected
    assert h.find(h.identity(slots)).tolist() == slots.tolist()


def test_a_wild_sequence_does_not_allocate() -> None:
    h = indexed(History().sent(3).log(0, FAR, 1, 2))
    assert (h.n_dense, h.n_slots) == (3, 4)
    assert h.identity_of(3) == (1, 0, FAR, 0)
    # A send row with such a sequence makes its group sparse; it is judged all the same.
    wild = History().send(0).send(1).send(FAR).log(0, FAR, 1)
    assert indexed(wild).n_dense == 0
    said = {(cls, message) for cls, _, _, message in labels(judged(wild))}
    assert ("producer-reorder", "1/0/1") in said
    assert [cls for cls, _ in said].count("send-record-missing") == 1


def test_holes_of_a_sparse_group_are_told_once_with_their_number() -> None:
    partial = judged(History().send(0).send(1).send(100_000).log(0, 1, 100_000))
    (missing,) = [e for e in partial.episodes if e.cls == "send-record-missing"]
    text = "99,998 of 100,001 records of producer 1 on orders-0 are missing"
    assert missing.witnesses[0].detail == text


def test_attempts_have_slots_of_their_own() -> None:
    h = indexed(History().sent(2).send(1, attempt=1).log(0, 1).log(1, attempt=1))
    assert (h.n_dense, h.n_slots) == (2, 3)
    assert h.identity_of(2) == (1, 0, 1, 1)
    assert h.first.tolist() == [0, 1, 2]


def test_an_unknown_identity_has_no_slot() -> None:
    h = indexed(History().sent(2).log(0, 1))
    wanted = np.array([[1, 0, 5, 0], [7, 0, 0, 0], [1, 9, 0, 0], [1, 0, 1, 0]])
    assert h.find(wanted).tolist() == [-1, -1, -1, 1]


def test_large_instance_numbers_do_not_allocate() -> None:
    identity = {
        "instance": np.array([5, 4_000_000_000]),
        "lane": np.array([0, 0]),
        "seq": np.array([0, 0]),
    }
    sends = Columns.from_arrays("sends", identity | {"kind": np.array([2, 2])})
    empty = (
        Columns.from_arrays("log", {}),
        Columns.from_arrays("deliveries", {}),
        Columns.from_arrays("deliveries", {}),
    )
    index, (slots, _, _, _) = index_messages(sends, *empty)
    assert slots.tolist() == [0, 1]
    assert index.groups.instance.tolist() == [5, 4_000_000_000]


def test_many_instances_and_lanes_are_numbered_as_few_are() -> None:
    """Beyond some thousand pairs a look-up by pair would not fit the processor's cache."""
    pairs = [(7 * n + 1, 3 * (n % 300), n) for n in range(300)] * 2
    identity = dict(zip(("instance", "lane", "seq"), np.array(sorted(pairs)).T, strict=True))
    identity["seq"] = np.arange(len(pairs)) % 2
    sends = Columns.from_arrays("sends", identity | {"kind": np.full(len(pairs), 2)})
    strange = {
        "instance": np.array([1, 2, 8]),
        "lane": np.array([0, 0, 0]),
        "seq": np.array([1, 0, 0]),
    }
    log = Columns.from_arrays("log", strange | {"kind": np.full(3, 2)})
    found = []
    for few in (0, 1 << 20):
        with patch.object(slots, "_FEW_PAIRS", few):
            empty = Columns.from_arrays("deliveries", {}), Columns.from_arrays("deliveries", {})
            index, (own, stored, _, _) = index_messages(sends, log, *empty)
        found.append(
            (own.tolist(), stored.tolist(), index.groups.start.tolist(), index.sparse.tolist())
        )
    assert found[0] == found[1]
    assert found[0][0] == list(range(600))
    assert found[0][1][:1] == [1]
    assert index.sparse.tolist() == [[2, 0, 0, 0], [8, 0, 0, 0]]


def places(**columns: list[int]) -> Places:
    return Places(
        Columns.from_arrays("log", {name: np.array(values) for name, values in columns.items()})
    )


def asked(index: Places, **columns: list[int]) -> list[int]:
    rows = len(next(iter(columns.values())))
    names = ("stream", "position", "ledger", "batch")
    return index.rows(*(np.array(columns.get(n, [0] * rows)) for n in names)).tolist()


def test_dense_positions_are_found_by_addition() -> None:
    index = places(stream=[1, 1, 1, 4, 4], position=[7, 8, 9, 0, 1])
    found = asked(index, stream=[1, 1, 4, 4, 1, 2, 0, -1], position=[7, 9, 1, 2, 6, 0, 0, -1])
    assert found == [0, 2, 4, -1, -1, -1, -1, -1]


def test_positions_with_holes_are_found_by_bisection() -> None:
    """Transaction markers take offsets that no reader sees."""
    index = places(stream=[1, 1, 1, 2, 2], position=[0, 2, 5, 0, 1])
    assert asked(index, stream=[1, 1, 1, 2, 1], position=[0, 1, 5, 1, 6]) == [0, -1, 2, 4, -1]


def test_positions_as_far_apart_as_numbers_go_are_found() -> None:
    """An import may number as it likes; so far apart, four parts do not fit one number."""
    far = 1 << 62
    index = places(stream=[1, 1, 1, 1], ledger=[0, 0, 7, 7], position=[3, far, 0, far])
    found = asked(index, stream=[1] * 5, ledger=[0, 0, 7, 7, 7], position=[3, far, far, 0, 3])
    assert found == [0, 1, 3, 2, -1]


def test_ledgers_and_batches_are_part_of_a_place() -> None:
    index = places(
        stream=[1] * 4, ledger=[10, 10, 12, 12], position=[0, 0, 0, 1], batch=[0, 1, 0, 0]
    )
    found = asked(
        index, stream=[1] * 4, ledger=[10, 12, 11, 12], position=[0, 1, 0, 0], batch=[1, 0, 0, 1]
    )
    assert found == [1, 3, -1, -1]
