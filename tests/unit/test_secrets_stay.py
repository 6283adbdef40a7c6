"""Secrets of every kind are planted; nothing that a worker's process shows or leaves has one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.connections.file import read_connection
from harness.connections.secret import HIDDEN
from harness.connections.security import Security
from harness.errors import WorkerError
from harness.run.worker_process import WorkerProcess
from harness.workers import known_workers, load_worker
from harness.workers.security import VARIABLE, SecureOptions, handed_over
from tests.specs import worker_spec
from workers.python_kit.worker_kit import error_texts
from workers.python_kit.worker_kit.names import Names
from workers.python_kit.worker_kit.spec import secured

#: What shells, JSON, JAAS and URLs write in another way is in it.
MARK = "s3kr1t"
NASTY = f"{MARK}-\"q'\\b%41$;{{x}}é"
KEY_LINE = f"{MARK}Q2FuYm9uaWNhbEtleU1hdGVyaWFs"
CASES = {
    "plain": ("kafka", "{mechanism: plain, user: u, password: {env: STORM_SECRET}}"),
    "scram-sha-256": (
        "kafka",
        "{mechanism: scram-sha-256, user: u, password: {env: STORM_SECRET}}",
    ),
    "scram-sha-512": (
        "kafka",
        "{mechanism: scram-sha-512, user: u, password: {env: STORM_SECRET}}",
    ),
    "oauthbearer": ("kafka", "{mechanism: oauthbearer, token: {env: STORM_SECRET}}"),
    "oauthbearer-client": (
        "kafka",
        "{mechanism: oauthbearer, client_id: c, token_url: 'http://127.0.0.1:9/t',"
        " client_secret: {env: STORM_SECRET}}",
    ),
    "token": ("pulsar", "{mechanism: token, token: {env: STORM_SECRET}}"),
    "oauth2": (
        "pulsar",
        "{mechanism: oauth2, client_id: c, token_url: 'http://127.0.0.1:9/', client_secret: {file: secret}}",
    ),
    "user": ("qpid", "{mechanism: user, user: u, password: {file: secret}}"),
}
#: A client that talks too much: everything that it was given, in every way that it has.
TALKER = """
import json, logging, os, sys, time
options = json.load(open(os.environ["BROKERSTORM_SECURITY"]))["options"]
text = " ".join(options.values())
print(text); print(repr(text)); print(text, file=sys.stderr); print(json.dumps(options), file=sys.stderr)
print(json.dumps({"type": "event", "kind": "error", "text": text}))
print(json.dumps({"type": "error", "fatal": True, "name": "x", "text": text, "hint": [text]}), flush=True)
sys.stdin.readline()
"""


Asked = tuple[str, str, Security]


@pytest.fixture(params=CASES)
def asked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """(proof, system, security), read from a connection file and the environment."""
    system, auth = CASES[request.param]
    for variable, text in {"STORM_SECRET": NASTY, "STORM_KEY": f"{NASTY}2"}.items():
        if variable in auth or system == "kafka":
            monkeypatch.setenv(variable, text)
    (tmp_path / "secret").write_text(f"{NASTY}\n")
    (tmp_path / "me.key").write_text(
        f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n-----END PRIVATE KEY-----\n"
    )
    for name in ("ca.pem", "me.pem"):
        (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----\n")
    own = (
        "certificate: me.pem, key: me.key, key_password: {env: STORM_KEY}"
        if system == "kafka"
        else ""
    )
    path = tmp_path / "c.yaml"
    path.write_text(
        f"system: {system}\nbootstrap: 127.0.0.1:9\ntls: {{ca: ca.pem, {own}}}\nauth: {auth}\n"
    )
    return request.param, system, read_connection(path).security


def test_every_client_has_words_for_every_proof_or_says_that_it_has_none(asked: Asked) -> None:
    proof, system, _ = asked
    having = {
        name
        for name, each in known_workers().items()
        if each.system == system and proof in each.security.auth
    }
    every = {name for name, each in known_workers().items() if each.system == system}
    lacking = {
        "oauthbearer": {"kafka-go"},
        "oauthbearer-client": {
            "kafka-python",
            "aiokafka",
            "sarama",
            "franz-go",
            "kafka-go",
            "kafkajs",
            "rust-rdkafka",
        },
        "oauth2": {"pulsar-client-go"},
    }.get(proof, set())
    assert every - having == lacking


def test_no_secret_stands_in_the_name_of_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_texts, "_secrets", [])
    with handed_over(SecureOptions({"any": "one"}, (NASTY, KEY_LINE))) as (env, _):
        monkeypatch.setenv(VARIABLE, env[VARIABLE])
        secured()
    told = ValueError(f"no {NASTY} and no {json.dumps(NASTY)} {KEY_LINE}\n{NASTY}")
    names = Names(tmp_path, {})
    names.id("error", error_texts.error_text(told))
    names.id("error", str(told))
    kept = (tmp_path / "names.jsonl").read_text()
    assert f"ValueError: no {HIDDEN} and no " in kept
    # Numbers are cut from errors: what is left of a secret is one, too.
    assert [part for part in ("s3kr", "kr*t", "b%*", KEY_LINE[-8:]) if part in kept] == []


def test_nothing_that_a_run_shows_or_leaves_has_a_secret(asked: Asked, tmp_path: Path) -> None:
    proof, system, security = asked
    library = {"kafka": "kafka-clients", "pulsar": "pulsar-client", "qpid": "pika"}[system]
    handed = load_worker(library).secure_options(security)
    assert NASTY in handed.secrets
    run = tmp_path / "run"
    heard: list[object] = []
    worker = WorkerProcess(
        worker_spec("w", library), run, on_message=lambda _, message: heard.append(message)
    )
    worker.start([sys.executable, "-c", TALKER], {}, handed)
    try:
        assert worker.ready.wait(0) is False
        for _ in range(600):
            if worker.errors:
                break
            worker.ready.wait(0.1)
        process = Path(f"/proc/{worker.pid}")
        seen = [(process / name).read_bytes() for name in ("cmdline", "environ")]
        worker.tell("stop")
        with pytest.raises(WorkerError) as caught:
            worker.wait_ready(30)
    finally:
        worker.kill()
    assert worker.errors
    seen += [path.read_bytes() for path in run.rglob("*") if path.is_file()]
    seen += [json.dumps(heard).encode(), str(caught.value).encode(), caught.value.hint.encode()]
    assert [each for each in seen if MARK.encode() in each] == []
    kept = (run / "stdout.jsonl").read_text() + (run / "stderr.log").read_text()
    assert HIDDEN in kept
    assert HIDDEN in str(caught.value)
    assert "tls and auth of the connection file" in caught.value.hint
    assert proof
