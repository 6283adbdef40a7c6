"""Builds of your own as versions: ``dir:PATH``, and what of that folder or file is meant.

As a user writes it, ``dir:PATH``, ``dir:PATH@COMMIT`` (of a git checkout) or either with a version
number after a space, it says where to look. Before anything is planned it is *pinned* to what is
there at that moment: ``dir:/PATH@COMMIT+CHANGES NUMBER``. That text is a version like any other:
every round of a command runs the same build, and a plan of an earlier run means what it meant then.
What a client or broker of that version is made from is a copy; the user's folder is only read.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError, WorkerError
from harness.rundir import path_below, resolved
from harness.toolchains.cache import cache_folder
from harness.toolchains.checkout import Checkout, digest_of

PREFIX: Final = "dir:"
#: The number of a build that has none: it is taken for newer than any.
UNKNOWN: Final = "unknown"
_PINNED = re.compile(r"^dir:(/.*)@([0-9a-f]{40,64})?(?:\+([0-9a-f]{16}))? (\S+)$", re.DOTALL)
_NUMBERED = re.compile(r"^(.+) (v?\d\S*|unknown)$", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_SHORT = 12
#: Keys of a scenario that hold a version.
_KEYS = ("version", "client_version")
_IGNORED = shutil.ignore_patterns(".git", "__pycache__")


@dataclass(frozen=True, slots=True)
class OwnBuild:
    """A pinned build; as text, a version that `own_build` reads.

    Attributes:
        path: a folder or a file.
        commit: of a git checkout; empty = ``path`` is none, or is not looked at as one.
        digest: of the uncommitted changes; without a commit, of all that counts of ``path``.
        number: the version that it is, or comes after; `UNKNOWN` = nothing says it.
    """

    path: Path
    commit: str = ""
    digest: str = ""
    number: str = UNKNOWN

    def __str__(self) -> str:
        return f"{PREFIX}{self.path}@{self.commit}{f'+{self.digest}' if self.digest else ''} {self.number}"

    @property
    def key(self) -> str:
        """The same for the same content; what is made from it is kept under this."""
        # Folders of one commit differ; without a commit the digest covers all.
        where = self.path if self.commit else self.path.suffix
        return hashlib.sha256(f"{where}\n{self.commit}\n{self.digest}".encode()).hexdigest()[
            :_SHORT
        ]

    @property
    def is_changed(self) -> bool:
        """Whether it has changes that are in no commit."""
        return bool(self.commit and self.digest)

    @property
    def state(self) -> str:
        """Which one it is, for people: ``commit 1a2b3c4d5e6f with changes 0123456789ab``."""
        if not self.commit:
            return f"sha256 {self.digest}"
        return f"commit {self.commit[:_SHORT]}" + (
            f" with changes {self.digest[:_SHORT]}" if self.digest else ""
        )

    @property
    def label(self) -> str:
        """For people: ``1.43.3 from /src/sarama, commit 1a2b3c4d5e6f``."""
        return f"{self.number} from {self.path}, {self.state}"

    @property
    def short(self) -> str:
        """For a narrow column: ``sarama@1a2b3c4d5e6f+0123``, or the name of a folder without
        commits."""
        changes = f"+{self.digest[:4]}" if self.digest else ""
        return (
            f"{self.path.name}@{self.commit[:_SHORT]}{changes}" if self.commit else self.path.name
        )

    def text(self, name: str) -> str | None:
        """A file of the pinned state; None when it has none.

        Raises:
            EnvironmentNotReady: git cannot be asked.
        """
        path = self.path / name
        if self.digest or not self.commit:
            return path.read_text(errors="replace") if path.is_file() else None
        checkout = Checkout.from_folder(self.path)
        return None if checkout is None else checkout.text(self.commit, name)

    def copy(self, target: Path) -> Path:
        """The pinned state in a new folder ``target``; the folder, or the file, to build from.

        Raises:
            WorkerError: it has changed since it was pinned.
            EnvironmentNotReady: git cannot be asked.
        """
        try:
            return self._copied(target)
        except UsageError as error:
            raise WorkerError(str(error), hint=error.hint) from error
        except OSError as error:
            raise WorkerError(f"cannot copy {self.path}: {error.strerror or error}") from error

    def _copied(self, target: Path) -> Path:
        if self.commit:
            checkout = Checkout.from_folder(self.path) if self.path.is_dir() else None
            if checkout is None:
                raise UsageError(f"{self.path} is no longer a git checkout")
            return checkout.copy(checkout.commit(self.commit), self.digest, target)
        if self.path.is_dir():
            copy = Path(shutil.copytree(self.path, target, symlinks=True, ignore=_IGNORED))
        else:
            target.mkdir(parents=True)
            copy = Path(shutil.copy2(self.path, target / self.path.name))
        if _content(copy) != self.digest:
            raise UsageError(
                f"{self.path} has changed since {self.state} was chosen",
                hint="repeat the command to use the new state",
            )
        return copy


def is_own(version: str) -> bool:
    """Whether a version, pinned or not, is a build of the user's."""
    return version.startswith(PREFIX)


def own_build(version: str) -> OwnBuild | None:
    """The build that a pinned version is; None for any other version."""
    found = _PINNED.match(version)
    return OwnBuild(Path(found[1]), found[2] or "", found[3] or "", found[4]) if found else None


def in_words(version: str) -> str:
    """A version for people."""
    own = own_build(version)
    return own.label if own else version


@dataclass(frozen=True, slots=True)
class AskedBuild:
    """A build as it was written: a folder or file that is there, a commit of it, its version
    number."""

    path: Path
    revision: str = ""
    number: str = ""


def asked_build(version: str) -> AskedBuild:
    """Parse ``dir:PATH[@COMMIT][ NUMBER]``.

    Raises:
        UsageError: no such folder or file.
    """
    text, number = version.removeprefix(PREFIX).strip(), ""
    if (found := _NUMBERED.match(text)) and not path_below(Path(), text).exists():
        text, number = found[1], found[2]
    path, revision = path_below(Path(), text), ""
    before, at, after = text.rpartition("@")
    if at and not path.exists():
        path, revision = path_below(Path(), before), after
    if not path.exists() or not text:
        raise UsageError(
            f"there is no folder or file {os.path.normpath(path)}",
            hint=f"write {PREFIX}PATH, e.g. {PREFIX}../client",
        )
    return AskedBuild(resolved(path), revision, number.removeprefix("v"))


def pinned_source(asked: AskedBuild) -> OwnBuild:
    """Sources, or a file, as they are now; a git checkout with its commit.

    Raises:
        UsageError: a commit of something that is not a checkout, or that it does not have.
        EnvironmentNotReady: git cannot be asked.
    """
    checkout = Checkout.from_folder(asked.path) if asked.path.is_dir() else None
    if checkout is None:
        if asked.revision:
            raise UsageError(
                f"{asked.path} is not a git checkout, so it has no commit {asked.revision!r}"
            )
        return OwnBuild(
            asked.path, "", _content(asked.path), asked.number or _number(asked.path.name)
        )
    commit = checkout.commit(asked.revision or "HEAD")
    changes = "" if asked.revision else checkout.changes()
    return OwnBuild(asked.path, commit, changes, asked.number or _number(checkout.version(commit)))


def _number(text: str) -> str:
    found = _NUMBER.search(text)
    # Behind the version a wheel has its tags: kafka_python-3.0.9-py3-none-any.whl.
    return re.sub(r"(-(py|cp)\d|\.tar\.gz$|\.whl$).*", "", found[0]) if found else UNKNOWN


def _content(path: Path) -> str:
    """A digest of a file, or of every file of a folder but what Python and git leave there."""
    if path.is_file():
        return digest_of(path.parent, [path.name])
    names = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(set(folders) - {".git", "__pycache__"})
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        names += [
            (Path(folder) / name).relative_to(path).as_posix() for name in (*links, *sorted(files))
        ]
    return digest_of(path, names)


def anchored(value: Any, base: Path) -> Any:
    """Data of a scenario in which builds of one's own that have a relative path are below
    ``base``."""
    if isinstance(value, list):
        return [anchored(each, base) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: absolute(each, base)
        if key in _KEYS and isinstance(each, str)
        else anchored(each, base)
        for key, each in value.items()
    }


def absolute(version: str, base: Path) -> str:
    """A version; a build of one's own that has a relative path is below ``base``."""
    if not is_own(version):
        return version
    path = version.removeprefix(PREFIX).strip()
    return version if path.startswith(("/", "~")) else f"{PREFIX}{base.resolve() / path}"


def build_log(name: str) -> Path:
    """Where the log of a build that failed is kept."""
    return cache_folder() / "workers" / f"{name}.log"


def failed_build(what: str, name: str, said: str, output: str) -> WorkerError:
    """The error of a build: one line, and where all the rest of its output is.

    Args:
        what: for people.
        name: of what was built, in the cache.
        said: the line that tells most.
    """
    path = build_log(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(output, errors="replace")
    return WorkerError(
        f"{what} does not build: {said}", hint=f"the whole output of the build is in {path}"
    )
