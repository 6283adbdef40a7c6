"""Bisects over the commits of a checkout: ``git bisect run`` chooses, the rounds are played here.

git works in a clone below the folder of the bisection, which borrows the objects of the user's
checkout and never writes to it. What it runs at each commit is a few lines that ask this process
over a socket, so that all commits share its brokers and its Spark session.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from analysis.verdict.bisection import Answer, BisectionOutcome
from analysis.verdict.sequential import SequentialDecision
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.toolchains.own_builds import PREFIX

if TYPE_CHECKING:
    from analysis.verdict.bisection import Asking, Examiner

#: Run by git at each commit: its exit code is our answer. Without one it aborts the run (git: above
#: 127).
_ASK: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    sys.exit(int(asked.makefile().readline() or 255))
"""
#: What ``git bisect run`` takes an exit code for.
_OLD, _NEW, _SKIP, _ABORT = 0, 1, 125, 255
#: Names of the two sides; git's own, good and bad, mean *first bad* only.
_TERMS: Final = ("before", "changed")
_POLL_S: Final = 0.5


def git(folder: Path, *arguments: str) -> str:
    """Return what a git command prints.

    Raises:
        UsageError: git refuses; its last line says why.
        EnvironmentNotReady: no git.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise EnvironmentNotReady("no git on PATH", hint="install git") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"git {arguments[0]} in {folder}: {said[-1]}")
    return done.stdout.strip()


def ordered_ends(repo: Path, bad: str, good: str) -> tuple[str, str, list[str]]:
    """The ends as whole commit ids, and both with the older one first.

    Raises:
        UsageError: no repository, no such commits, or neither comes before the other.
    """
    git(repo, "rev-parse", "--show-toplevel")  # or it is not a checkout, which git says best
    bad, good = (_commit(repo, end) for end in (bad, good))
    if bad == good:
        raise UsageError(f"good and bad are the same commit, {bad}")
    for old, new in ((bad, good), (good, bad)):
        if git(repo, "merge-base", old, new) == old:
            return bad, good, [old, new]
    raise UsageError(
        f"neither of {bad[:12]} and {good[:12]} comes before the other",
        hint="name two commits of one line",
    )


def _commit(repo: Path, name: str) -> str:
    try:
        return git(
            repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except UsageError:
        raise UsageError(
            f"{repo} has no commit {name!r}", hint="a commit id, a tag or a branch"
        ) from None


class Commits:
    """A clone of a checkout, in which git chooses among the commits between two.

    Args:
        ends: the older and the newer one.
        is_fix: the older one is bad.
        folder: of the clone; made if it is not there.
    """

    def __init__(self, repo: Path, ends: tuple[str, str], *, is_fix: bool, folder: Path) -> None:
        self._old, self._new = ends
        self._is_fix = is_fix
        self._folder = folder
        top = Path(git(repo, "rev-parse", "--show-toplevel"))
        self._below = git(repo, "rev-parse", "--show-prefix")
        if not folder.exists():
            # Objects are borrowed, not copied; hooks and settings of the user's checkout stay
            # there.
            part = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            git(top, "clone", "--quiet", "--shared", "--no-checkout", ".", str(part))
            part.rename(folder)

    @property
    def count(self) -> int:
        """Commits that may be the first: the ones after the older end up to the newer one."""
        return int(git(self._folder, "rev-list", "--count", f"{self._old}..{self._new}"))

    def client_version(self, commit: str) -> str:
        """The version that is built from a commit (docs/howto/test-your-own-build.md)."""
        return f"{PREFIX}{self._folder / self._below}@{commit}"

    def subject(self, commit: str) -> str:
        """``2023-01-12 fix(producer): return errors for every message in retryBatch``."""
        return git(self._folder, "log", "-1", "--format=%as %s", commit)

    def search(self, examiner: Examiner, log: Path) -> Asking[Answer]:
        """Let ``git bisect run`` find the first commit of the new side; both ends are known.

        Args:
            log: gets what git prints.

        Raises:
            BrokerstormError: of a round, or git cannot continue.
        """
        git(self._folder, "bisect", "reset")
        terms = [f"--term-old={_TERMS[0]}", f"--term-new={_TERMS[1]}"]
        git(self._folder, "checkout", "--quiet", "--force", "--detach", self._new)
        git(self._folder, "bisect", "start", *terms, self._new, self._old)
        if self.count > 1:
            yield from self._run(examiner, log)
        return self._answer(examiner)

    def _code(self, examiner: Examiner, commit: str) -> Asking[int]:
        decision = yield from examiner.ask(commit)
        if decision is SequentialDecision.UNDECIDED:
            return _SKIP
        is_bad = decision is SequentialDecision.SHOWN
        return _NEW if is_bad != self._is_fix else _OLD

    def _run(self, examiner: Examiner, log: Path) -> Asking[None]:
        with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
            path = f"{short}/ask"  # the path of a socket may have about a hundred characters
            server.bind(path)
            server.listen()
            server.settimeout(_POLL_S)
            command = [
                "git",
                "-C",
                str(self._folder),
                "bisect",
                "run",
                sys.executable,
                "-c",
                _ASK,
                path,
            ]
            with log.open("w") as file, _running(command, file) as running:
                while running.poll() is None:
                    try:
                        asked, _ = server.accept()
                    except TimeoutError:
                        continue
                    with asked:
                        code = _ABORT
                        try:
                            code = yield from self._code(
                                examiner, git(self._folder, "rev-parse", "HEAD")
                            )
                        finally:
                            asked.sendall(f"{code}\n".encode())
        # Only skipped commits left is an end too; what is known is in the refs.
        if running.returncode not in (0, 2):
            raise BrokerstormError(
                f"git bisect run ended with exit code {running.returncode}: see {log}"
            )

    def _answer(self, examiner: Examiner) -> Answer:
        """Return the answer that git's own refs give."""
        new = git(self._folder, "rev-parse", f"refs/bisect/{_TERMS[1]}")
        olds = git(
            self._folder, "for-each-ref", "--format=%(objectname)", f"refs/bisect/{_TERMS[0]}-*"
        )
        left = git(self._folder, "rev-list", "--topo-order", new, "--not", *olds.split()).split()
        wanted = SequentialDecision.SHOWN if self._is_fix else SequentialDecision.NOT_SHOWN
        tried = [step.version for step in examiner.steps if step.decision is wanted]
        before = min(
            tried, key=lambda each: int(git(self._folder, "rev-list", "--count", f"{each}..{new}"))
        )
        if left == [new]:
            return Answer(outcome=BisectionOutcome.FOUND, why="", before=before, first=new)
        between = tuple(each for each in reversed(left) if each != new)
        return Answer(
            outcome=BisectionOutcome.NARROWED, why="", before=before, first=new, between=between
        )


@contextmanager
def _running(command: list[str], log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that a Ctrl-C of the terminal does not reach, and that ends with the block."""
    with subprocess.Popen(
        command,
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            raise
