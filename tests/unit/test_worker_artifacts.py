"""The files that a worker ran from, by their hash, so that a version that was built twice is told
apart."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.workers import known_workers, launch
from harness.workers.artifacts import artifact_of


def test_a_client_beside_brokerstorm_is_told_by_its_record() -> None:
    argv, _ = launch(known_workers()["confluent-kafka"], "", offline=True)
    told = artifact_of(argv, "confluent-kafka")
    assert told.startswith("RECORD, sha256 ")
    assert artifact_of(argv, "confluent-kafka") == told != artifact_of(argv, "kafka-python")


def test_an_environment_of_its_own_is_asked_first(tmp_path: Path) -> None:
    record = (
        tmp_path
        / "lib"
        / "python3.11"
        / "site-packages"
        / "confluent_kafka-1.0.dist-info"
        / "RECORD"
    )
    record.parent.mkdir(parents=True)
    record.write_text("old")
    (tmp_path / "bin").mkdir()
    own = artifact_of([str(tmp_path / "bin" / "python"), "worker.py"], "confluent-kafka")
    assert own not in ("", artifact_of([sys.executable, "worker.py"], "confluent-kafka"))


def test_jars_and_programs_are_told_by_their_bytes(tmp_path: Path) -> None:
    jar, program = tmp_path / "client-1.jar", tmp_path / "worker"
    told = []
    for content in (b"one", b"two"):
        jar.write_bytes(content)
        program.write_bytes(content)
        told += [
            artifact_of(["java", "-cp", f"classes:{tmp_path}/*", "Main"], "x"),
            artifact_of([str(program)], "x"),
        ]
    assert len(set(told)) == 4
    assert told[0].startswith("jars: 1, sha256 ")
    assert told[1].startswith("program, sha256 ")


def test_what_cannot_be_told_is_left_out() -> None:
    assert artifact_of([], "x") == ""
    assert artifact_of(["/nosuch/worker"], "x") == ""
    assert artifact_of([sys.executable], "no-such-distribution") == ""
