"""Bisecting over commits: git chooses, rounds are scripted; the user's checkout stays as it is."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.bisect.commits import ordered_ends
from experiments.bisect.rounds import Bisection, commits_of, conclude
from experiments.experiment import RoundRequest
from experiments.judging import RoundOutcome
from harness.errors import Interrupted, UsageError
from tests.made_up import MadeUp, unusable
from tests.unit.test_bisection import no_plan, outcome, question


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A checkout of twelve commits, with a change that is not committed, and the commits."""
    folder = tmp_path_factory.mktemp("client")
    git(folder, "init", "-q")
    for number in range(12):
        (folder / "number").write_text(f"{number}")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"change {number}")
    (folder / "number").write_text("mine")
    return folder, git(folder, "rev-list", "--reverse", "HEAD").split()


def bisect(
    folder: Path,
    repo: tuple[Path, list[str]],
    play: Callable[[int], bool | RoundOutcome],
    *,
    is_fix: bool,
) -> dict[str, Any]:
    """``play``: whether the commit of a number shows it; it may raise."""
    checkout, commits = repo
    asked = question(is_fix=is_fix, versions=(commits[0], commits[-1]))
    asked = dataclasses.replace(asked, repo=str(checkout))

    def script(request: RoundRequest) -> RoundOutcome:
        said = play(commits.index(request.key.partition(" ")[0]))
        return said if isinstance(said, RoundOutcome) else outcome(said)

    played = MadeUp(folder, script)
    return conclude(
        played, Bisection(asked, no_plan, commits=commits_of(played.root, asked))
    ).document()


@pytest.mark.long
@pytest.mark.parametrize("first", [1, 7, 11])
@pytest.mark.parametrize("is_fix", [True, False])
def test_git_bisect_run_finds_the_commit(
    tmp_path: Path, repo: tuple[Path, list[str]], first: int, is_fix: bool
) -> None:
    checkout, commits = repo
    before = git(checkout, "for-each-ref"), git(checkout, "status", "--porcelain")
    told = bisect(tmp_path, repo, lambda number: (number >= first) != is_fix, is_fix=is_fix)
    assert (told["outcome"], told["first"]) == ("found", commits[first])
    assert told["before"] == commits[first - 1]
    assert told["release_notes"].endswith(f"change {first}")
    assert [side["version"] for side in told["sides"]] == [commits[first - 1], commits[first]]
    assert told["error"] <= 0.05
    assert before == (git(checkout, "for-each-ref"), git(checkout, "status", "--porcelain"))
    assert not (tmp_path / "checkout").exists()


@pytest.mark.long
def test_commits_that_do_not_build_are_skipped(
    tmp_path: Path, repo: tuple[Path, list[str]]
) -> None:
    def play(number: int) -> bool | RoundOutcome:
        return unusable("it does not build") if number in (5, 6) else number < 7

    told = bisect(tmp_path, repo, play, is_fix=True)
    commits = repo[1]
    assert (told["outcome"], told["exit_code"], told["before"]) == ("narrowed", 3, commits[4])
    assert (told["between"], told["first"]) == (commits[5:7], commits[7])


@pytest.mark.long
def test_what_stops_a_round_stops_git(tmp_path: Path, repo: tuple[Path, list[str]]) -> None:
    def play(number: int) -> bool:
        if 0 < number < 11:
            raise Interrupted("stopped by SIGINT", signal_number=2)
        return number == 0

    with pytest.raises(Interrupted):
        bisect(tmp_path, repo, play, is_fix=True)
    assert bisect(tmp_path, repo, lambda number: number < 3, is_fix=True)["first"] == repo[1][3]


def test_ends_are_commits_of_one_line(repo: tuple[Path, list[str]], tmp_path: Path) -> None:
    checkout, commits = repo
    assert ordered_ends(checkout, "HEAD", commits[2]) == (
        commits[-1],
        commits[2],
        [commits[2], commits[-1]],
    )
    with pytest.raises(UsageError, match="has no commit 'v9'"):
        ordered_ends(checkout, "v9", "HEAD")
    with pytest.raises(UsageError, match="are the same commit"):
        ordered_ends(checkout, commits[-1], "HEAD")
    with pytest.raises(UsageError, match="not a git repository"):
        ordered_ends(tmp_path, "a", "b")
    other = git(checkout, "commit-tree", "HEAD^{tree}", "-m", "another line")
    with pytest.raises(UsageError):
        ordered_ends(checkout, other, "HEAD")
