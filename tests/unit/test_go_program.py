"""A system whose brokers are programs in Go: what its version is, and where it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clusters import spec_of
from harness.clusters.layout.distribution import pinned
from harness.clusters.process_runtime import Launch, ProcessRuntime
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.clocks import OWN_CLOCKS
from harness.toolchains.go_program import GoProgram
from harness.toolchains.java import Java

SERVER = "github.com/nats-io/nats-server/v2"


def sources(folder: Path, version: str = "2.99.1") -> Path:
    (folder / "server").mkdir(parents=True)
    (folder / "go.mod").write_text(f"module {SERVER}\n")
    (folder / "server" / "const.go").write_text(f'const (\n\tVERSION = "{version}"\n)\n')
    return folder


def test_sources_are_a_version_that_says_its_number(tmp_path: Path) -> None:
    folder = sources(tmp_path / "mine")
    spec = spec_of("nats", pinned("nats", f"dir:{folder}"))
    assert spec.version == "2.99.1"
    assert spec.program is not None
    assert spec.program.own is not None
    assert spec.program.place != GoProgram(SERVER, "2.99.1").place, (
        "its own build is another program"
    )


def test_a_folder_without_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no sources of nats: it has no go\.mod"):
        pinned("nats", f"dir:{tmp_path}")
    sources(tmp_path / "odd", version="next")
    with pytest.raises(UsageError, match=r"no version in server/const\.go"):
        pinned("nats", f"dir:{tmp_path / 'odd'}")


def test_a_program_has_its_name_without_the_major_version(tmp_path: Path) -> None:
    assert GoProgram(SERVER, "2.10.0").name == "nats-server"
    assert spec_of("nats").jars is None


def test_offline_it_must_have_been_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="not in the cache and --offline"):
        GoProgram(SERVER, "2.15.2").fetch(offline=True)


def runtime(tmp_path: Path, *needs: str) -> ProcessRuntime:
    launch = Launch(spec_of("nats"), Java("", 0, ""), Path(), {}, program=tmp_path / "nats-server")
    return ProcessRuntime(
        "r", tmp_path, 3, launch, lambda node, folder: None, needs=frozenset(needs)
    )


def test_a_node_is_started_as_the_program_with_its_arguments(tmp_path: Path) -> None:
    made = runtime(tmp_path)
    launch, layout = made._offered[made.spec.asked]
    command = made._command(launch, layout.services["nats-2"])
    conf = tmp_path / "nats-2" / "conf" / "nats.conf"
    assert command == [str(tmp_path / "nats-server"), "--config", str(conf)]


def test_it_has_no_clock_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ask the kernel"):
        runtime(tmp_path, OWN_CLOCKS)


def test_each_node_is_told_an_address_of_its_own_for_each_other(tmp_path: Path) -> None:
    layout = runtime(tmp_path, "peer-detours").layout
    texts = {
        node.name: layout.management_texts(node, "secret")["routes.conf"] for node in layout.nodes
    }
    routes = {name: text.partition("routes=[")[2].partition("]")[0] for name, text in texts.items()}
    assert len({each for text in routes.values() for each in text.split(",")}) == 6
