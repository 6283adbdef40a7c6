"""Damage to files: where it may be, what is told of it, and which files are of a kind."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import pytest

from harness.clusters.nodes.file_damage import damage_files, kind_of, used_bytes
from harness.protocols.files import Damage, DamagedPlace, FileKind
from harness.systems import SYSTEMS

KAFKA = SYSTEMS["kafka"].file_kinds
_ALLOCATED = 1 << 20
_TEXT = bytes(range(1, 251)) * 400


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A partition with 100,000 B of log and an index that is allocated and empty."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "0.log").write_bytes(_TEXT + bytes(_ALLOCATED))
    (folder / "0.index").write_bytes(bytes(_ALLOCATED))
    return tmp_path


def done(
    data: Path, files: FileKind, damage: Damage, *, seed: int = 7, places: int = 1
) -> list[DamagedPlace]:
    rng = random.Random(seed)
    return damage_files(data, KAFKA, files, damage, places=places, size_bytes=64, rng=rng)


def test_one_bit_of_what_was_written_is_another(data: Path) -> None:
    for seed in range(20):
        (place,) = done(data, "log", "flip", seed=seed)
        assert place.file == "orders-0/0.log"
        assert place.offset < len(_TEXT)
        assert bin(int(place.before, 16) ^ int(place.after, 16)).count("1") == 1
        found = (data / place.file).read_bytes()
        assert found[place.offset] == int(place.after, 16)


def test_the_end_of_what_was_written_is_cut_once(data: Path) -> None:
    (place,) = done(data, "log", "cut", places=5)
    assert (place.offset, place.size_bytes, place.after) == (len(_TEXT) - 64, 64, "")
    assert (data / place.file).read_bytes() == _TEXT[:-64]
    assert str(place) == f"orders-0/0.log at 99,936: {place.before} -> cut by 64 B"


def test_zeros(data: Path) -> None:
    (place,) = done(data, "any", "zero")
    end = place.offset + place.size_bytes
    assert (data / place.file).read_bytes()[place.offset : end] == bytes(place.size_bytes)


def test_what_is_allocated_and_not_written_is_not_damaged(data: Path) -> None:
    assert used_bytes(data / "orders-0/0.log") == len(_TEXT)
    assert done(data, "index", "flip", places=9) == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("orders-11/00000000000000000042.log", "log"),
        ("__consumer_offsets-3/00000000000000000000.log", "log"),
        ("__cluster_metadata-0/00000000000000000000.log", "metadata"),
        ("orders-11/00000000000000000042.timeindex", "index"),
        ("orders-11/00000000000000000042.snapshot", "snapshot"),
        ("recovery-point-offset-checkpoint", "metadata"),
        ("orders-11/leader-epoch-checkpoint", "metadata"),
        ("my-checkpoint-0/00000000000000000000.log", "log"),
        ("bootstrap.checkpoint", "metadata"),
        ("cleaner-offset-checkpoint.tmp", "metadata"),
        ("orders-3.a2634111e574409c8539836d586a79c2-delete/00000000000000000000.log", "unused"),
        (".lock", ""),
    ],
)
def test_files_of_kafka(path: str, kind: str) -> None:
    assert kind_of(path, KAFKA) == kind


def test_every_system_tells_its_log(data: Path) -> None:
    for system in SYSTEMS.values():
        assert "log" in system.file_kinds
        assert set(system.file_kinds) <= set(get_args(FileKind)) - {"any"} | {"unused"}
