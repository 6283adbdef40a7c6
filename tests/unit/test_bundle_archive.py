"""Archives of bundles: equal bytes for equal files, and hostile ones refused before anything is
written."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.bundle import archive as bundle
from experiments.bundle.archive import unpack, write_archive
from harness.errors import UsageError


def nothing(folder: Path) -> None:
    """No demands on what was unpacked."""


def member(name: str, data: bytes = b"x", **changes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in changes.items():
        setattr(info, key, value)
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar as any tool may write it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return out.getvalue()


def announced(kind: bytes, size: int) -> bytes:
    """A header of an extended format that announces a name of any length."""
    info = tarfile.TarInfo("a/long")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def test_equal_files_make_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"two")
    made = []
    for files in ({"a": b"one", "d/b": tmp_path / "b"}, {"d/b": b"two", "a": b"one"}):
        out = io.BytesIO()
        write_archive(out, "run", files)
        made.append(out.getvalue())
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(made[0])) as tar:  # what every tar takes
        told = [(info.name, info.mtime, info.uid, info.uname, info.mode) for info in tar]
    assert told == [("run/a", 0, 0, "", 0o644), ("run/d/b", 0, 0, "", 0o644)]


def test_what_was_written_is_unpacked(tmp_path: Path) -> None:
    files = {"a": b"", "d/e/b": bytes(range(256)) * 5_000}
    with (tmp_path / "x.tar.gz").open("wb") as out:
        write_archive(out, "run", files)
    unpack(tmp_path / "x.tar.gz", tmp_path / "there", check=nothing)
    for name, content in files.items():
        assert (tmp_path / "there" / name).read_bytes() == content


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "above": (lambda: tar_of(member("run/../../evil")), "not a path below"),
    "absolute": (lambda: tar_of(member("/tmp/evil")), "not a path below"),
    "dot": (lambda: tar_of(member("run/./a")), "not a path below"),
    "no folder": (lambda: tar_of(member("evil")), "not a path below"),
    "two folders": (lambda: tar_of(member("run/a"), member("other/a")), "two folders"),
    "backslash": (lambda: tar_of(member("run/..\\evil")), "not a path below"),
    "control character": (lambda: tar_of(member("run/\x1b[2Ja")), "not a path below"),
    "long part": (lambda: tar_of(member(f"run/{'a' * 90}/{'b' * 250}")), "not a plain file"),
    "symlink": (
        lambda: tar_of(member("run/a", b"", type=tarfile.SYMTYPE, linkname="/etc")),
        "not a plain file",
    ),
    "hard link": (
        lambda: tar_of(member("run/a", b"", type=tarfile.LNKTYPE, linkname="x")),
        "not a plain file",
    ),
    "device": (
        lambda: tar_of(member("run/a", b"", type=tarfile.CHRTYPE, devmajor=1)),
        "not a plain file",
    ),
    "pipe": (lambda: tar_of(member("run/a", b"", type=tarfile.FIFOTYPE)), "not a plain file"),
    "folder": (lambda: tar_of(member("run/a", b"", type=tarfile.DIRTYPE)), "not a plain file"),
    "twice": (lambda: tar_of(member("run/a"), member("run/a")), "twice"),
    "file and folder": (lambda: tar_of(member("run/a"), member("run/a/b")), "a file and a folder"),
    "many": (lambda: tar_of(*(member(f"run/{n}") for n in range(40))), "more than 30 files"),
    "large": (lambda: tar_of(member("run/a", bytes(3 << 20))), "unpacks to more than"),
    "announced name": (lambda: announced(tarfile.GNUTYPE_LONGNAME, 1 << 40), "not a plain file"),
    "announced header": (lambda: announced(tarfile.XHDTYPE, 1 << 40), "not a plain file"),
    "announced file": (lambda: announced(tarfile.REGTYPE, 1 << 40), "unpacks to more than"),
    "negative": (lambda: announced(tarfile.REGTYPE, -512), "no size"),
    "cut short": (lambda: tar_of(member("run/a", b"x" * 9_000))[:2_000], "cut short"),
    "no tar": (lambda: b"no tar " * 400, "not a tar archive of plain files"),
    "empty": (lambda: bytes(1024), "it is empty"),
}


def check_there(folder: Path) -> None:
    if not any(folder.iterdir()):
        raise UsageError("it is empty")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(bundle, "MOST_FILES", 30)
    monkeypatch.setattr(bundle, "SLACK_BYTES", 1 << 20)
    make, why = HOSTILE[name]
    inner = tmp_path / "inner"
    inner.mkdir()
    path = inner / "x.tar.gz"
    path.write_bytes(gzip.compress(make()))
    with pytest.raises(UsageError, match=why):
        unpack(path, inner / "there", check=check_there)
    assert [each.name for each in tmp_path.rglob("*")] == ["inner", "x.tar.gz"]


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "cut short"), (b"PK\x03\x04", "no .tar.gz"), (b"\x1f\x8b\x08", "cut short")],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        unpack(path, tmp_path / "there", check=check_there)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_text("mine")
    with (tmp_path / "x.tar.gz").open("wb") as out:
        write_archive(out, "run", {"a": b"theirs"})
    with pytest.raises(UsageError, match="exists"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "mine", check=nothing)
    assert (tmp_path / "mine" / "a").read_text() == "mine"
