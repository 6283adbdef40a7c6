"""A system whose brokers come from packages of the operating system, unpacked and not installed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.clusters import spec_of
from harness.clusters.network.proxied import DetoursByAddress, LocalDetours, detours_of
from harness.clusters.process_runtime import Launch, ProcessRuntime
from harness.doctor.machine import software_check
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.clocks import OWN_CLOCKS
from harness.protocols.network import PEER_DETOURS
from harness.toolchains import package_index
from harness.toolchains.java import Java
from harness.toolchains.packaged_program import PackagedProgram

MADISON = """\
printf 'thing | 2:3.10.8-1.1+deb12u1 | http://deb/ bookworm-security/main amd64 Packages\\n'
printf 'thing | 2:3.10.8-1 | http://deb/ bookworm/main amd64 Packages\\n'
printf 'thing | 4.0~rc1 | http://deb/ unstable/main amd64 Packages\\n'
printf 'thing | 2:3.10.8-1 | http://deb/ bookworm/main Sources\\n'
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scripts instead of apt and dpkg; each writes down how it was called."""
    folder = tmp_path / "tools"
    folder.mkdir()
    write(folder / "apt-cache", MADISON)
    write(
        folder / "apt-get",
        'for name in "$@"; do case $name in -*|download) ;; *) echo "$name" > "$name.deb";; esac; done',
    )
    write(folder / "dpkg-deb", 'mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/"')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    return folder


def write(script: Path, text: str) -> None:
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)


def program(tmp_path: Path, version: str = "3.10.8") -> PackagedProgram:
    launcher = tmp_path / "start-thing"
    write(launcher, "exec true")
    return PackagedProgram(("thing", "library"), version, launcher)


def test_it_is_unpacked_once_with_the_script_that_starts_it(tools: Path, tmp_path: Path) -> None:
    made = program(tmp_path)
    place = made.fetch()
    assert place.name == "start-thing"
    assert os.access(place, os.X_OK)
    unpacked = sorted(path.name for path in (place.parent / "root" / "usr" / "bin").iterdir())
    assert unpacked == ["library.deb", "thing=2:3.10.8-1.1+deb12u1.deb"]
    (tools / "apt-get").unlink()
    assert made.fetch() == place, "what is there is not fetched again"


def test_an_image_has_its_libraries_and_not_its_pages(tools: Path, tmp_path: Path) -> None:
    files = "usr/lib/thing/one usr/share/doc/page"
    write(
        tools / "dpkg-deb",
        f'mkdir -p "$3/usr/lib/thing" "$3/usr/share/doc" && cd "$3" && touch {files}',
    )
    made = program(tmp_path)
    library = made.fetch().parent / "root" / "usr" / "lib" / "thing" / "one"
    assert made.parts() == {"lib/thing/one": library}


def test_its_versions_are_those_of_the_index_without_epoch_and_revision(
    tools: Path, tmp_path: Path
) -> None:
    assert sorted(program(tmp_path).released()) == ["3.10.8", "4.0~rc1"]
    assert program(tmp_path).is_released()
    with pytest.raises(UsageError, match=r"thing 3\.9\.1 is not in the package index") as caught:
        program(tmp_path, "3.9.1").fetch()
    assert "3.10.8" in caught.value.hint


# ----- other suites of Debian ---------------------------------------------------------------------

SUITES = """\
case $2 in
  */trixie/apt.conf) printf 'thing | 4.0.5-7 | http://deb/ trixie/main amd64 Packages\\n';;
  */sid/apt.conf) printf 'thing | 4.3.6-1 | http://deb/ sid/main amd64 Packages\\n';;
  *) printf 'thing | 3.10.8-1 | http://deb/ bookworm/main amd64 Packages\\n';;
esac
"""
APT_GET = """\
case "$*" in
  *indextargets*) printf 'http://mirror/debian/|bookworm|main|$(SIGNED_BY)\\n';;
  *update) echo "$2" >> "$(dirname "$0")/updates";;
  *) for name in "$@"; do case $name in -*|*.conf|download) ;; *) echo "$name" > "$name.deb";; esac; done;;
esac
"""


@pytest.fixture
def suites(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file with one line for each index that was read."""
    write(tools / "apt-cache", SUITES)
    write(tools / "apt-get", APT_GET)
    keyring = tmp_path / "keys.gpg"
    keyring.touch()
    monkeypatch.setattr(package_index, "_KEYRING", keyring)
    machine_is("debian", monkeypatch)
    return tools / "updates"


def machine_is(distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"ID": distribution, "VERSION_CODENAME": "bookworm"}
    monkeypatch.setattr(package_index.platform, "freedesktop_os_release", lambda: about)


def of_suites(tmp_path: Path, version: str) -> PackagedProgram:
    return replace(program(tmp_path, version), suites=("trixie", "sid"))


def test_a_version_that_this_machine_lacks_comes_from_the_suite_that_has_it(
    suites: Path, tmp_path: Path
) -> None:
    place = of_suites(tmp_path, "4.0.5").fetch()
    unpacked = sorted(path.name for path in (place.parent / "root" / "usr" / "bin").iterdir())
    assert unpacked == ["library.deb", "thing=4.0.5-7.deb"]
    index = tmp_path / "cache" / "packages" / "trixie"
    keys = tmp_path / "keys.gpg"
    assert (index / "sources.list").read_text() == (
        f"deb [target=Packages signed-by={keys}] http://mirror/debian/ trixie main\n"
    )
    assert of_suites(tmp_path, "4.0.5").is_released()
    assert suites.read_text() == f"{index}/apt.conf\n", "read once, and no other suite"


def test_this_machines_own_index_comes_first(suites: Path, tmp_path: Path) -> None:
    of_suites(tmp_path, "3.10.8").fetch()
    assert not suites.exists()


def test_versions_of_all_suites_are_listed(suites: Path, tmp_path: Path) -> None:
    assert of_suites(tmp_path, "4.0.5").released() == ["3.10.8", "4.0.5", "4.3.6"]
    asked = "this machine or Debian trixie or Debian sid"
    with pytest.raises(
        UsageError, match=f"thing 4.1.0 is not in the package index of {asked}"
    ) as found:
        of_suites(tmp_path, "4.1.0").fetch()
    assert "4.0.5, 4.3.6" in found.value.hint


def test_another_distribution_has_its_own_versions_only(
    suites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_is("ubuntu", monkeypatch)
    assert of_suites(tmp_path, "4.0.5").released() == ["3.10.8"]
    assert not suites.exists()


def test_packages_that_could_not_be_verified_are_not_fetched(suites: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.gpg").unlink()
    with pytest.raises(
        EnvironmentNotReady, match="of Debian trixie could not be verified"
    ) as found:
        of_suites(tmp_path, "4.0.5").fetch()
    assert found.value.hint == "apt-get install debian-archive-keyring"


def test_what_apt_says_against_it_is_one_line(tools: Path, tmp_path: Path) -> None:
    write(tools / "apt-get", "echo 'W: odd' >&2; echo 'E: Failed to fetch it' >&2; exit 100")
    with pytest.raises(EnvironmentNotReady, match="apt-get of thing failed: Failed to fetch it"):
        program(tmp_path).fetch()
    assert not program(tmp_path).place.parent.exists()


def test_an_index_that_was_never_read(tools: Path, tmp_path: Path) -> None:
    write(tools / "apt-cache", "true")
    with pytest.raises(EnvironmentNotReady, match="has no thing") as caught:
        program(tmp_path).fetch()
    assert "apt-get update" in caught.value.hint


def test_a_machine_without_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EnvironmentNotReady, match="apt-get is not installed"):
        program(tmp_path).fetch()
    found = software_check("rabbitmq")
    assert not found.ok
    assert "apt-get is not installed" in found.text


def test_offline_it_must_have_been_unpacked(tools: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match="not in the cache and --offline"):
        program(tmp_path).fetch(offline=True)


def test_a_node_is_started_by_the_script_and_has_no_clock_of_its_own(tmp_path: Path) -> None:
    launch = Launch(spec_of("rabbitmq"), Java("", 0, ""), Path(), {}, program=tmp_path / "node")
    made = ProcessRuntime("r", tmp_path, 3, launch, lambda node, folder: None)
    command = made._command(launch, made.layout.services["rabbitmq-2"])
    folder = tmp_path / "rabbitmq-2"
    secrets = made.management.values()["folder"]
    assert command == [
        str(tmp_path / "node"),
        str(folder / "conf"),
        str(folder / "data"),
        f"{secrets}/rabbitmq-2",
    ]
    with pytest.raises(UsageError, match="without a clock of their own"):
        ProcessRuntime(
            "r", tmp_path, 3, launch, lambda node, folder: None, needs=frozenset({OWN_CLOCKS})
        )


def test_nodes_that_read_a_hosts_file_can_be_given_another_address(tmp_path: Path) -> None:
    needs = frozenset({PEER_DETOURS})
    assert type(detours_of("r", tmp_path, spec_of("rabbitmq"), 3, needs)) is LocalDetours
    assert type(detours_of("r", tmp_path, spec_of("nats"), 3, needs)) is DetoursByAddress


def started(tmp_path: Path, settings: str) -> list[str]:
    """The arguments that the script of RabbitMQ gives to the VM of Erlang."""
    script = tmp_path / "rabbitmq-node"
    script.write_bytes(spec_of("rabbitmq").file.with_name("bin").joinpath(script.name).read_bytes())
    script.chmod(0o755)
    vm = tmp_path / "root" / "usr" / "lib" / "erlang" / "erts-1" / "bin"
    vm.mkdir(parents=True)
    write(vm / "erlexec", 'for each in "$@"; do echo "$each"; done')
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "node.conf").write_text("name=rabbit@127.0.9.1\nlisten=127,0,9,1\nport=35690\n")
    (conf / "rabbitmq.conf").write_text(settings)
    command = ["sh", str(script), str(conf), str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_how_long_a_silent_node_counts_as_there_is_set_before_the_settings_are_read(
    tmp_path: Path,
) -> None:
    """The VM starts with its distribution, so RabbitMQ reads its own setting too late for it."""
    arguments = started(tmp_path, "log.file=false\nnet_ticktime = 8\n")
    at = arguments.index("net_ticktime")
    assert arguments[at - 1 : at + 2] == ["-kernel", "net_ticktime", "8"]


def test_erlang_that_came_with_its_libraries_is_started_with_them(tmp_path: Path) -> None:
    """Erlang of a newer Debian does not run with the C library of an older one."""
    libraries = tmp_path / "root" / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    loader = libraries / "ld-linux-x86-64.so.2"
    write(loader, 'for each in "$@"; do echo "$each"; done')
    arguments = started(tmp_path, "log.file=false\n")
    erts = tmp_path / "root" / "usr" / "lib" / "erlang" / "erts-1" / "bin"
    assert arguments[:3] == ["--library-path", str(libraries), str(erts / "erlexec")]
    environment = {
        **os.environ,
        "BROKERSTORM_LOADER": str(loader),
        "BROKERSTORM_ERTS": str(erts),
        "RABBITMQ_DIST_PORT": "7",
    }
    for name, more in (
        ("beam.smp", [str(erts / "beam.smp"), "-x"]),
        ("erl", [str(erts / "erlexec"), *["-start_epmd", "false", "-erl_epmd_port", "7"]]),
    ):
        command = [str(tmp_path / "bin" / name), "-x"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[2 : 2 + len(more)] == more


def test_settings_are_no_arguments_by_themselves(tmp_path: Path) -> None:
    arguments = started(tmp_path, "net_ticktime = 8; touch x\n")
    assert "net_ticktime" not in arguments
    assert arguments[-2:] == ["-extra", str(tmp_path / "rabbitmq-node")]
