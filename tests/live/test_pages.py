"""README and tutorial on live brokers: `make run` in small, and every further command on that very
run.

`make run` itself takes two minutes at 50,000/s; here it is the same scenario with `SMALLER`. What
would start brokers again is taken as far as that.
"""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import Exit
from harness.rundir import RunDir
from tests.cli.answers import STARTS, StartedError, refuse_to_start
from tests.live.printed import STARTERS, follow_summary
from tests.live.run_rig import brokerstorm
from tests.machine import ORPHANS
from tests.pages import PAGES, ROOT, commands_of
from tests.planted.parts import in_two_parts

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("spark")]

#: Less load and one fault, the one that loses messages; the machine that runs the tests may be
#: busy.
SMALLER = [
    *("--set", "load.rate=10000", "--set", "load.duration=8s", "--set", "load.warm_up=1s"),
    *("--set", 'faults=[{fault: pause, target: "leader-of:orders", at: 1s, for: 6s}]'),
    *("--set", "require.rate_ratio=0.1"),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which `make run` was called."""
    (recipe,) = re.findall(
        r"^\t\./brokerstorm (run .+)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    place = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        # Whole: the session that judges was opened in another folder.
        patch.setenv("BROKERSTORM_RUN_DIR", str(place / "runs"))
        said = brokerstorm(*recipe.split(), *SMALLER)
        assert said.code == Exit.PASS, said.out + said.err
        # a load of a minute is sealed in parts, this one is too short
        for each in ("unsafe-1", "safe-1"):
            in_two_parts(RunDir(place / "runs" / "latest" / each))
        patch.setattr(webbrowser, "open", lambda *_: True)
        yield place


@pytest.mark.parametrize("run", ["latest", "latest/unsafe-1"])
@pytest.mark.usefixtures("ran")
def test_each_command_that_the_summary_prints(run: str) -> None:
    """The message of the first acknowledged loss is in no part of the log."""
    (trace,) = [words for words in follow_summary(run) if words[0] == "trace"]
    assert "not in the log" in brokerstorm(*trace).out


def test_a_message_of_every_part_is_found(ran: Path) -> None:
    """The last message of a lane is in the last part of its bucket, in every table."""
    run = ran / "runs" / "latest" / "safe-1"
    for lane in range(6):
        sent = re.search(
            rf"1/{lane} sent seq 0\.\.(\d+)",
            brokerstorm("trace", f"1/{lane}/999999999", str(run)).err,
        )
        assert sent is not None
        found = brokerstorm("trace", f"1/{lane}/{sent[1]}", str(run))
        assert found.code == Exit.PASS, found.err
        assert "stored" in found.out
        assert "not in the log" not in found.out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_page_on_the_run_that_it_began_with(
    page: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in STARTS:
        if name != "start":  # Spark judges again
            monkeypatch.setattr(owner, name, refuse_to_start)
    for written in [*ran.glob("*.yaml"), *ran.glob("*.tar.gz")]:  # by the page before
        written.unlink()
    lost = re.search(r"first acked-lost in unsafe: (\S+) on", brokerstorm("show").out)
    assert lost is not None
    for program, *words in commands_of(page):
        if program == "make":
            continue
        if words[0] in STARTERS:
            with pytest.raises(StartedError):
                brokerstorm(*words)
            continue
        with ORPHANS:  # `clean` is for all runs
            said = brokerstorm(*words)
        codes = {"analyze": [Exit.FAIL], "doctor": [Exit.PASS, Exit.ENVIRONMENT]}
        assert said.code in codes.get(words[0], [Exit.PASS]), (words, said.out, said.err)
        assert words[0] != "trace" or said.out.startswith(lost[1]), (
            "the first lost message of this very run"
        )
