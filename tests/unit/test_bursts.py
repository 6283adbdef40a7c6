"""Bursts: what is made together is what is made one by one."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.python_kit.worker_kit import layouts as lay
from workers.python_kit.worker_kit import payload
from workers.python_kit.worker_kit.bursts import BURST, OpenRows, Payloads
from workers.python_kit.worker_kit.payload import Sizes
from workers.python_kit.worker_kit.schedule import Schedule
from workers.python_kit.worker_kit.spec import Lane

TAG, INSTANCE, NOW_NS = 0xC0FFEE01, 0xFFFF_FFF0, 2**50 + 12345
AT = lay.SEGMENT_HEADER_BYTES


def lanes_of(count: int, *, keyed: bool, begin: int = 0) -> list[Lane]:
    return [
        Lane(
            begin + i,
            "orders",
            b"k%06d" % i if keyed else None,
            -1 if keyed else i,
            i if keyed else 0,
        )
        for i in range(count)
    ]


lanes = st.builds(
    lanes_of,
    st.sampled_from([1, 2, 12, BURST - 1, BURST, BURST + 1, 3 * BURST + 5]),
    keyed=st.booleans(),
    begin=st.sampled_from([0, 2**32 - 200]),
)
# whole nanoseconds a message, and not
rates = st.sampled_from([0.0, 50_000.0, 1.0, 30_000.0, 16_667.0])


@given(
    lanes=lanes,
    rate=rates,
    least=st.integers(52, 70) | st.sampled_from([150, 1000]),
    spread=st.sampled_from([0, 0, 1, 300]),
    first=st.integers(0, 300) | st.just(2**22 + 7),
    counts=st.lists(st.integers(1, BURST), min_size=1, max_size=4),
    kind=st.sampled_from([lay.WARM_UP, lay.LOAD]),
    profile=st.sampled_from([(), ((10**6, 0.3), (2 * 10**6, 1.0), (10**10, 0.5))]),
)
def test_payloads_and_rows_are_those_of_messages_made_one_by_one(
    lanes: list[Lane],
    rate: float,
    least: int,
    spread: int,
    first: int,
    counts: list[int],
    kind: int,
    profile: Sequence[tuple[int, float]],
) -> None:
    schedule = Schedule(10**15, rate, 0.0, 10.0, profile)
    sizes = Sizes(least, least + spread, INSTANCE)
    payloads, open_rows = Payloads(lanes, TAG, sizes), OpenRows(lanes)
    rows = mmap.mmap(-1, AT + sum(counts) * 96)
    open_rows.use(rows)
    values, at = [], AT
    for begin, count in zip(
        (first + sum(counts[:i]) for i in range(len(counts))), counts, strict=True
    ):
        columns = payloads.columns(begin, count, schedule, NOW_NS)
        values += payloads.of(begin, count, kind, columns)
        open_rows.write(at, begin, count, kind, columns, NOW_NS)
        at += count * 96
    assert len(values) == sum(counts)
    for k, value in enumerate(values):
        lane, seq = lanes[(first + k) % len(lanes)], (first + k) // len(lanes)
        due = schedule.due_ns(first + k) if rate else NOW_NS
        assert value == payload.encode(
            run_tag=TAG, instance=INSTANCE, lane=lane.lane, seq=seq, t_intended_ns=due, kind=kind,
            key=lane.key_number, length=sizes.of(lane.lane, seq),
        )  # fmt: skip
        row = lay.SENDS_OPEN.pack(lane.lane, 0, kind, seq, due, NOW_NS, 1)
        assert rows[AT + k * 96 :][:96] == row.ljust(96, b"\0")


def test_rows_taken_back_are_as_if_never_written() -> None:
    lanes, schedule = lanes_of(3, keyed=False), Schedule(0, 0.0, 0.0, 1.0)
    rows = mmap.mmap(-1, AT + 10 * 96)
    open_rows = OpenRows(lanes)
    open_rows.use(rows)
    columns = Payloads(lanes, TAG, Sizes(52, 52, 1)).columns(0, 8, schedule, NOW_NS)
    open_rows.write(AT, 0, 8, lay.LOAD, columns, NOW_NS)
    written = rows[:]
    open_rows.take_back(AT + 5 * 96, AT + 8 * 96)
    assert rows[: AT + 5 * 96] == written[: AT + 5 * 96]
    assert not any(rows[AT + 5 * 96 :])


def test_taking_nothing_back_changes_nothing() -> None:
    rows = mmap.mmap(-1, AT + 2 * 96)
    rows[:] = b"\1" * len(rows)
    open_rows = OpenRows(lanes_of(1, keyed=False))
    open_rows.use(rows)
    open_rows.take_back(AT + 96, AT + 96)
    assert set(rows[:]) == {1}


def test_a_big_endian_machine_is_told_before_it_writes_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    with pytest.raises(Exception, match="little-endian"):
        Payloads(lanes_of(1, keyed=False), 1, Sizes(52, 52, 1))
