"""`upload`, and the commands that read what it leaves at a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from cli import main
from harness import stored
from harness.errors import Exit, UsageError
from harness.rundir import RunDir
from harness.stored import Folder, open_stored, upload
from tests.planted.campaign import LOST, leave_campaign
from tests.s3_server import CREDENTIALS, s3_bucket

CAMPAIGN = "20260101-000000-kafka-quick"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return leave_campaign(tmp_path_factory.mktemp("uploading") / "runs")


@pytest.fixture(scope="module")
def url(campaign: RunDir, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the campaign, at a URL."""
    there = f"file://{tmp_path_factory.mktemp('store')}/runs"
    upload(campaign, there)
    return there


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))


def told(capsys: pytest.CaptureFixture[str], campaign: RunDir, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["--run-dir", str(campaign.root.parent), *words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("words", [["show"], ["trace", LOST], ["trace", "--first"]], ids=" ".join)
def test_a_stored_run_says_what_the_run_said(
    campaign: RunDir, url: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    own = told(capsys, campaign, "--json", *words, CAMPAIGN)
    there = told(capsys, campaign, "--json", *words, f"{url}/{CAMPAIGN}")
    assert (there[0], json.loads(there[1])) == (own[0], json.loads(own[1]))


def test_only_documents_are_copied_and_what_is_gone_is_gone(campaign: RunDir, url: str) -> None:
    copy = open_stored(f"{url}/{CAMPAIGN}")
    assert not list(copy.root.rglob("*.parquet"))
    assert [each.seal_report.exists() for each in copy.rounds()] == [True, True]
    (copy.root / "stale.json").write_text("{}")
    assert not (open_stored(f"{url}/{CAMPAIGN}").root / "stale.json").exists()
    whole = open_stored(f"{url}/{CAMPAIGN}", with_tables=True)
    assert len(list(whole.root.rglob("*.parquet"))) == len(list(campaign.root.rglob("*.parquet")))


def test_the_runs_at_a_url_are_listed(
    campaign: RunDir, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, here, _ = told(capsys, campaign, "--json", "list", "runs")
    _, there, _ = told(capsys, campaign, "--json", "list", "runs", url)
    (own,), (found,) = json.loads(here)["items"], json.loads(there)["items"]
    assert found == {**own, "path": f"{url}/{CAMPAIGN}"}


def test_what_cannot_be_read_or_written_is_one_line(
    campaign: RunDir, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["show", f"{url}/nothing"], "there is no run at"),
        (["show", "s9://bucket/run"], "cannot read s9://bucket/run: Unrecognized filesystem type"),
        (["upload", CAMPAIGN, url], f"{url}/{CAMPAIGN} exists"),
        (["upload", CAMPAIGN, "bucket/runs"], "bucket/runs is not a URL"),
    ):
        code, _, err = told(capsys, campaign, *words)
        assert (code, err.count("\n")) == (Exit.USAGE, 2)
        assert said in err


def test_an_upload_that_is_cut_off_leaves_no_run(
    campaign: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, left = Folder.put, iter(range(5))

    def refuse(folder: Folder, source: Path, path: str) -> None:
        if next(left, None) is None:
            raise UsageError("the store is full")
        put(folder, source, path)

    monkeypatch.setattr(Folder, "put", refuse)
    with pytest.raises(UsageError, match="full"):
        upload(campaign, f"file://{tmp_path}")
    assert list((tmp_path / CAMPAIGN).rglob("*.json"))
    with pytest.raises(UsageError, match="no run at"):
        open_stored(f"file://{tmp_path}/{CAMPAIGN}")


@pytest.mark.parametrize("path", ["../outside.json", "/etc/passwd", "a/../../b", "large.json"])
def test_a_store_cannot_name_files_outside_the_copy_nor_fill_the_disk(path: str) -> None:
    info = pafs.FileInfo(path, pafs.FileType.File, size=2 << 30 if path == "large.json" else 5)
    with pytest.raises(UsageError, match="not a file of a run"):
        stored._require_sane(path, info, "s3://bucket/run")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of an S3 server."""
    with s3_bucket(tmp_path_factory.mktemp("s3") / "log") as url:
        yield url


@pytest.mark.spark
@pytest.mark.long
def test_executors_judge_what_an_s3_server_holds_and_the_verdict_goes_back(
    campaign: RunDir,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    upload(campaign, bucket)
    there = Folder(bucket) / CAMPAIGN
    before = there.files()["report.html"].mtime_ns
    own = told(capsys, campaign, "--json", "show", CAMPAIGN)
    code, out, _ = told(capsys, campaign, "--json", "analyze", there.url)
    judged = json.loads(out)
    assert code == own[0] == Exit.PASS
    outcomes = [
        [each["outcome"] for each in one["variants"]] for one in (judged, json.loads(own[1]))
    ]
    assert outcomes[0] == outcomes[1]
    after = there.files()
    assert (after["report.html"].mtime_ns or 0) > (before or 0)
    assert "unsafe-1/result.json" in after
    assert told(capsys, campaign, "--json", "show", there.url)[0] == Exit.PASS
