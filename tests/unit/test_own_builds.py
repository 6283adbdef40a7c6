"""Builds of one's own: what `dir:PATH` names, what it is pinned to, and what is copied from
there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.clusters import pinned as pinned_brokers
from harness.clusters import spec_of
from harness.errors import EnvironmentNotReady, ScenarioError, UsageError, WorkerError
from harness.scenario.file import load_scenario, variants
from harness.toolchains import jars
from harness.toolchains.own_builds import OwnBuild, asked_build, own_build, pinned_source
from harness.workers import environments, go_build, java_build, load_worker, pinned, readiness

POM = Path("org/apache/kafka/kafka-clients/9.0.0-SNAPSHOT/kafka-clients-9.0.0-SNAPSHOT.pom")


def git(folder: Path, *words: str) -> str:
    names = [f"GIT_{who}_{what}=x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    command = ["env", *names, "git", "-C", str(folder), "-c", "commit.gpgsign=false", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout of a Go module and a Python project in one, tagged v1.2.0."""
    folder = tmp_path / "sarama"
    folder.mkdir()
    (folder / "go.mod").write_text("module github.com/IBM/sarama\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "kafka_python"\ndynamic = ["version"]\n'
    )
    (folder / "code").write_text("one\n")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "tag", "v1.2.0")
    return folder


def build(text: str) -> OwnBuild:
    return pinned_source(asked_build(text))


def state(folder: Path) -> dict[str, bytes]:
    """Every file, those of git too."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ----- what it is pinned to -----------------------------------------------------------------------


def test_a_clean_checkout_is_its_commit_and_its_tag(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    found = build(f"dir:{checkout}")
    assert (found.commit, found.digest, found.number) == (commit, "", "1.2.0")
    assert not found.is_changed
    assert own_build(str(found)) == found
    assert str(found) == f"dir:{checkout}@{commit} 1.2.0"


@pytest.mark.parametrize("change", ["edited", "new", "deleted", "staged"])
def test_uncommitted_changes_are_another_build_and_are_copied(
    checkout: Path, tmp_path: Path, change: str
) -> None:
    clean = build(f"dir:{checkout}")
    if change == "deleted":
        (checkout / "code").unlink()
    else:
        (checkout / {"new": "new"}.get(change, "code")).write_text("two\n")
    if change == "staged":
        git(checkout, "add", "code")
    (checkout / "ignored").write_text("not part of it\n")
    before = state(checkout)
    found = build(f"dir:{checkout}")
    assert found.is_changed
    assert found.key != clean.key
    assert own_build(str(found)) == found
    copy = found.copy(tmp_path / "copy")
    wanted = {path.name: path.read_text() for path in checkout.iterdir() if path.is_file()}
    del wanted["ignored"]
    assert {path.name: path.read_text() for path in copy.iterdir() if path.is_file()} == wanted
    assert state(checkout) == before, "a checkout is only read"


def test_a_commit_is_taken_whatever_is_checked_out(checkout: Path, tmp_path: Path) -> None:
    (checkout / "code").write_text("two\n")
    found = build(f"dir:{checkout}@v1.2.0")
    assert not found.is_changed
    assert (found.copy(tmp_path / "copy") / "code").read_text() == "one\n"


def test_a_folder_of_a_checkout_that_git_ignores_is_a_folder(checkout: Path) -> None:
    (checkout / "ignored").mkdir()
    (checkout / "ignored" / "file").write_text("x")
    assert build(f"dir:{checkout}/ignored").commit == ""


def test_a_folder_without_git_is_its_content(tmp_path: Path) -> None:
    folder = tmp_path / "client-2.1.0"
    folder.mkdir()
    (folder / "code").write_text("one")
    first = build(f"dir:{folder}")
    assert (first.commit, first.number, first.is_changed) == ("", "2.1.0", False)
    assert own_build(str(first)) == first
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "code.pyc").write_text("x")
    assert build(f"dir:{folder}") == first
    (folder / "code").write_text("two")
    assert build(f"dir:{folder}").key != first.key
    with pytest.raises(WorkerError, match="has changed since"):
        first.copy(tmp_path / "copy")


def test_changes_that_went_on_are_no_build(checkout: Path, tmp_path: Path) -> None:
    (checkout / "code").write_text("two\n")
    found = build(f"dir:{checkout}")
    (checkout / "code").write_text("three\n")
    with pytest.raises(WorkerError, match="has changed since"):
        found.copy(tmp_path / "copy")


def test_a_number_may_be_stated(checkout: Path) -> None:
    assert build(f"dir:{checkout} 3.0.1").number == "3.0.1"
    git(checkout, "tag", "--delete", "v1.2.0")
    assert build(f"dir:{checkout}").number == "unknown"


def test_what_is_not_there(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder or file .*nowhere"):
        build(f"dir:{tmp_path}/nowhere")
    with pytest.raises(UsageError, match="has no commit 'v9'"):
        build(f"dir:{checkout}@v9")
    with pytest.raises(UsageError, match="not a git checkout"):
        build(f"dir:{tmp_path}@v9")


# ----- clients ------------------------------------------------------------------------------------


def test_a_module_of_another_path_or_none(checkout: Path, tmp_path: Path) -> None:
    sarama = load_worker("sarama")
    assert go_build.pinned(sarama, asked_build(f"dir:{checkout}")).number == "1.2.0"
    (checkout / "go.mod").write_text("module example.com/fork\n")
    with pytest.raises(UsageError, match=r"is the module example\.com/fork, not sarama"):
        go_build.pinned(sarama, asked_build(f"dir:{checkout}"))
    assert go_build.pinned(sarama, asked_build(f"dir:{checkout}@v1.2.0"))
    with pytest.raises(UsageError, match=r"no go\.mod"):
        go_build.pinned(sarama, asked_build(f"dir:{tmp_path}"))
    assert not readiness(sarama, f"dir:{tmp_path}").ok


def test_a_project_of_another_name_or_none(checkout: Path, tmp_path: Path) -> None:
    ours, theirs = load_worker("kafka-python"), load_worker("pika")
    assert environments.pinned(ours, asked_build(f"dir:{checkout}")).number == "1.2.0"
    with pytest.raises(UsageError, match="is kafka_python, not pika"):
        environments.pinned(theirs, asked_build(f"dir:{checkout}"))
    with pytest.raises(UsageError, match="not a Python project"):
        environments.pinned(ours, asked_build(f"dir:{tmp_path}"))
    wheel = tmp_path / "kafka_python-3.0.9-py3-none-any.whl"
    wheel.write_text("x")
    assert environments.pinned(ours, asked_build(f"dir:{wheel}")).number == "3.0.9"
    with pytest.raises(UsageError, match="not pika"):
        environments.pinned(theirs, asked_build(f"dir:{wheel}"))


@pytest.mark.extended
@pytest.mark.long
def test_a_python_build_that_fails_leaves_a_log_and_no_environment(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    (checkout / "pyproject.toml").write_text(
        '[project]\nname = "kafka-python"\n[build-system]\nrequires = []\nbuild-backend = "nowhere"\n'
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    worker = load_worker("kafka-python")
    version = pinned(worker, f"dir:{checkout}")
    with pytest.raises(WorkerError, match="does not build") as caught:
        environments.launch(worker, version, False, None)
    log = Path(caught.value.hint.rpartition(" ")[2])
    assert "nowhere" in log.read_text()
    assert not environments.is_built(worker, version)
    assert not environments.environment_folder(worker, version).exists()


def test_java_takes_jars_or_a_local_maven_repository(tmp_path: Path) -> None:
    worker = load_worker("kafka-clients")
    with pytest.raises(UsageError, match=r"no jars in .* lacks org\.apache\.kafka:kafka-clients"):
        java_build.pinned(worker, asked_build(f"dir:{tmp_path}"))
    (tmp_path / POM.parent).mkdir(parents=True)
    (tmp_path / POM).write_text("<project/>")
    found = java_build.pinned(worker, asked_build(f"dir:{tmp_path}"))
    assert (found.path, found.number) == (tmp_path / POM, "9.0.0-SNAPSHOT")
    wanted = java_build.client_of(worker, str(found)).artifacts
    assert wanted.coordinates[0] == "org.apache.kafka:kafka-clients:9.0.0-SNAPSHOT"
    wanted.own_modules().copy(tmp_path / "copy", found.digest)
    assert (tmp_path / "copy" / POM).exists()
    other = Path(str(tmp_path / POM).replace("9.0.0", "9.1.0"))
    other.parent.mkdir()
    other.touch()
    with pytest.raises(UsageError, match="several versions"):
        java_build.pinned(worker, asked_build(f"dir:{tmp_path}"))
    assert java_build.pinned(worker, asked_build(f"dir:{tmp_path} 9.0.0-SNAPSHOT")) == found
    (tmp_path / "kafka-clients-4.9.9.jar").touch()
    assert java_build.pinned(worker, asked_build(f"dir:{tmp_path}")).number == "4.9.9"


# ----- brokers ------------------------------------------------------------------------------------


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    folder = tmp_path / "kafka_2.13-4.1.9"
    (folder / "bin").mkdir(parents=True)
    (folder / "libs").mkdir()
    (folder / "bin" / "kafka-server-start.sh").touch()
    (folder / "libs" / "kafka_2.13-4.1.9.jar").write_text("jar")
    return folder


def test_a_distribution_is_a_version_of_the_brokers(
    distribution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    version = pinned_brokers("kafka", f"dir:{distribution}")
    spec = spec_of("kafka", version)
    assert (spec.version, spec.asked) == ("4.1.9", version)
    folder = jars.resolve(spec.artifacts, offline=True)
    assert [path.name for path in folder.glob("*.jar")] == ["kafka_2.13-4.1.9.jar"]
    (distribution / "libs" / "more.jar").touch()
    assert jars.resolve(spec.artifacts) == folder, "what was copied stays what it was"
    shutil.rmtree(folder)
    with pytest.raises(EnvironmentNotReady, match="have changed since"):
        jars.resolve(spec.artifacts)


def test_what_is_no_distribution(distribution: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it has no bin/pulsar"):
        pinned_brokers("pulsar", f"dir:{distribution}")
    with pytest.raises(UsageError, match="not from commit 'main'"):
        pinned_brokers("kafka", f"dir:{distribution}@main")
    (distribution / "libs" / "kafka_2.13-4.1.9.jar").unlink()
    with pytest.raises(UsageError, match="no jar in libs"):
        pinned_brokers("kafka", f"dir:{distribution}")


# ----- scenarios ----------------------------------------------------------------------------------


def test_paths_are_relative_to_the_file_and_to_the_user(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scenarios" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(
        "name: mine\nload: {producers: {p: {client: sarama}}}\nvariants:\n  own:\n"
        "    override: {load: {producers: {p: {client_version: 'dir:../sarama'}}}}\n"
    )
    seen: list[str] = []
    load_scenario(file, pin=lambda scenario, client, version: seen.append(version) or version)
    assert f"dir:{os.path.normpath(tmp_path / 'sarama')}" in map(os.path.normpath, seen)
    monkeypatch.chdir(checkout)
    loaded = load_scenario(file, overrides=["load.producers.p.client_version=dir:."])
    [(_, merged, _)] = variants(loaded)
    assert asked_build(merged.load.producers["p"].client_version).path == checkout


def test_a_build_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    from experiments.plans import read_scenario

    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nload:\n  producers:\n    p: {client: sarama, client_version: 'dir:nowhere'}\n"
    )
    with pytest.raises(
        ScenarioError, match=r"mine\.yaml:4: load\.producers\.p\.client_version: there is no"
    ):
        read_scenario(str(file))


def test_a_suite_has_builds_of_your_own_beside_it(checkout: Path, tmp_path: Path) -> None:
    from experiments.nights.file import load_suite
    from experiments.nights.matrix import expand
    from experiments.nights.planning import axes_of

    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "mine.yaml").write_text(
        "name: mine\nload: {producers: {p: {client: sarama}}}\n"
    )
    file = tmp_path / "suite" / "suite.yaml"
    file.write_text(
        "name: s\ncells: [{scenarios: [mine.yaml], clients: {sarama: ['dir:../sarama']}}]\n"
    )
    [cell] = expand(load_suite(file), axes_of(True, print))
    assert cell.id == "mine sarama@dir:../sarama"
    assert cell.client_version == str(build(f"dir:{checkout}"))


def test_a_run_tells_what_was_built_and_what_is_not_known_of_it(
    checkout: Path, tmp_path: Path
) -> None:
    from experiments.plans import choose_plans, read_scenario
    from experiments.preflight import _of_builds
    from harness.run.manifest import own_builds

    git(checkout, "tag", "--delete", "v1.2.0")
    (checkout / "code").write_text("two\n")
    file = tmp_path / "mine.yaml"
    version = f"client: sarama, client_version: 'dir:{checkout}'"
    file.write_text(f"name: mine\nload: {{producers: {{p: {{{version}}}}}}}\n")
    [plan] = choose_plans(read_scenario(str(file)), seed=1)
    [told] = own_builds(plan)
    found = build(f"dir:{checkout}")
    assert asdict(told) == {
        "name": "sarama", "path": str(checkout), "commit": found.commit, "changed": True,
        "sha256": found.digest, "version": "unknown",
    }  # fmt: skip
    assert ["is not known" in text for text in _of_builds(plan)] == [True]
