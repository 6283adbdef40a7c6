"""`bundle` and `open`, and the commands that read what they leave, on the file as well as on the
folder."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree

import pytest

from analysis.spark.session import WarmSession
from cli import main
from experiments.bundle.archive import write_archive
from experiments.repro.request import ReproRequest, as_in_run
from experiments.variants import RunRequest
from harness.errors import Exit, UsageError
from harness.rundir import RunDir, find_run, new_run, read_json, write_json
from tests.cli.answers import refuse_to_start
from tests.lent import settings
from tests.planted.campaign import LOST, leave_campaign
from tests.unit.test_reproduction import QUESTION

CAMPAIGN = "20260101-000000-kafka-quick"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a campaign, and one with nothing but its bundle ``x.tar.gz``."""
    root = tmp_path_factory.mktemp("bundling")
    campaign = leave_campaign(root / "runs")
    there = root / "there"
    there.mkdir()
    assert (
        main(
            ["--run-dir", str(campaign.root.parent), "-q", "bundle", "-o", str(there / "x.tar.gz")]
        )
        == 0
    )
    assert main(["--run-dir", str(there / "runs"), "open", str(there / "x.tar.gz")]) == 0
    return root


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    return code, *capsys.readouterr()


@pytest.mark.long
@pytest.mark.parametrize("name", [CAMPAIGN, "FILE"])
@pytest.mark.parametrize(
    "words", [["show", "RUN"], ["trace", LOST, "RUN"], ["trace", "--first", "RUN"]], ids=" ".join
)
def test_an_opened_bundle_says_what_the_run_said(
    runs: Path, words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    asked = str(runs / "there" / "x.tar.gz") if name == "FILE" else name
    in_bundle = [asked if word == "RUN" else word for word in words]
    own = [CAMPAIGN if word == "RUN" else word for word in words]
    code, out, _ = told(capsys, "--run-dir", str(runs / "there" / "runs"), "--json", *in_bundle)
    assert (code, json.loads(out)) == (
        (found := told(capsys, "--run-dir", str(runs / "runs"), "--json", *own))[0],
        json.loads(found[1]),
    )


def test_an_opened_bundle_has_its_issue_and_draws_its_pages_when_asked(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(runs / "there" / "runs" / CAMPAIGN)
    assert find_run(runs / "there" / "runs", None).root == run.root, "what was opened is the latest"
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    told(capsys, "--run-dir", str(runs / "there" / "runs"), "show", "--html", f"{CAMPAIGN}/safe-1")
    assert "acked-lost" in run.report.read_text()
    assert [each.report.exists() for each in run.rounds()] == [True, True]
    issue = (run.root / "issue.md").read_text()
    for text in (
        *(
            "## What was expected",
            "## What happened",
            "## The sequence",
            "## Hit rate",
            "## Repeat",
        ),
        *(
            "## Settings",
            "calls async, results checked",
            "## What triggers it",
            "- no `acked-lost`: ",
        ),
        *(
            "brokerstorm run kafka-quick --seed 7",
            "acked-lost: 2 in 1 episode",
            f"The life of {LOST}",
        ),
        *("#1 pause kafka-1", "unsafe, expected acked-lost: 1 of 1 round with acked-lost"),
    ):
        assert text in issue, text


@pytest.mark.long
@pytest.mark.parametrize("name", [f"{CAMPAIGN}/unsafe-1", "latest/unsafe-1"])
def test_one_round_of_a_campaign_is_a_run_of_its_own(
    runs: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        told(
            capsys,
            "--run-dir",
            str(runs / "runs"),
            "bundle",
            name,
            "-o",
            str(tmp_path / "1.tar.gz"),
        )[0]
        == 0
    )
    assert told(capsys, "open", str(tmp_path / "1.tar.gz"), str(tmp_path / "one"))[0] == 0
    code, out, _ = told(capsys, "show", f"{tmp_path}/one")
    assert code == Exit.FAIL
    assert "acked-lost" in out


@pytest.mark.long
def test_run_replay_takes_a_round_of_an_opened_bundle_and_the_file_of_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[RunRequest] = []
    monkeypatch.setattr(
        "commands.rounds.run_request", lambda _, request: asked.append(request) or 0
    )
    own, opened = str(runs / "runs"), str(runs / "there" / "runs")
    file = tmp_path / "1.tar.gz"
    assert told(capsys, "--run-dir", own, "bundle", f"{CAMPAIGN}/unsafe-1", "-o", str(file))[0] == 0
    for place, name in ((opened, f"{CAMPAIGN}/unsafe-1"), (str(tmp_path / "runs"), str(file))):
        assert told(capsys, "--run-dir", place, "run", "--replay", name)[0] == 0
    faults = [
        (each.replay.faults.read_text(), read_json(each.replay.plan))
        for each in asked
        if each.replay
    ]
    assert len(faults) == 2
    assert faults[0] == faults[1]


def test_repro_repeats_what_was_asked(runs: Path, tmp_path: Path) -> None:
    run = RunDir(runs / "there" / "runs" / CAMPAIGN)
    question = asdict(replace(QUESTION, pair="a-b", rounds=10, quick=True))
    given = {
        "overrides": (),
        "client_jars": None,
        "keep_up": False,
        "offline": False,
        "runtime": "auto",
    }
    request = ReproRequest(
        bug=str(run.root),
        pair="",
        rounds=None,
        quick=False,
        seed=None,
        master=None,
        **given,  # type: ignore[arg-type]
    )
    with pytest.raises(UsageError, match="was not left by `repro`"):
        as_in_run(settings(tmp_path), request)
    document = read_json(run.campaign)
    write_json(run.campaign, document | {"reproduction": {"question": question}})
    asked = as_in_run(settings(tmp_path), request)
    assert (asked.bug, asked.pair, asked.seed, asked.quick) == (str(run.scenario), "a-b", 7, True)
    replaced = {
        "until_hit": True,
        "overrides": ["variants.a.override.load.producers.p.client_version=2.0"],
    }
    write_json(run.campaign, document | {"reproduction": {"question": question | replaced}})
    hunt = as_in_run(settings(tmp_path), request)
    write_json(run.campaign, document)
    assert (hunt.until_hit, hunt.quick, hunt.rounds) == (True, False, None), "a hunt stays one"
    assert hunt.overrides == tuple(replaced["overrides"]), "with the versions that were compared"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bundle", "nosuch"], "no run 'nosuch'"),
        (["bundle", "unjudged"], "has not been judged"),
        (["bundle", "unsealed"], "is not sealed"),
        (["bundle", CAMPAIGN, "--max-size", "1KB"], "does not fit into 1.0 kB"),
        (["bundle", CAMPAIGN, "--max-size", "large"], "'large' is not a size"),
        (["bundle", CAMPAIGN, "--max-size", "0"], "'0' is not a size"),
        (["bundle", CAMPAIGN, "--max-size", "9" * 400], "is not a size"),
        (["bundle", CAMPAIGN, "-o", "/nosuch/x.tar.gz"], "cannot write /nosuch/x.tar.gz"),
        (["open", "nosuch.tar.gz"], "does not exist"),
        (["open", __file__], "is not a bundle"),
        (["show", "broken.tar.gz"], "is not a bundle"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:40],
)
def test_what_cannot_be_bundled_or_opened_is_said(
    runs: Path, tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.tar.gz").write_bytes(b"broken")
    whole = RunDir(runs / "runs" / CAMPAIGN / "unsafe-1")
    for name, documents in (
        ("unjudged", ("manifest.json",)),
        ("unsealed", ("manifest.json", "result.json")),
    ):
        folder = runs / "runs" / name
        folder.mkdir(exist_ok=True)
        for each in documents:
            (folder / each).write_bytes((whole.root / each).read_bytes())
        (folder / "plan.json").write_bytes(whole.plan.read_bytes())
    code, out, err = told(capsys, "--run-dir", str(runs / "runs"), *words)
    assert (code, out) == (Exit.USAGE, "")
    assert says in err
    assert not list(tmp_path.glob("*kafka*"))


def test_nothing_is_written_over(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.tar.gz").write_text("mine")
    words = ("--run-dir", str(runs / "runs"), "bundle", CAMPAIGN, "-o", str(tmp_path / "x.tar.gz"))
    assert told(capsys, *words)[0] == Exit.USAGE
    assert (tmp_path / "x.tar.gz").read_text() == "mine"
    assert told(capsys, *words, "--force")[0] == Exit.PASS
    assert told(capsys, "open", str(tmp_path / "x.tar.gz"), str(tmp_path))[0] == Exit.USAGE


@pytest.mark.parametrize("name", ["../mine", "/tmp", "..", "a/../../mine"])
def test_rounds_of_an_opened_bundle_stay_below_its_folder(
    runs: Path,
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WarmSession, "start", refuse_to_start)
    mine = RunDir(tmp_path / "mine").create()
    mine.manifest.write_text("{}")
    mine.result.write_bytes((runs / "runs" / CAMPAIGN / "unsafe-1" / "result.json").read_bytes())
    document = read_json(runs / "runs" / CAMPAIGN / "campaign.json") | {"runs": [name]}
    with (tmp_path / "x.tar.gz").open("wb") as out:
        write_archive(
            out,
            "x",
            {
                "bundle.json": b'{"schema_version": 1}',
                "campaign.json": json.dumps(document).encode(),
            },
        )
    assert told(capsys, "open", str(tmp_path / "x.tar.gz"), str(tmp_path / "x"))[0] == Exit.PASS
    code, _, err = told(capsys, "analyze", f"{tmp_path}/x")
    assert (code, "is not the folder of a round" in err) == (Exit.USAGE, True)
    assert not mine.report.exists()


def a_bundle(runs: Path, target: Path, folder: str, more: dict[str, bytes]) -> Path:
    """A bundle of one round with other files in it, in a folder of any name."""
    whole = runs / "runs" / CAMPAIGN / "unsafe-1"
    names = ("manifest.json", "result.json", "plan.json", "events.jsonl")
    files = {name: (whole / name).read_bytes() for name in names if (whole / name).exists()}
    with target.open("wb") as out:
        write_archive(out, folder, {"bundle.json": b'{"schema_version": 1}', **files, **more})
    return target


def test_a_bundle_brings_no_page_and_nothing_else_that_is_acted_on(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    more = {
        "report.html": b"<script>alert(1)</script>",
        "origin.json": b'{"url": "file:///tmp/elsewhere"}',
        "experiment.json": b"{}",
        "ledger/1.json": b"{}",
        "cluster/cluster.json": b"{}",
        "cluster/kafka-1/pid": b"1",
        "raw/p/notes.html": b"x",
    }
    kept = {
        "cluster/kafka-1/logs/server.log.2026-11-27-09": b"a line",
        "raw/p/hs_err_pid1.log": b"a crash",
    }
    file = a_bundle(runs, tmp_path / "x.tar.gz", "20260101-000000-evil", {**more, **kept})
    code, out, err = told(capsys, "--run-dir", str(tmp_path / "runs"), "--json", "open", str(file))
    assert (code, sorted(json.loads(out)["ignored"])) == (Exit.PASS, sorted(more)), err
    run = tmp_path / "runs" / "20260101-000000-evil"
    assert all((run / name).exists() for name in kept)
    assert not any((run / name).exists() for name in more)
    # left by a version that unpacked it
    (run / "report.html").write_text("<script>alert(1)</script>")
    told(capsys, "--run-dir", str(tmp_path / "runs"), "show", "--html")
    assert len(opened) == 1
    assert "alert(1)" not in (run / "report.html").read_text()


def test_a_page_outside_the_folder_of_runs_is_drawn_anew(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    there = tmp_path / "sent"
    copytree(runs / "runs" / CAMPAIGN / "unsafe-1", there)
    (there / "report.html").write_text("<script>alert(1)</script>")
    told(capsys, "--run-dir", str(tmp_path / "runs"), "show", "--html", str(there))
    assert "alert(1)" not in (there / "report.html").read_text()


@pytest.mark.parametrize(
    "folder",
    [
        "latest",
        "bundles",
        ".git",
        "history.sqlite",
        "history.sqlite-wal",
        "-rf",
        "--help",
        "$(id)",
        "a b",
    ],
)
def test_a_bundle_whose_folder_is_no_name_of_a_run_needs_a_folder(
    runs: Path, tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_bundle(runs, tmp_path / "x.tar.gz", folder, {})
    base = tmp_path / "runs"
    for words in (["open", str(file)], ["show", str(file)]):
        code, _, err = told(capsys, "--run-dir", str(base), *words)
        assert (code, "cannot be the name of a run" in err) == (Exit.USAGE, True), err
    assert not base.exists()
    code, out, _ = told(
        capsys, "--run-dir", str(base), "open", str(file), str(tmp_path / "$(my) run")
    )
    assert (code, f"'{tmp_path}/$(my) run'" in out) == (Exit.PASS, True)


def test_a_folder_named_latest_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    with pytest.raises(UsageError, match="not the link to the latest run"):
        new_run(tmp_path, "x")
    assert [each.name for each in tmp_path.iterdir()] == ["latest"]
