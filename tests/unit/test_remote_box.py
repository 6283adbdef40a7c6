"""The box of a worker that goes to other machines, and how its command reads there."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.remote.box import Box
from harness.workers import KIT, load_worker


def unpacked(box: Box, folder: Path) -> Path:
    box.write(folder / "box.tar")
    with tarfile.open(folder / "box.tar") as packed:
        packed.extractall(folder / "there", filter="data")
    return folder / "there"


def test_a_python_worker_finds_its_kit_and_its_client_there(tmp_path: Path) -> None:
    worker, box = load_worker("kafka-python"), Box()
    argv = [sys.executable, str(worker.folder / worker.entry)]
    words, env = box.relocated(
        worker, argv, {"PYTHONPATH": str(KIT), "PYTHONSAFEPATH": "", "TZ": "UTC"}
    )
    there = unpacked(box, tmp_path)
    assert words[0] == "{python}"
    assert env["TZ"] == "UTC"
    program = Path(words[1].format(box=there))
    assert program.read_bytes() == (worker.folder / worker.entry).read_bytes()
    paths = env["PYTHONPATH"].format(box=there).split(":")
    code = "import sys; sys.path[:0] = sys.argv[1:]; import worker_kit, kafka; "
    code += "print(worker_kit.__file__, kafka.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *paths], capture_output=True, text=True, check=True
    )
    assert all(each.startswith(str(there)) for each in done.stdout.split())
    names = {path.name for path in (there / "site").iterdir()}
    assert {"pydantic", "pydantic_core", "filelock", "kafka"} <= names
    assert not {"numpy", "pyarrow"} & names  # executors have them


def test_a_java_worker_has_its_classes_and_jars_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    jars, classes = tmp_path / "cache" / "jars", tmp_path / "cache" / "classes"
    for path in (jars / "client.jar", classes / "Main.class"):
        path.parent.mkdir(parents=True)
        path.write_text(path.name)
    worker, box = load_worker("kafka-clients"), Box()
    argv = ["/opt/java/bin/java", "-Xmx256m", "-cp", f"{classes}:{jars}/*", worker.entry]
    words, _ = box.relocated(worker, argv, {})
    assert (words[0], words[1], words[4]) == ("{java}", "-Xmx256m", worker.entry)
    there = unpacked(box, tmp_path)
    found = [Path(each.removesuffix("/*")) for each in words[3].format(box=there).split(":")]
    assert [sorted(path.name for path in each.iterdir()) for each in found] == [
        ["Main.class"],
        ["client.jar"],
    ]


def test_the_same_command_asked_again_is_the_same(tmp_path: Path) -> None:
    """The box has gone to the executors by then."""
    worker, box = load_worker("kafka-python"), Box()
    argv, env = [sys.executable, str(worker.folder / worker.entry)], {"PYTHONPATH": str(KIT)}
    assert box.relocated(worker, argv, env) == box.relocated(worker, argv, env)


def test_a_program_of_this_machine_alone_is_refused() -> None:
    with pytest.raises(UsageError, match="/usr/bin/env is a program of this machine"):
        Box().relocated(load_worker("sarama"), ["/usr/bin/env"], {})
