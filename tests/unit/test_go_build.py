"""Go workers: what a version means, what is built when, and clear words when it cannot be (Go will
do)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.network.toxiproxy import SERVER
from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.toolchains import go
from harness.toolchains.versions import nearest
from harness.workers import go_build, load_worker
from harness.workers.spec import GoBuild, WorkerSpec

BUILD: dict[str, Any] = {
    "default": "1.43.3",
    "source_path": "example.com/new/client",
    "modules": [
        {"path": "example.com/old/client", "from": "1.30.0"},
        {"path": "example.com/new/client", "from": "1.40.0"},
    ],
}
needs_go = pytest.mark.skipif(
    shutil.which("go") is None and not go.USUAL_PLACE.exists(), reason="needs Go"
)


@pytest.fixture(autouse=True)
def _fresh_look_for_go() -> Iterator[None]:
    go.find_go.cache_clear()
    yield
    go.find_go.cache_clear()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSpec:
    """A worker that needs no module but the standard library's."""
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "go.mod").write_text("module hello\n\ngo 1.19\n")
    (folder / "main.go").write_text(
        'package main\n\nfunc main() { println("example.com/new/client", "example.com/new/client/errors") }\n'
    )
    return WorkerSpec.read(folder, {
        "library": "hello", "system": "kafka", "about": "", "language": "go", "roles": ["producer"],
        "entry": "main.go", "versions": "all", "options": {"producer": {"A": "1"}}, "go": BUILD,
    })  # fmt: skip


def built_as(worker: WorkerSpec, build: dict[str, Any]) -> WorkerSpec:
    return worker.model_copy(update={"go": GoBuild.model_validate(build)})


@pytest.mark.parametrize(
    ("version", "module"),
    [
        ("", "example.com/new/client v1.43.3"),
        ("1.40.0", "example.com/new/client v1.40.0"),
        ("v1.38.1", "example.com/old/client v1.38.1"),
        ("1.30.0", "example.com/old/client v1.30.0"),
    ],
)
def test_the_module_path_follows_from_the_version(
    worker: WorkerSpec, version: str, module: str
) -> None:
    assert str(go_build.module_of(worker, version)) == module


@pytest.mark.parametrize("version", ["newest", "1.2", "1.29.9", "; rm -rf /"])
def test_what_is_no_version_is_refused(worker: WorkerSpec, version: str) -> None:
    with pytest.raises(UsageError, match="hello"):
        go_build.module_of(worker, version)
    with pytest.raises(UsageError, match="hello"):
        go_build.readiness(worker, version)


def test_near_versions_are_those_around() -> None:
    known = ["1.9.0", "1.38.0", "1.37.2", "1.40.1", "1.38.1", "1.100.0"]
    assert nearest("1.39.0", known) == ["1.38.0", "1.38.1", "1.40.1", "1.100.0"]
    assert nearest("0.1.0", known, 2) == ["1.9.0", "1.37.2"]


def test_a_go_that_is_older_than_a_module_asks_for_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "go"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "go version go1.20.14 linux/amd64"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    old_enough, too_new = load_worker("amqp091-go"), load_worker("pulsar-client-go")
    assert go_build.readiness(old_enough, "").ok
    found = go_build.readiness(too_new, "")
    assert not found.ok
    assert "too old for the worker of pulsar-client-go, which needs Go 1.24.0" in found.detail
    assert found.remedy == "install Go 1.24.0 or newer and have `go` on PATH"
    assert "which needs Go 1.24.0" in SERVER.readiness()[1]


@needs_go
def test_sources_are_built_as_if_written_for_the_version(
    worker: WorkerSpec, tmp_path: Path
) -> None:
    (worker.folder / "go.mod").write_text(
        "module hello\n\nrequire (\n\texample.com/new/client v1.43.3\n\texample.com/other v1.2.3\n"
        "\texample.com/new/client/pkg/messages v0.9.0\n"
        "\texample.com/of-the-client v1.0.0 // indirect\n)\n"
    )
    copy, module = tmp_path / "copy", go_build.module_of(worker, "1.37.2")
    go_build._copy_module(worker.folder, copy, {BUILD["source_path"]: module.path})
    go_build._require(worker, module, go.find_go(), copy)
    text = (copy / "go.mod").read_text()
    assert "example.com/old/client v1.37.2" in text
    assert "example.com/other v1.2.3" in text
    assert "example.com/new/client" not in text
    assert "of-the-client" not in text
    assert "brokerstorm/kit => ../go_kit" in text
    # it is the client's own: Go takes the version that the client asks for
    assert "pkg/messages" not in text
    assert '"example.com/old/client"' in (copy / "main.go").read_text()


@pytest.mark.long
@needs_go
def test_a_worker_imports_the_kit_wherever_its_folder_is(worker: WorkerSpec) -> None:
    (worker.folder / "go.mod").write_text(
        "module hello\n\ngo 1.19\n\nrequire brokerstorm/kit v0.0.0\n"
    )
    (worker.folder / "main.go").write_text(
        'package main\n\nimport (\n\t"os"\n\n\t"brokerstorm/kit"\n)\n\n'
        "func main() { os.Exit(kit.Main(nil, nil)) }\n"
    )
    fetched = {
        **BUILD,
        "modules": [{"path": "golang.org/x/sys", "from": "0.1.0"}],
        "default": "0.5.0",
    }
    argv, _ = go_build.launch(built_as(worker, fetched), "", False, lambda text, share: None)
    assert subprocess.run(argv, capture_output=True, text=True, check=False).returncode == 2
    golden = worker.folder.parent / "golden"
    golden.mkdir()
    assert subprocess.run([*argv, "--self-test", str(golden)], check=False).returncode == 0
    assert any(golden.iterdir())


@needs_go
def test_a_change_of_the_kit_is_another_binary(
    worker: WorkerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, toolchain = go_build.module_of(worker, ""), go.find_go()
    before = go_build.binary_path(worker, module, toolchain)
    changed = shutil.copytree(go_build.KIT, tmp_path / "go_kit")
    monkeypatch.setattr(go_build, "KIT", changed)
    assert go_build.binary_path(worker, module, toolchain) == before
    (changed / "clock.go").write_text("package kit\n")
    assert go_build.binary_path(worker, module, toolchain) != before


@needs_go
def test_built_once_and_anew_when_something_changes(worker: WorkerSpec) -> None:
    said: list[str] = []
    argv, env = go_build.launch(worker, "1.37.2", False, lambda text, share: said.append(text))
    assert env == {}
    said_of = subprocess.run(argv, capture_output=True, text=True, check=True).stderr
    assert said_of == "example.com/old/client example.com/old/client/errors\n"
    assert len(said) == 2
    assert go_build.launch(worker, "1.37.2", True, lambda text, share: said.append(text))[0] == argv
    assert len(said) == 2, "built twice"
    assert go_build.readiness(worker, "1.37.2").detail == "1.37.2"
    assert "to be built" in go_build.readiness(worker, "1.38.0").detail
    (worker.folder / "other.go").write_text("package main\n")
    with pytest.raises(WorkerError, match="not in the cache"):
        go_build.launch(worker, "1.37.2", True, lambda text, share: None)


@needs_go
def test_a_source_for_newer_versions_is_left_out_of_older_ones(worker: WorkerSpec) -> None:
    (worker.folder / "main.go").write_text("package main\n\nfunc main() { newer() }\n")
    (worker.folder / "newer.go").write_text(
        "//go:build is_newer\n\npackage main\n\nfunc newer() {}\n"
    )
    module = {"path": "brokerstorm.invalid/x", "from": "1.0.0"}
    tagged = built_as(worker, {**BUILD, "modules": [module], "tags": {"is_newer": "1.40.0"}})
    go_build.launch(tagged, "1.40.0", False, lambda text, share: None)
    with pytest.raises(WorkerError, match="undefined: newer"):
        go_build.launch(tagged, "1.39.9", False, lambda text, share: None)


@needs_go
def test_what_does_not_build_is_one_line(worker: WorkerSpec) -> None:
    (worker.folder / "main.go").write_text("package main\n\nfunc main() { nothing() }\n")
    broken = built_as(
        worker, {**BUILD, "modules": [{"path": "brokerstorm.invalid/x", "from": "1.0.0"}]}
    )
    with pytest.raises(
        WorkerError, match=r"hello 1\.43\.3 does not build with .*undefined: nothing"
    ) as caught:
        go_build.launch(broken, "", False, lambda text, share: None)
    assert "\n" not in str(caught.value)


def test_no_go_says_what_to_install(
    worker: WorkerSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(go, "USUAL_PLACE", tmp_path / "no-go")
    with pytest.raises(EnvironmentNotReady, match="not installed") as caught:
        go_build.launch(worker, "", False, lambda text, share: None)
    assert "install Go" in caught.value.hint
    assert caught.value.exit_code == 4
    assert go_build.readiness(worker, "").remedy == caught.value.hint
