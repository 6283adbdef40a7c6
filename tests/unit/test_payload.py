"""Payloads: what is encoded checks as ok, and no single change goes unnoticed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.python_kit.worker_kit import layouts as lay
from workers.python_kit.worker_kit import payload

u32 = st.integers(0, 2**32 - 1)
payloads = st.builds(
    payload.encode,
    run_tag=st.just(0xABCD),
    instance=u32,
    lane=u32,
    seq=st.integers(0, 2**64 - 1),
    t_intended_ns=st.integers(-(2**63), 2**63 - 1),
    kind=st.sampled_from([lay.PROBE, lay.WARM_UP, lay.LOAD]),
    key=u32,
    attempt=st.integers(0, 2**16 - 1),
    length=st.integers(52, 400),
)


@given(payloads)
def test_encoded_payload_is_ok_and_takes_the_fast_path(value: bytes) -> None:
    assert payload.check(value, 0xABCD) == lay.CHECK_OK
    assert zlib.crc32(value) == payload.RESIDUE
    assert value[:8] in payload.accepted_prefixes(0xABCD)


@given(payloads, st.data())
def test_any_flipped_bit_is_noticed(value: bytes, data: st.DataObject) -> None:
    at, bit = data.draw(st.integers(0, len(value) - 1)), data.draw(st.integers(0, 7))
    broken = bytearray(value)
    broken[at] ^= 1 << bit
    assert payload.check(bytes(broken), 0xABCD) in (lay.CORRUPT, lay.FOREIGN)
    fast = (
        bytes(broken[:8]) in payload.accepted_prefixes(0xABCD)
        and zlib.crc32(broken) == payload.RESIDUE
    )
    assert not fast


@given(payloads, st.integers(1, 399))
def test_cut_payload_is_not_ok(value: bytes, cut: int) -> None:
    assert payload.check(value[:-cut], 0xABCD) != lay.CHECK_OK


@given(payloads, u32.filter(lambda tag: tag != 0xABCD))
def test_payload_of_another_run(value: bytes, tag: int) -> None:
    assert payload.check(value, tag) == lay.OTHER_RUN
    assert value[:8] not in payload.accepted_prefixes(tag)


@given(st.binary(max_size=80).filter(lambda b: b[:2] != b"BS"))
def test_foreign(value: bytes) -> None:
    assert payload.check(value, 1) == lay.FOREIGN


def test_too_short_a_payload_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 52"):
        payload.encode(run_tag=1, instance=1, lane=1, seq=1, t_intended_ns=1, length=51)


def test_filler_is_fixed() -> None:
    assert payload.filler(8).hex() == "3c5e81b40c5ec68e"


@given(st.integers(52, 10_000), st.integers(0, 10_000), u32, u32, st.integers(0, 2**64 - 1))
def test_a_size_is_within_its_range(
    least: int, more: int, instance: int, lane: int, seq: int
) -> None:
    assert least <= payload.Sizes(least, least + more, instance).of(lane, seq) <= least + more


def test_sizes_spread_over_the_whole_range() -> None:
    sizes = payload.Sizes(100, 109, 7)
    assert {sizes.of(lane, seq) for lane in range(3) for seq in range(100)} == set(range(100, 110))
    assert [sizes.of(1, seq) for seq in range(20)] != [sizes.of(2, seq) for seq in range(20)]


def test_sizes_of_a_table_come_as_often_as_they_are_in_it() -> None:
    sizes = payload.Sizes(60, 900, 7, (60, 60, 60, 900))
    count = sum(sizes.of(3, seq) == 60 for seq in range(20_000))
    assert count == pytest.approx(15_000, abs=300)
