"""README and tutorial: each command is accepted where it stands, on a planted run in place of `make
run`.

Those that would start brokers or Spark are taken as far as that.
"""

from __future__ import annotations

import re
import shutil
import webbrowser
from pathlib import Path

import pytest

from cli import main
from harness.clusters import leftovers
from harness.clusters.layout import addresses
from harness.errors import Exit
from tests.cli.answers import STARTS, StartedError, refuse_to_start
from tests.pages import PAGES, ROOT, commands_of
from tests.pages import STARTS as START_PAGES
from tests.planted.campaign import LOST, leave_campaign

STARTERS = ("run", "repro", "suite", "analyze", "shrink", "hunt", "bisect", "up")
#: For a cluster that `up` left running, which there is none of here.
FOR_A_CLUSTER = ("inject", "down")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    leave_campaign(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for owner, name in STARTS:
        monkeypatch.setattr(owner, name, refuse_to_start)
    monkeypatch.setattr(addresses, "claims", list)
    monkeypatch.setattr(leftovers, "find", lambda *_: [])
    monkeypatch.setattr(webbrowser, "open", lambda *_: True)
    return tmp_path


@pytest.mark.skipif(
    shutil.which("go") is None, reason="a bug of sarama is shown, which is built with Go"
)
@pytest.mark.parametrize("page", [*PAGES, *START_PAGES], ids=lambda page: page.stem)
def test_each_command_of_a_page_in_its_order(
    page: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = commands_of(page)
    assert (commands[0] == ["make", "run"]) == (page in PAGES)
    assert len(commands) > 3
    for program, *words in commands:
        if program == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        elif words[0] in STARTERS:
            with pytest.raises(StartedError):
                main(words)
        elif words[0] in FOR_A_CLUSTER:
            assert main(words) == Exit.USAGE
            assert "cluster" in capsys.readouterr().err
        else:
            code = main(words)
            out, err = capsys.readouterr()
            # What this machine lacks for 50,000/s is the doctor's to say.
            assert code == Exit.PASS or (code == Exit.ENVIRONMENT and words == ["doctor"]), (
                words,
                err,
            )
            assert words[0] != "trace" or out.startswith(LOST), (
                "the first lost message of this very run"
            )


def test_no_command_names_a_message_of_another_run() -> None:
    named = [
        words
        for page in PAGES
        for words in commands_of(page)
        if re.search(r"\d+/\d+/\d+", " ".join(words))
    ]
    assert named == []
