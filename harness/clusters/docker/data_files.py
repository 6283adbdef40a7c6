"""The data of a container that is down: read, changed and emptied by its engine, wherever that
runs."""

from __future__ import annotations

import filecmp
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final

from harness.clusters.docker.engine import asking, labels_of
from harness.errors import EnvironmentNotReady
from harness.protocols.files import DamagedPlace

_CHUNK_BYTES: Final = 64 * 1024


def damage(
    container: Any,
    mount: str,
    is_wanted: Callable[[str], bool],
    do: Callable[[Path], list[DamagedPlace]],
    *,
    folder: Path,
) -> list[DamagedPlace]:
    """Damage files below a mount of a container: copies of them here, which then take their place.

    Args:
        is_wanted: whether a file, by its path below the mount, may be damaged.
        do: damages files below a folder of this machine.
        folder: where there is room for copies, until this returns.

    Raises:
        EnvironmentNotReady: the engine refuses, or gives back other bytes than it was given.
        OSError: the copies cannot be written.
    """
    with TemporaryDirectory(dir=folder, prefix="damage-") as below:
        copies, again = Path(below) / "copies", Path(below) / "again"
        members = _copy(container, mount, copies, is_wanted)
        places = do(copies)
        for name in dict.fromkeys(place.file for place in places):
            _put(container, mount, copies, name, members[name])
            _copy(container, f"{mount}/{name}", again / name, lambda _: True)
            if not filecmp.cmp(copies / name, again / name, shallow=False):
                raise EnvironmentNotReady(
                    f"{mount}/{name} of {container.name} is not what was put there"
                )
    return places


def empty(client: Any, container: Any, mount: str, run_id: str) -> None:
    """Remove all that is below a mount of a container, by another one of its image that has its
    volumes.

    Raises:
        EnvironmentNotReady: the engine refuses, or something cannot be removed.
    """
    with asking(f"cannot empty {mount} of {container.name}"):
        client.containers.run(
            container.attrs["Image"],
            [mount, "-mindepth", "1", "-delete"],
            entrypoint=["find"],
            user="0",
            volumes_from=[container.id],
            network_disabled=True,
            labels=labels_of(run_id),
            remove=True,
        )


def _copy(
    container: Any, path: str, to: Path, is_wanted: Callable[[str], bool]
) -> dict[str, tarfile.TarInfo]:
    """Copy files below a path of a container; what each is there, by its path below that one. A
    file is copied to ``to`` itself."""
    found: dict[str, tarfile.TarInfo] = {}
    what = f"cannot read {path} of {container.name}"
    try:
        with asking(what):
            chunks, _ = container.get_archive(path, chunk_size=_CHUNK_BYTES)
            stream: Any = _Chunks(chunks)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = member.name.partition("/")[2]
                    if member.isreg() and is_wanted(name):
                        _extract(archive, member, to / name)
                        found[name] = member
    except tarfile.TarError as error:
        raise EnvironmentNotReady(
            f"{what}: {error}", hint="`brokerstorm doctor --runtime docker` checks the engine"
        ) from error
    return found


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = archive.extractfile(member)
    assert source is not None  # a regular file has contents
    with target.open("wb") as file:
        shutil.copyfileobj(source, file)


def _put(container: Any, mount: str, copies: Path, name: str, there: tarfile.TarInfo) -> None:
    """Put a copy in the place of its file, whose owner and mode it gets."""
    member = tarfile.TarInfo(name)
    member.uid, member.gid, member.mode, member.mtime = (
        there.uid,
        there.gid,
        there.mode,
        there.mtime,
    )
    member.size = (copies / name).stat().st_size
    with TemporaryFile(dir=copies.parent) as written:
        with tarfile.open(fileobj=written, mode="w") as archive, (copies / name).open("rb") as file:
            archive.addfile(member, file)
        written.seek(0)
        with asking(f"cannot write {mount}/{name} of {container.name}"):
            container.put_archive(mount, written)


class _Chunks:
    """A stream from the Docker engine, for a reader that reads it once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int) -> bytes:
        return next(self._chunks, b"")
