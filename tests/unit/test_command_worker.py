"""Workers in a language without a toolchain of ours: a command, and another one that makes what it
needs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from harness import workers
from harness.contract.driving import ContractBroken
from harness.contract.running import self_test
from harness.errors import UsageError, WorkerError
from harness.records import RAW_SENDS, Outcome
from harness.run.worker_process import WorkerProcess
from harness.workers import launch, load_worker, readiness
from harness.workers.spec import WorkerSpec
from tests.specs import sending, worker_spec

PROGRAM = Path(__file__).parents[1] / "data" / "perl" / "worker.pl"
needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="needs Perl")

HEAD = """
library = "appender"
system = "kafka"
about = "appends messages to a file"
language = "other"
roles = ["producer"]
versions = "all"

[options.producer]
flush = "always"

[other]
default = "1.2.0"
"""
PERL = 'command = ["env", "CLIENT_VERSION={version}", "perl", "{folder}/worker.pl"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "appender"
    made.mkdir()
    shutil.copy(PROGRAM, made)
    return made


def worker(folder: Path, text: str) -> WorkerSpec:
    (folder / "worker.toml").write_text(HEAD + text)
    return load_worker("appender", [folder])


@needs_perl
def test_a_worker_in_perl_writes_the_golden_files(folder: Path) -> None:
    self_test(worker(folder, PERL))


@needs_perl
def test_a_wrong_byte_of_the_self_test_is_named(folder: Path) -> None:
    program = folder / "worker.pl"
    program.write_text(program.read_text().replace("t + 41_500", "t + 41_501"))
    with pytest.raises(
        ContractBroken, match=r"sends-7-000000\.seg: byte 280 is 0x1d, must be 0x1c"
    ):
        self_test(worker(folder, PERL))


def test_a_worker_that_does_not_check_its_options_in_time_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "CHECK_TIMEOUT_S", 0.1)
    chosen = worker(folder, 'command = ["sh", "-c", "exec sleep 60"]\n')
    chosen = chosen.model_copy(update={"checks_options": True})
    assert workers.refused_options(chosen, worker_spec()) is None


@needs_perl
def test_a_worker_in_perl_sends_its_schedule(folder: Path, tmp_path: Path) -> None:
    chosen = worker(folder, PERL)
    argv, env = launch(chosen, "1.3.0")
    group = {"topic": "orders", "mode": "partition", "first": 0, "count": 2, "partitions": 2}
    broker, captured = tmp_path / "broker", tmp_path / "capture"
    part = sending(60, lane_groups=[group], rate_per_s=100, warm_up_s=0.1, load_s=0.1)
    streams = {"orders-0": 1, "orders-1": 2}
    spec = worker_spec(
        "p-1", "appender", part, streams=streams, capture_dir=str(captured), bootstrap=str(broker)
    )
    process = WorkerProcess(spec, captured)
    process.start(argv, env)
    process.wait_ready(10)
    assert process.ready_line is not None
    assert process.ready_line.client_version == "1.3.0"
    process.tell(f"start {time.monotonic_ns()}")
    process.tell(f"drain {time.monotonic_ns() + 10**10}")
    assert process.wait_done(10), process.why()
    rows = np.fromfile(captured / "sends-1-000000.seg", RAW_SENDS, offset=64)
    assert rows["seq"].tolist() == [n // 2 for n in range(20)]
    assert set(rows["outcome"].tolist()) == {Outcome.OK}
    assert broker.stat().st_size == 20 * 60


def test_places_of_the_command_are_filled_in(folder: Path) -> None:
    text = 'command = ["run", "{folder}/main.x", "--client={version}", "{build}/lib"]\nbuild = ["true"]\n'
    chosen = worker(folder, text)
    argv, env = launch(chosen, "2.0-beta")
    assert argv[:3] == ["run", f"{folder}/main.x", "--client=2.0-beta"]
    assert argv[3].startswith(f"{folder.parent}/cache/workers/appender-2.0-beta-")
    assert env["BROKERSTORM_WORKER_OPTIONS"] == '{"producer": {"flush": "always"}}'


def test_built_once_for_a_version_and_anew_when_a_source_changes(folder: Path) -> None:
    script = "echo {version} >> client; chmod +x client; echo x >> {folder}/../built"
    text = f'command = ["{{build}}/client"]\nbuild = ["sh", "-c", "{script}"]\n'
    chosen, said = worker(folder, text), list[str]()

    def made(version: str = "") -> str:
        return Path(
            launch(chosen, version, on_progress=lambda what, share: said.append(what))[0][0]
        ).read_text()

    with pytest.raises(WorkerError, match=r"appender 1\.2\.0 is not in the cache and --offline"):
        launch(chosen, offline=True)
    assert "to be built" in readiness(chosen).detail
    assert [made(), made(), made("2.0")] == ["1.2.0\n", "1.2.0\n", "2.0\n"]
    assert (folder.parent / "built").read_text() == "x\nx\n"
    assert said[:2] == ["building appender 1.2.0, once", "appender 1.2.0 built"]
    assert readiness(chosen).detail == "1.2.0"
    (folder / "worker.pl").write_text("other")
    assert "to be built" in readiness(chosen).detail


def test_what_does_not_build_is_one_line(folder: Path) -> None:
    chosen = worker(
        folder, 'command = ["{build}/x"]\nbuild = ["sh", "-c", "echo no compiler >&2; exit 3"]\n'
    )
    for _ in range(2):
        with pytest.raises(
            WorkerError, match=r"^appender 1\.2\.0 does not build: sh ended with 3: no compiler$"
        ):
            launch(chosen)


def test_a_program_that_is_not_there_is_asked_for(folder: Path) -> None:
    found = readiness(worker(folder, 'command = ["no-such-program", "{folder}"]\n'))
    assert (found.ok, found.detail, found.remedy) == (
        False, "needs no-such-program", "install no-such-program")  # fmt: skip


@pytest.mark.parametrize("version", ["../x", "-r", "1 0"])
def test_a_version_is_not_a_path_or_an_option(folder: Path, version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        launch(worker(folder, PERL), version)


def test_a_client_of_the_user_is_made_by_the_command_for_it(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "client-2.0.1"
    source.mkdir()
    (source / "code").write_text("mine")
    with pytest.raises(UsageError, match="cannot take a client from"):
        launch(worker(folder, PERL), f"dir:{source}")
    text = 'command = ["cat", "{build}/code", "{version}"]\nbuild_own = ["cp", "{source}/code", "{build}"]\n'
    known = workers._known.cache_clear  # the file of the worker is another one now
    known()
    argv, _ = launch(worker(folder, text), f"dir:{source}")
    assert Path(argv[1]).read_text() == "mine"
    assert argv[2] == "2.0.1"
    known()
    broken = worker(folder, text.replace("{source}/code", "{source}/nothing"))
    with pytest.raises(
        WorkerError, match=r"2\.0\.1 from .* does not build: cp ended with 1"
    ) as caught:
        launch(broken, f"dir:{source}")
    assert "nothing" in Path(caught.value.hint.rpartition(" ")[2]).read_text()


def test_versions_are_those_that_its_command_prints(folder: Path) -> None:
    told = worker(folder, 'command = ["true"]\nreleased = ["echo", "[\\"1.2.0\\", \\"1.3.0\\"]"]\n')
    assert workers.released(told) == ["1.2.0", "1.3.0"]


def test_a_command_that_does_not_tell_the_versions_is_named(folder: Path) -> None:
    silent = worker(folder, 'command = ["true"]\nreleased = ["echo", "nothing"]\n')
    with pytest.raises(WorkerError, match="echo does not list the versions of appender"):
        workers.released(silent)
