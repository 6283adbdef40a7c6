"""Reads git checkouts and copies them as they are, uncommitted changes included; writes nothing
into them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentNotReady, UsageError

_TIMEOUT_S = 300.0
#: A process that a hook of git starts inherits these, and they name another checkout.
_NOT_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


@dataclass(frozen=True, slots=True)
class Checkout:
    """``folder``: what was named; ``root``: of the working tree it is part of, perhaps itself."""

    folder: Path
    root: Path

    @classmethod
    def from_folder(cls, folder: Path) -> Checkout | None:
        """The checkout that a folder belongs to; None when it is not under version control.

        Raises:
            EnvironmentNotReady: git is not installed, or refuses to look.
        """
        if not any((each / ".git").exists() for each in (folder, *folder.parents)):
            return None
        found = _git(folder, "rev-parse", "--show-toplevel")
        if _git_ended(folder, "check-ignore", "--quiet", str(folder)).returncode == 0:
            return None  # such as a distribution that was built and unpacked inside
        return cls(folder, Path(found.strip()))

    def commit(self, revision: str = "HEAD") -> str:
        """The full id of a commit.

        Raises:
            UsageError: the commit does not exist here.
        """
        done = _git_ended(
            self.root,
            "rev-parse",
            "--quiet",
            "--verify",
            "--end-of-options",
            f"{revision}^{{commit}}",
        )
        if done.returncode:
            raise UsageError(
                f"{self.folder} has no commit {revision!r}",
                hint="`git log` there shows those it has",
            )
        return done.stdout.strip()

    def changes(self) -> str:
        """A digest of what differs from the last commit, new files included; empty when nothing
        does."""
        return digest_of(self.root, self._changed())

    def version(self, commit: str) -> str:
        """The newest tag before a commit that looks like a version; empty when there is none."""
        done = _git_ended(
            self.root, "describe", "--tags", "--abbrev=0", "--match", "*[0-9].[0-9]*", commit
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def text(self, commit: str, name: str) -> str | None:
        """A file below the folder as a commit has it; None when it has none."""
        path = (self.folder / name).relative_to(self.root).as_posix()
        done = _git_ended(self.root, "show", f"{commit}:{path}")
        return done.stdout if done.returncode == 0 else None

    def copy(self, commit: str, changes: str, target: Path) -> Path:
        """A commit with the changes that are here now, in a new folder ``target``; where the folder
        is there.

        It is a clone, so that builds that ask git for their version find their tags.

        Raises:
            UsageError: the changes are other ones than these, or the commit is another one.
        """
        if self._has(commit, ".gitmodules"):
            raise UsageError(f"{self.root} has submodules, which are not copied", hint=_OTHERWISE)
        if changes and self.commit() != commit:
            raise UsageError(_moved(self.folder, commit), hint=_AGAIN)
        _git(
            self.root,
            "clone",
            "--quiet",
            "--shared",
            "--no-checkout",
            "--template=",
            str(self.root),
            str(target),
        )
        _git(target, "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach", commit)
        if changes:
            changed = self._changed()
            for path in changed:
                _overlay(self.root / path, target / path)
            if digest_of(target, changed) != changes:
                raise UsageError(_moved(self.folder, commit), hint=_AGAIN)
        return target / self.folder.relative_to(self.root)

    def _changed(self) -> list[str]:
        listed = _git(
            self.root, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"
        )
        return sorted(entry[3:] for entry in listed.split("\0") if entry)

    def _has(self, commit: str, path: str) -> bool:
        return _git_ended(self.root, "cat-file", "-e", f"{commit}:{path}").returncode == 0


_AGAIN = "run the command again to take it as it is now"
_OTHERWISE = "name a wheel, a distribution, or a folder without .git"


def _moved(folder: Path, commit: str) -> str:
    return f"{folder} has changed since commit {commit[:12]} with changes was chosen"


def digest_of(root: Path, paths: Iterable[str]) -> str:
    """Return the digest of the names, kinds and contents of files below a folder; empty if there
    are no files.
    """
    digest, names = hashlib.sha256(), list(paths)
    for name in names:
        path = root / name
        if path.is_symlink():
            digest.update(f"link {os.readlink(path)}\0{name}\0".encode(errors="surrogateescape"))
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            kind = "program" if os.access(path, os.X_OK) else "file"
            digest.update(f"{kind} {content}\0{name}\0".encode(errors="surrogateescape"))
        else:
            digest.update(f"gone\0{name}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16] if names else ""


def _overlay(source: Path, target: Path) -> None:
    if not (source.is_file() or source.is_symlink()):
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def _git(folder: Path, *words: str) -> str:
    done = _git_ended(folder, *words)
    if done.returncode:
        said = (done.stderr.strip() or "no output").splitlines()[0].removeprefix("fatal: ")
        raise EnvironmentNotReady(f"git cannot read {folder}: {said[:300]}")
    return done.stdout


def _git_ended(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            # Without optional locks `status` leaves the index alone.
            env={**inherited, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise EnvironmentNotReady(
            f"{folder} is a git checkout and git is not installed",
            hint="install git (Debian: apt install git)",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentNotReady(f"git took over {_TIMEOUT_S:.0f} s to read {folder}") from error
