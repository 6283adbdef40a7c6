"""Connection files: what is read from them, and that a secret stands nowhere."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from harness.connections.file import read_connection
from harness.connections.secret import HIDDEN, Secret
from harness.errors import EnvironmentNotReady, UsageError

FILE = """
system: kafka
yours: true
cluster_id: MkU3OEVBNTcwNTJENDM2Qg
bootstrap: 127.0.9.1:9093
tls: {ca: ca.pem}
auth: {mechanism: scram-sha-512, user: storm, password: {env: STORM_PASSWORD}}
"""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "staging.yaml"
    path.write_text(text)
    return path


def test_what_it_says_is_read_and_its_paths_are_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORM_PASSWORD", "hunter2")
    found = read_connection(written(tmp_path))
    assert found.file.yours
    assert found.security.tls is not None
    assert found.security.tls.ca == tmp_path / "ca.pem"
    assert found.security.auth is not None
    assert found.security.auth.secret.reveal() == "hunter2"
    assert "hunter2" not in repr(found)


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} {[secret]}" == f"{HIDDEN} {HIDDEN} [{HIDDEN}]"
    assert pickle.loads(pickle.dumps(secret)) == HIDDEN


def test_a_variable_that_was_read_is_inherited_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORM_PASSWORD", "hunter3")
    for _ in range(2):
        auth = read_connection(written(tmp_path)).security.auth
        assert auth is not None
        assert auth.secret.reveal() == "hunter3"
        assert "STORM_PASSWORD" not in os.environ


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentNotReady, match=r"auth\.password: the environment variable STORM_NOT_SET"
    ):
        read_connection(written(tmp_path, FILE.replace("STORM_PASSWORD", "STORM_NOT_SET")))


@pytest.mark.parametrize(
    ("said", "instead", "reason"),
    [
        ("scram-sha-512", "token", "token needs token"),
        ("user: storm, ", "", "scram-sha-512 needs user"),
        ("{ca: ca.pem}", "{certificate: me.pem}", "certificate and key come together"),
        ("{env: STORM_PASSWORD}", "{env: A, file: b}", "requires env"),
        ("kafka", "pulsar", "auth.mechanism scram-sha-512 is not pulsar's"),
        ("yours", "your", "unknown key"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, said: str, instead: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_connection(written(tmp_path, FILE.replace(said, instead, 1)))


def test_a_password_that_was_written_into_the_file_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_connection(written(tmp_path, FILE.replace("{env: STORM_PASSWORD}", "hunter2")))
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.__context__}"
