"""The jar cache: what is asked is what is found, whole or not at all; failures say what to do."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.opening import ClusterOpener
from experiments.resolved import Resolved, RoundOptions
from harness.errors import EnvironmentNotReady, UsageError
from harness.plan.build import build_plan
from harness.progress.view import BaseProgress
from harness.rundir import RunDir
from harness.scenario.model import Scenario
from harness.toolchains import jars, maven
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.versions import others_hint
from harness.workers.artifacts import changed_files

WANTED = Artifacts(("org.example:broker:1.2.3", "org.example:log:2.0"), ("org.example:tools",))
#: Stands in for mvn: writes two jars, or does what BEHAVE says.
FAKE_MVN = """#!/bin/sh
echo call >> "$CALLS"
echo "$@" > "$(dirname "$CALLS")/arguments"
for a in "$@"; do case "$a" in -DoutputDirectory=*) out="${a#-DoutputDirectory=}";; esac; done
echo "Downloaded from central: https://example.invalid/x/broker-1.2.3.jar (1 kB at 1 kB/s)"
echo jar > "$out/broker-1.2.3.jar"; echo jar > "$out/log-2.0.jar"
[ "$BEHAVE" = fail ] && { echo "[ERROR] Failed: something odd"; exit 1; }
[ "$BEHAVE" = slow ] && sleep 1
[ "$BEHAVE" = newer ] && echo newer > "$out/log-2.0.jar"
exit 0
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own and a resolver that counts its calls."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mvn").write_text(FAKE_MVN)
    (tools / "mvn").chmod(0o755)
    log = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(log))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    return log


def test_two_resolutions_never_share_a_folder(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = jars.resolve(WANTED)
    # so it is resolved again, and the repository has changed meanwhile
    (first / "log-2.0.jar").unlink()
    monkeypatch.setenv("BEHAVE", "newer")
    second = jars.resolve(WANTED)
    assert second != first
    assert jars.resolve(WANTED) == jars.jars_folder(WANTED) == second, (
        "what was resolved last is used"
    )
    digest = jars.resolved(second).rpartition(" ")[2]
    assert second.name.endswith(f"-{digest[:12]}"), "the key tells what was resolved"
    (second / "log-2.0.jar").unlink()
    assert jars.resolve(WANTED) == second, "the same jars have the same folder"


def test_a_folder_of_before_is_still_used(calls: Path) -> None:
    folder = jars.resolve(WANTED)
    old = folder.with_name(folder.name.rpartition("-")[0])
    folder.rename(old)
    assert jars.resolve(WANTED) == old
    assert calls.read_text() == "call\n"


def test_jars_are_fetched_once_and_then_taken_from_the_cache(calls: Path) -> None:
    said: list[str] = []
    folder = jars.resolve(WANTED, on_progress=lambda text, share: said.append(text))
    assert sorted(p.name for p in folder.glob("*.jar")) == ["broker-1.2.3.jar", "log-2.0.jar"]
    assert any("broker-1.2.3.jar" in text for text in said)
    # Both jars hold "jar" and a line feed.
    digest = hashlib.sha256(b"jar\n").hexdigest()
    listed = f"{digest}  broker-1.2.3.jar\n{digest}  log-2.0.jar\n".encode()
    assert jars.resolved(folder) == f"2, sha256 {hashlib.sha256(listed).hexdigest()[:16]}"
    assert jars.resolve(WANTED, offline=True) == folder == jars.resolve(WANTED)
    assert calls.read_text().count("call") == 1


def test_the_folder_depends_on_all_that_was_asked_but_not_on_the_order(calls: Path) -> None:
    one = jars.jars_folder(WANTED)
    assert (
        jars.jars_folder(Artifacts(WANTED.coordinates[::-1], WANTED.exclude)).name[-12:]
        == one.name[-12:]
    )
    assert jars.jars_folder(Artifacts(WANTED.coordinates)) != one
    assert one.name.startswith("broker-1.2.3-")


def test_a_folder_that_lost_a_jar_is_fetched_again(calls: Path) -> None:
    folder = jars.resolve(WANTED)
    (folder / "log-2.0.jar").unlink()
    assert not jars.is_complete(folder)
    assert jars.is_complete(jars.resolve(WANTED))
    assert calls.read_text().count("call") == 2


def test_jars_that_ivy_resolved_are_fetched_again(calls: Path) -> None:
    folder = jars.resolve(WANTED)
    marker = folder / "complete.json"
    marker.write_text(marker.read_text().replace('"mvn"', '"ivy"'))
    assert not jars.is_complete(folder)
    jars.resolve(WANTED)
    assert calls.read_text().count("call") == 2


def test_a_failed_fetch_leaves_nothing_behind(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEHAVE", "fail")
    with pytest.raises(EnvironmentNotReady, match="something odd"):
        jars.resolve(WANTED)
    folder = jars.jars_folder(WANTED)
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == []


def test_what_a_killed_fetch_left_is_no_folder_and_is_removed(calls: Path) -> None:
    folder = jars.jars_folder(WANTED)
    torn = folder.with_name(f"{folder.name}.part-dead")
    torn.mkdir(parents=True)
    (torn / "broker-1.2.3.jar").write_text("half")
    assert jars.resolve(WANTED).name.startswith(folder.name)
    assert not torn.exists()


def test_two_processes_fetch_once(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEHAVE", "slow")
    code = (
        "from harness.toolchains.jars import resolve; from harness.toolchains.coordinates import Artifacts; "
        f"resolve(Artifacts({WANTED.coordinates!r}, {WANTED.exclude!r}))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
        for _ in range(2)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert calls.read_text().count("call") == 1


def test_offline_without_jars_says_how_to_get_them(calls: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match="not in the cache") as caught:
        jars.resolve(WANTED, offline=True)
    assert "--offline" in caught.value.hint
    assert not calls.exists()


def test_a_cache_that_cannot_be_written_is_named(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", "/proc/nothing")
    with pytest.raises(
        EnvironmentNotReady, match="cannot write to the cache /proc/nothing"
    ) as caught:
        jars.resolve(WANTED)
    assert "BROKERSTORM_CACHE" in caught.value.hint


@pytest.mark.parametrize("text", ["kafka", "a:b", "a:b:c:d", "a:b:1/../2", "a:b:<x/>"])
def test_coordinates_are_checked_before_they_reach_a_file(text: str) -> None:
    with pytest.raises(UsageError, match="group:artifact:version"):
        Artifacts((text,))


def test_a_marker_that_is_torn_means_not_complete(tmp_path: Path) -> None:
    assert not jars.is_complete(tmp_path)
    (tmp_path / "complete.json").write_text('{"files": ["a.j')
    assert not jars.is_complete(tmp_path)
    (tmp_path / "complete.json").write_text(json.dumps({"files": []}))
    assert not jars.is_complete(tmp_path)


MVN_UNKNOWN = (
    "[ERROR] Failed to execute goal on project resolve: Could not resolve dependencies for project "
    "x: Could not find artifact org.apache.kafka:kafka_2.13:jar:4.9.9 in central (https://...) -> "
    "[Help 1]"
)
MVN_PART = MVN_UNKNOWN.replace("kafka_2.13:jar:4.9.9", "kafka-tools-api:jar:4.9.9")
MVN_CACHED = (
    "[ERROR] Could not resolve dependencies: org.apache.kafka:kafka_2.13:jar:4.9.9 was not found "
    "in https://r during a previous attempt. This failure was cached"
)
IVY_UNKNOWN = ":: org.apache.kafka#kafka_2.13;4.9.9: not found\n\t\tserver-access-error: none"
MVN_NETWORK = (
    "[ERROR] Could not transfer artifact org.apache.kafka:kafka_2.13:pom:4.9.9 from/to central: "
    "repo: Temporary failure in name resolution"
)
TITLE = "org.apache.kafka:kafka_2.13:4.9.9"


@pytest.mark.parametrize("output", [MVN_UNKNOWN, MVN_CACHED, IVY_UNKNOWN])
def test_an_unknown_version_is_the_users_to_correct(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maven, "_versions", lambda title: "there are: 4.4.0")
    error = maven.failure(output, TITLE)
    assert isinstance(error, UsageError)
    assert "kafka_2.13 4.9.9" in str(error)
    assert error.hint == "there are: 4.4.0"


def test_a_missing_part_is_named() -> None:
    error = maven.failure(MVN_PART, TITLE)
    assert isinstance(error, UsageError)
    assert "lacks org.apache.kafka:kafka-tools-api:jar:4.9.9" in str(error)


def test_no_network_is_the_environments() -> None:
    error = maven.failure(MVN_NETWORK, TITLE)
    assert isinstance(error, EnvironmentNotReady)
    assert "--offline" in error.hint


def test_any_other_failure_keeps_the_resolvers_words() -> None:
    error = maven.failure("noise\n[ERROR] the moon is full\n", TITLE)
    assert isinstance(error, EnvironmentNotReady)
    assert "the moon is full" in str(error)
    assert "no output" in str(maven.failure("", TITLE))


def test_versions_on_both_sides_of_an_unknown_one_the_newest_and_how_many_more() -> None:
    output = "x\n\tfound revs: [3.0.0, 3.1.0, 3.3.6, 2.8.1, 2.9.0, 4.0.8, 4.10.0, 4.2.0-rc1]\nother 9.9.9"
    known = maven.listed_versions(output)
    hint = "the closest ones are 2.9.0, 3.0.0, 3.1.0, 3.3.6; the newest is 4.10.0; 2 more"
    assert others_hint("3.0.5", known) == hint
    assert others_hint("3.0.5", []) == ""


def test_without_maven_on_the_path_one_is_fetched_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(maven.shutil, "which", lambda name: None)
    assert "fetched on first use" in maven.find_maven().name
    monkeypatch.setattr(maven, "ivy_jar", lambda: None)
    with pytest.raises(EnvironmentNotReady, match="no mvn on the PATH") as caught:
        maven.find_maven()
    assert "apt install maven" in caught.value.hint


def test_a_maven_that_came_damaged_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))

    def fetch_half(command: list[str], folder: Path, *_: object) -> None:
        (folder / f"apache-maven-{maven._VERSION}.tar.gz").write_bytes(b"cut off")

    monkeypatch.setattr(maven, "_run", fetch_half)
    with pytest.raises(EnvironmentNotReady, match="came damaged"):
        maven.Maven().fetch(WANTED, tmp_path, print)
    assert list((tmp_path / "cache" / "tools").glob("apache-maven-*/*")) == []


@pytest.mark.parametrize(
    ("chosen", "is_there"), [("9.9.9", False), ("9.9.91", True), ("1.2.3", True)]
)
def test_what_maven_chose_and_only_warns_of_is_not_there(
    chosen: str, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dependency:tree` ends well without poms that are lacking, and warns of some that it does not
    need."""
    mvn = tmp_path / "mvn"
    mvn.write_text(
        "#!/bin/sh\n"
        'for a in "$@"; do case "$a" in -DoutputFile=*) out="${a#-DoutputFile=}";; esac; done\n'
        f'echo "+- org.example:broker:jar:{chosen}:compile" > "$out"\n'
        'echo "[WARNING] The POM for org.example:broker:jar:9.9.9 is missing, no dependency information"\n'
    )
    mvn.chmod(0o755)
    monkeypatch.setattr(maven, "_versions", lambda title: "ask for another version")
    wanted = Artifacts(("org.example:broker:9.9.9",))
    if is_there:
        maven.Maven(str(mvn)).check(wanted)
        return
    with pytest.raises(UsageError, match=r"there is no broker 9\.9\.9 in the Maven repository"):
        maven.Maven(str(mvn)).check(wanted)


def test_a_resolver_that_takes_too_long_is_ended_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maven, "TIMEOUT_S", 0.3)
    # What it warned of meanwhile is not why it failed.
    command = ["sh", "-c", "echo 'WARNING Connection refused'; exec sleep 60"]
    with pytest.raises(EnvironmentNotReady, match=f"{TITLE} was not resolved within"):
        maven._run(command, tmp_path, TITLE, lambda text: None, "x")


def test_maven_takes_the_versions_that_a_project_was_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poms: list[str] = []
    monkeypatch.setattr(
        maven, "_run", lambda command, folder, *_: poms.append((folder / "pom.xml").read_text())
    )
    managed = Artifacts(("org.example:broker:1.2.3",), managed="org.example:parent:1.2.3")
    for wanted in (managed, Artifacts(managed.coordinates)):
        maven.Maven("mvn").fetch(wanted, tmp_path, print)
    management = (
        poms[0].partition("<dependencyManagement>")[2].partition("</dependencyManagement>")[0]
    )
    assert "<artifactId>parent</artifactId><version>1.2.3</version><type>pom</type>" in management
    assert "<scope>import</scope>" in management
    assert "dependencyManagement" not in poms[1]
    assert jars.jars_folder(managed) != jars.jars_folder(Artifacts(managed.coordinates))


def test_a_run_notes_which_jars_its_brokers_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside the runtime and why it was chosen, which is the command's to say."""
    plan = build_plan(Scenario.model_validate({"name": "mine"}), seed=1)
    facts = {"runtime": "process", "broker jars": "2, sha256 0123456789abcdef"}
    monkeypatch.setattr(
        "experiments.opening.open_cluster", lambda *_, **__: SimpleNamespace(facts=facts)
    )
    options = RoundOptions(runtime="process", offline=True)
    opener = ClusterOpener(Resolved(plans=[plan], options=options), BaseProgress())
    opened = opener.open(plan, RunDir(tmp_path))
    assert opened.facts == {**facts, "runtime": "process (asked for)"}


def test_a_cached_jar_that_changed_is_fetched_again_and_offline_refused(calls: Path) -> None:
    folder = jars.resolve(WANTED)
    digest = jars.resolved(folder)
    (folder / "log-2.0.jar").write_text("changed\n")
    assert jars.resolved(folder) != digest, (
        "the digest is of what is there, not of what was fetched"
    )
    with pytest.raises(EnvironmentNotReady, match=r"log-2\.0\.jar is not as it was fetched"):
        jars.resolve(WANTED, offline=True)
    assert jars.resolve(WANTED) == folder
    assert (jars.resolved(folder), jars.changed_jars(folder)) == (digest, [])
    (folder / "added-1.jar").write_text("added\n")  # it would be on the class path
    assert jars.changed_jars(folder) == ["added-1.jar"]
    jars.resolve(WANTED)
    assert not (folder / "added-1.jar").exists()
    assert calls.read_text().count("call") == 3


def test_maven_takes_no_file_whose_checksum_is_wrong(calls: Path) -> None:
    jars.resolve(WANTED)
    assert "-C" in (calls.parent / "arguments").read_text().split()


def test_a_file_of_a_wheel_that_changed_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_bytes(b"one")
    digest = urlsafe_b64encode(hashlib.sha256(b"one").digest()).rstrip(b"=").decode()
    record = f"client.py,sha256={digest},3\nclient-1.dist-info/RECORD,,\n"
    assert changed_files(record, tmp_path) == []
    (tmp_path / "client.py").write_bytes(b"two")
    assert changed_files(record, tmp_path) == ["client.py"]
