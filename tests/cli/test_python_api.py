"""The public Python API: results as data, errors as exceptions; from a checkout and from a
wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import brokerstorm
import pytest
from brokerstorm import api
from brokerstorm.results import result_of

from cli import main
from harness.rundir import RunDir
from tests.installed import ROOT, build, install
from tests.planted.campaign import LOST, leave_campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return leave_campaign(tmp_path_factory.mktemp("api") / "runs")


def shown(run: RunDir, runs: Path, capsys: pytest.CaptureFixture[str]) -> brokerstorm.Result:
    main(["--json", "show", str(run.root)])
    return result_of(json.loads(capsys.readouterr().out), runs)


def test_paths_in_a_mapping_are_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with api._file_of({"name": "x"}) as name:
        assert Path(name).parent == tmp_path
        assert json.loads(Path(name).read_text()) == {"name": "x"}
    assert list(tmp_path.iterdir()) == []
    monkeypatch.chdir("/proc")  # no file can be made there
    with api._file_of({"name": "x"}) as name:
        assert json.loads(Path(name).read_text()) == {"name": "x"}


def test_a_campaign_as_data(campaign: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    result = shown(campaign, campaign.root.parent, capsys)
    assert (result.scenario, result.seed, result.folder) == ("kafka-quick", 7, campaign.root)
    unsafe, safe = result.runs
    assert (unsafe.variant, unsafe.verdict, safe.variant) == ("unsafe", "fail", "safe")
    (lost,) = unsafe.violations
    assert (lost.cls, lost.count, lost.witnesses[0].message) == ("acked-lost", 2, LOST)
    assert unsafe.faults[0].kind == "pause"
    assert unsafe.report.is_file()
    assert unsafe.document["findings"][0]["class"] == "acked-lost"


def test_what_is_not_clean_says_what_was_found_and_where(
    campaign: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    unsafe = shown(RunDir(campaign.root / "unsafe-1"), campaign.root, capsys)
    with pytest.raises(AssertionError) as caught:
        brokerstorm.assert_clean(unsafe)
    said = str(caught.value).splitlines()
    assert said[0] == "unsafe-1: fail"
    assert said[1].startswith("  2 acked-lost: acknowledged, and not in the log (")
    assert said[2].startswith(f"    first {LOST} on orders-2 at 0.01")
    assert said[3] == f"    brokerstorm trace {LOST} {campaign.root / 'unsafe-1'}"
    assert said[-1] == f"  report {campaign.root / 'unsafe-1' / 'report.html'}"


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("unknown", 3)])
def test_only_a_pass_is_clean(
    campaign: RunDir, capsys: pytest.CaptureFixture[str], verdict: str, code: int
) -> None:
    main(["--json", "show", str(campaign.root / "safe-1")])
    document = json.loads(capsys.readouterr().out)
    document |= {
        "verdict": verdict,
        "exit_code": code,
        "reasons": ["nothing proved"],
        "findings": [],
    }
    result = result_of(document, campaign.root)
    assert result.verdict == verdict
    if code:
        with pytest.raises(AssertionError, match="nothing proved"):
            brokerstorm.assert_clean(result)
    else:
        brokerstorm.assert_clean(result)


def test_a_mistake_is_an_exception_with_the_exit_code_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(
        brokerstorm.BrokerstormError, match=r"load.ratee: unknown key.*did you mean rate"
    ) as caught:
        brokerstorm.run("kafka-smoke", overrides={"load.ratee": 1}, run_dir=tmp_path)
    assert (caught.value.kind, caught.value.exit_code) == ("ScenarioError", 2)
    with pytest.raises(brokerstorm.BrokerstormError, match="topics: must be a mapping"):
        brokerstorm.run({"name": "x", "topics": 1}, run_dir=tmp_path)
    with (
        pytest.raises(brokerstorm.BrokerstormError, match="no such scenario"),
        brokerstorm.up(scenario="nope", run_dir=tmp_path),
    ):
        pytest.fail("nothing is up")
    assert list(tmp_path.iterdir()) == []


def test_what_takes_too_long_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"brokerstorm run was not done after 0.1 s"):
        brokerstorm.run("kafka-smoke", run_dir=tmp_path, timeout_s=0.1, quiet=True)


# ----- installed, in a folder with a harness/ of the user's own -----------------------------------

SCRIPT = """
import sys
assert sys.modules.setdefault("harness", None) is None  # the user's own, whatever it is
import brokerstorm
try:
    brokerstorm.run("kafka-smoke", overrides={"load.ratee": 1})
except brokerstorm.BrokerstormError as error:
    print(brokerstorm.__file__, error.exit_code, error)
"""


@pytest.mark.extended
@pytest.mark.long
def test_an_installed_api_beside_modules_named_like_ours(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as archive:
        assert "brokerstorm/py.typed" in archive.namelist()
    installed = install(wheel, tmp_path)
    done = installed.call(str(installed.python), "-c", SCRIPT)
    assert done.stderr == ""
    place, code, text = done.stdout.split(" ", 2)
    assert Path(place).is_relative_to(installed.environment)
    assert code == "2"
    assert "did you mean rate?" in text
    # pytest finds the fixtures by itself
    listed = installed.call(
        str(installed.python), "-m", "pytest", "--fixtures", "-p", "no:cacheprovider", "-q"
    )
    assert "brokerstorm_cluster [session scope]" in listed.stdout


@pytest.mark.extended
@pytest.mark.long
def test_the_example_is_right_by_the_types_of_the_api() -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--explicit-package-bases",
        "--ignore-missing-imports",
    ]
    surroundings = {**os.environ, "MYPYPATH": f".{os.pathsep}{ROOT / 'launcher'}"}
    done = subprocess.run(
        [*command, "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache" / "example"), "shop", "tests"],
        cwd=ROOT / "examples" / "pytest", env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
