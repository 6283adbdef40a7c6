"""The command line as a shell starts it: exit codes, pipes, the launcher, time to answer."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from analysis.report.documents import write_result
from cli import main
from harness.clusters.cluster import STATE_FILE
from harness.clusters.layout import addresses
from harness.rundir import RunDir, write_json
from tests.report_samples import passing

ROOT = Path(__file__).resolve().parents[2]
BROKERSTORM = [sys.executable, str(ROOT / "cli.py")]


def run(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BROKERSTORM, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "code"), [(["--version"], 0), (["run", "kafka-quick", "--set", "load.rate=0"], 2)]
)
def test_the_process_ends_with_the_exit_code(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "streams", "code"),
    [
        ("show", ">&-", 74),
        ("--json show", ">/dev/full", 74),
        ("show", ">&- 2>&-", 74),
        ("list classes", ">/dev/full", 74),
        ("--help", ">/dev/full", 74),
        ("show", "<&-", 0),
        ("show", "2>/dev/full", 0),
        ("show nosuch", "2>/dev/full", 2),
        ("--json show nosuch", ">/dev/full", 2),
        ("--json show nosuch", ">&- 2>&-", 2),
    ],
)
def test_output_that_cannot_be_written_is_no_verdict(
    arguments: str, streams: str, code: int, tmp_path: Path
) -> None:
    kept = RunDir(tmp_path / "runs" / "20260101-000000-kept").create()
    write_json(kept.manifest, {"status": "complete"})
    write_result(kept, passing())
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *BROKERSTORM, *arguments.split()],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 74 and "2>" not in streams:
        assert done.stderr.startswith("brokerstorm: the output could not be written: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["list"], 0),
        ([], 2),
        (["nonsense"], 2),
        (["plan", "nonsense"], 2),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    assert "Traceback" not in capsys.readouterr().err


def test_runs_are_where_the_environment_says(tmp_path: Path) -> None:
    done = run(
        "list", "runs", cwd=tmp_path, env={"BROKERSTORM_RUN_DIR": str(tmp_path / "elsewhere")}
    )
    assert f"no runs yet in {tmp_path / 'elsewhere'}" in done.stdout
    done = run("list", "runs", cwd=tmp_path)
    assert done.stdout.strip() == "no runs yet in runs"


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments", ["--help", "list classes", "explain", "plan kafka-storm", "list --json"]
)
def test_a_reader_that_leaves_is_no_error(arguments: str, tmp_path: Path) -> None:
    command = " ".join(f"'{word}'" for word in BROKERSTORM)
    script = f"{command} {arguments} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "classes"], ["plan", "kafka-quick"], ["explain"]]
)
def test_a_terminal_that_knows_only_ascii(arguments: list[str], tmp_path: Path) -> None:
    done = run(
        *arguments,
        cwd=tmp_path,
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """Help and a usage error answer at once: nothing is imported before it is needed."""
    heavy = {"pyspark", "pandas", "pyarrow", "numpy", "bokeh", "psutil", "docker", "pydantic"}
    heavy |= {"confluent_kafka", "kafka", "pulsar", "pika"}
    code = f"import sys, cli; sys.argv[1:] = ['--help']; cli.main(); print({heavy!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stdout + done.stderr


def test_the_launcher_finds_the_checkout_through_links(tmp_path: Path) -> None:
    root = tmp_path / "check out"
    (root / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "brokerstorm", root / "brokerstorm")
    for name in ("brokerstorm", "python"):
        program = root / ".venv" / "bin" / name
        program.write_text('#!/bin/sh\nshift\nprintf "[%s]" "$@"\nexit 3\n')
        program.chmod(0o755)
    (tmp_path / "link").symlink_to(root / "brokerstorm")
    (tmp_path / "relative").symlink_to("link")
    for path in (root / "brokerstorm", tmp_path / "link", tmp_path / "relative"):
        done = subprocess.run(
            [str(path), "a b", "$c", ""], cwd="/", capture_output=True, text=True, timeout=10
        )
        assert (done.stdout, done.returncode) == ("[a b][$c][]", 3)


def test_the_launcher_says_when_nothing_was_set_up(tmp_path: Path) -> None:
    shutil.copy(ROOT / "brokerstorm", tmp_path / "brokerstorm")
    done = subprocess.run(
        [str(tmp_path / "brokerstorm")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4
    assert done.stderr == f"brokerstorm is not set up yet. Run: make -C {tmp_path} setup\n"


def test_the_launcher_says_when_its_python_is_gone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "brokerstorm", tmp_path / "brokerstorm")
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "brokerstorm").symlink_to("/bin/true")
    (folder / "python").symlink_to(tmp_path / "python3.10")
    done = subprocess.run(
        [str(tmp_path / "brokerstorm")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.splitlines()) == (
        4, [f"brokerstorm is not set up yet. Run: make -C {tmp_path} setup"],
    )  # fmt: skip


def test_a_python_without_our_libraries_is_an_environment_error(tmp_path: Path) -> None:
    launcher = ROOT / "launcher" / "brokerstorm" / "__main__.py"
    done = subprocess.run(
        [sys.executable, "-S", str(launcher), "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 4
    assert (
        done.stderr
        == f"brokerstorm: {sys.executable} has no module click; run: make -C {ROOT} setup\n"
    )


@pytest.mark.long
@pytest.mark.parametrize(("module", "code"), [("pydantic", 4), ("harness.scenario.file", 70)])
def test_a_library_that_only_some_commands_load_is_missed_as_well(
    module: str, code: int, tmp_path: Path
) -> None:
    """One of ours is no library."""
    program = (
        f"import sys; sys.modules['{module}'] = None; import cli; sys.exit(cli.main(['plan', "
        "'kafka-quick']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 4:
        assert f"{sys.executable} has no module pydantic" in done.stderr
        assert f"run: make -C {shlex.quote(str(ROOT))} setup" in done.stderr


def test_make_lists_its_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    listed = {line.split()[1] for line in done.stdout.splitlines() if line.strip()}
    assert {"setup", "run", "test", "check", "bench", "docs", "clean"} <= listed


# ----- the machine --------------------------------------------------------------------------------


def without_java(folder: Path) -> dict[str, str]:
    """An environment without Java, also where one is installed beside the PATH."""
    folder.mkdir()
    return {
        "PATH": str(folder),
        "JAVA_HOME": str(folder),
        "BROKERSTORM_STATE": str(folder / "state"),
    }


@pytest.mark.long
def test_doctor_names_what_is_missing_and_the_remedy(tmp_path: Path) -> None:
    done = run("doctor", "kafka-smoke", cwd=tmp_path, env=without_java(tmp_path / "bin"))
    assert done.returncode == 4
    assert "MISSING  java: Java not found" in done.stdout
    assert "default-jdk-headless" in done.stdout
    assert "kafka-smoke: 1 of" in done.stdout or "kafka-smoke: 2 of" in done.stdout


@pytest.mark.long
def test_doctor_as_a_document(tmp_path: Path) -> None:
    done = run("doctor", "--json", cwd=tmp_path, env=without_java(tmp_path / "bin"))
    document = json.loads(done.stdout)
    assert (document["exit_code"], done.returncode) == (4, 4)
    checks = {check["name"]: check for check in document["checks"]}
    assert not checks["java"]["ok"]
    assert checks["python"]["ok"]
    assert checks["client confluent-kafka"]["ok"]


@pytest.mark.long
def test_a_run_checks_the_machine_before_it_leaves_anything(tmp_path: Path) -> None:
    done = run("run", "kafka-smoke", cwd=tmp_path, env=without_java(tmp_path / "bin"))
    assert done.returncode == 4
    assert "Java not found" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_clean_ends_what_carries_the_runs_id_and_nothing_else(tmp_path: Path) -> None:
    mine, other = (f"test-{uuid.uuid4()}" for _ in range(2))
    env = {"BROKERSTORM_STATE": str(tmp_path / "state")}
    sleepers = [
        subprocess.Popen(["sleep", "300"], env={**os.environ, **env, "BROKERSTORM_RUN_ID": run_id})
        for run_id in (mine, other)
    ]
    try:
        seen = run("clean", mine, "--dry-run", cwd=tmp_path, env=env)
        assert seen.stdout == f"found  {mine}: 1 processes (sleep {sleepers[0].pid})\n"
        assert sleepers[0].poll() is None
        done = run("clean", mine, "--json", cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["removed"] == [
            f"{mine}: 1 processes (sleep {sleepers[0].pid})"
        ]
        assert sleepers[0].wait(5) == -9
        assert sleepers[1].poll() is None
        assert psutil.pid_exists(sleepers[1].pid)
        again = run("clean", mine, cwd=tmp_path, env=env)
        assert (again.returncode, again.stdout) == (2, "")
        assert f"no run '{mine}'" in again.stderr
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait(5)


@pytest.mark.long
@pytest.mark.parametrize("command", ["down", "inject kill"])
def test_no_cluster_is_up(command: str, tmp_path: Path) -> None:
    done = run(*command.split(), cwd=tmp_path, env={"BROKERSTORM_STATE": str(tmp_path / "state")})
    assert done.returncode == 2
    assert done.stderr.startswith("brokerstorm: no cluster is up\n")


@pytest.mark.long
def test_a_kept_cluster_goes_down_also_when_its_java_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = without_java(tmp_path / "bin")
    monkeypatch.setenv("BROKERSTORM_STATE", env["BROKERSTORM_STATE"])
    run_id, folder = f"test-{uuid.uuid4()}", tmp_path / "runs" / "x" / "cluster"
    block = addresses.claim(run_id, folder, [])
    addresses.keep(block, run_id)
    write_json(
        folder / STATE_FILE,
        {
            "runtime": "process", "system": "kafka", "version": "4.1.2", "topology": "", "run_id": run_id,
            "block": block, "broker_config": {}, "needs": [], "secure": False, "source": {"jars": "/gone"},
        },
    )  # fmt: skip
    broker = subprocess.Popen(["sleep", "300"], env={**os.environ, "BROKERSTORM_RUN_ID": run_id})
    try:
        done = run("down", cwd=tmp_path, env=env)
        assert (done.returncode, done.stdout) == (0, f"stopped: {run_id}\n"), done.stderr
        assert broker.wait(20) == -9
        assert addresses.claims() == []
    finally:
        broker.kill()
        broker.wait(5)
