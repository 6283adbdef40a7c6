"""Java workers: what a version means, what is compiled when."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.workers import java_build, known_workers, load_worker
from harness.workers.spec import WorkerSpec

needs_javac = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
BUILD: dict[str, Any] = {
    "default": "2.0.0",
    "jvm": ["-Dx=1"],
    "clients": [
        {"name": "ours", "without": ["New.java"], "coordinates": ["group:ours:{version}"]},
        {
            "name": "ours",
            "from": "3.0",
            "java": 17,
            "coordinates": ["group:ours3:{version}", "group:log:1.0"],
        },
        {"name": "theirs", "coordinates": ["other:theirs:{version}"], "exclude": ["a:b"]},
    ],
}


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSpec:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    kit, folder = tmp_path / "kit", tmp_path / "worker"
    kit.mkdir()
    folder.mkdir()
    monkeypatch.setattr(java_build, "KIT", kit)
    (folder / "Hello.java").write_text(
        "package hello; public class Hello {"
        'public static void main(String[] a) { System.out.println("hi"); } }'
    )
    return WorkerSpec.read(folder, {
        "library": "hello", "system": "kafka", "about": "", "language": "java", "roles": ["producer"],
        "entry": "hello.Hello", "versions": "all", "java": BUILD,
    })  # fmt: skip


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "empty.jar").write_bytes(b"PK\x05\x06" + bytes(18))
    return folder


@pytest.mark.parametrize(
    ("version", "coordinates", "java"),
    [
        ("", ("group:ours:2.0.0",), 11),
        ("2.9.10", ("group:ours:2.9.10",), 11),
        ("3.0.0", ("group:ours3:3.0.0", "group:log:1.0"), 17),
        ("10.1", ("group:ours3:10.1", "group:log:1.0"), 17),
        ("theirs 0.10", ("other:theirs:0.10",), 11),
    ],
)
def test_what_a_version_stands_for(
    worker: WorkerSpec, version: str, coordinates: tuple[str, ...], java: int
) -> None:
    client = java_build.client_of(worker, version)
    assert client.artifacts.coordinates == coordinates
    assert client.java == java
    assert client.artifacts.own is None


@pytest.mark.parametrize("version", ["../x", "-r", "latest", "nobody 1.0", "1.0 --release"])
def test_a_version_is_not_a_path_or_an_option(worker: WorkerSpec, version: str) -> None:
    with pytest.raises(UsageError, match="client_version"):
        java_build.client_of(worker, version)


def test_a_folder_without_jars(worker: WorkerSpec, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no jars in"):
        java_build.client_of(worker, f"jars:{tmp_path}")


def test_offline_and_not_in_the_cache(worker: WorkerSpec) -> None:
    with pytest.raises(EnvironmentNotReady, match=r"group:ours:1\.0\.0 is not in the cache"):
        java_build.launch(worker, "1.0.0", True, lambda text, share: None)
    assert "not fetched yet" in java_build.readiness(worker, "1.0.0").detail


@pytest.mark.long
@needs_javac
def test_compiled_once_and_again_when_a_source_changes(worker: WorkerSpec, jars: Path) -> None:
    said: list[str] = []
    version = f"jars:{jars}"

    def launch() -> str:
        said.clear()
        argv, _ = java_build.launch(worker, version, True, lambda text, share: said.append(text))
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    assert launch() == "hi\n"
    assert any("compiling" in text for text in said)
    assert launch() == "hi\n"
    assert said == []
    assert java_build.readiness(worker, version).ok
    source = worker.folder / "Hello.java"
    source.write_text(source.read_text().replace("hi", "ho"))
    assert launch() == "ho\n"


@pytest.mark.parametrize(("version", "sources"), [("2.9", ["Hello"]), ("3.0", ["Hello", "New"])])
def test_what_needs_a_newer_client_is_left_out(
    worker: WorkerSpec, version: str, sources: list[str]
) -> None:
    (worker.folder / "New.java").write_text("package hello; class New { only.since.Three three; }")
    without = java_build.client_of(worker, version).without
    assert [path.stem for path in java_build.sources(worker.folder, without=without)] == sources


@pytest.mark.long
@needs_javac
def test_a_client_it_does_not_compile_against(worker: WorkerSpec, jars: Path) -> None:
    (worker.folder / "Bad.java").write_text("package hello; class Bad { nowhere.Client client; }")
    with pytest.raises(
        WorkerError, match=r"does not compile against .*Bad\.java:1: error"
    ) as caught:
        java_build.launch(worker, f"jars:{jars}", True, lambda text, share: None)
    assert "\n" not in str(caught.value)
    assert (
        caught.value.hint
        == f"{jars} must hold the client and every jar that it needs itself; this worker is for all"
    )


@pytest.mark.extended
@pytest.mark.long
def test_without_a_compiler_eclipse_s_is_taken(
    worker: WorkerSpec, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a Java that has no `javac` and nothing that one needs (lib/ct.sym)."""
    monkeypatch.delenv("BROKERSTORM_CACHE")
    ecj = java_build.resolve(java_build._ECJ)
    monkeypatch.setattr(java_build, "javac_of", lambda java: [])
    monkeypatch.setattr(
        java_build, "resolve", lambda wanted, **_: ecj if wanted == java_build._ECJ else jars
    )
    argv, _ = java_build.launch(worker, f"jars:{jars}", True, lambda text, share: None)
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "hi\n"
    (worker.folder / "Bad.java").write_text("package hello; class Bad { nowhere.Client client; }")
    with pytest.raises(WorkerError, match=r"does not compile against .*Bad\.java:1: error"):
        java_build.launch(worker, f"jars:{jars}", True, lambda text, share: None)


@pytest.mark.parametrize("library", sorted(known_workers()))
def test_a_java_client_and_what_writes_its_log_have_one_version_of_slf4j(library: str) -> None:
    """slf4j-api 2 ignores slf4j-simple 1.7, and the log of the client is lost."""
    worker = load_worker(library)
    for system in worker.systems:
        java = worker.on_system(system).java
        for client in java.clients if java else ():
            slf4j = [each for each in client.coordinates if each.startswith("org.slf4j:")]
            assert len(slf4j) in (0, 2), client.coordinates
            assert len({each.rpartition(":")[2] for each in slf4j}) <= 1
