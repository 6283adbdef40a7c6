"""No secret enters a bundle, wherever a run has it; what is none stays."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from analysis.findings import Verdict
from analysis.report.documents import write_result
from experiments.bundle.archive import unpack
from experiments.bundle.making import make_bundle
from experiments.bundle.secrets import REDACTED, Redactor, is_secret
from harness.rundir import RunDir, read_json, write_json, write_jsonl
from tests.planted.judged import judge_here
from tests.planted.tiny import History

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\nq8vW2x1Zt0u\n-----END RSA PRIVATE KEY-----"
JAAS = 'org.apache.kafka.PlainLoginModule required username="u" password="jaasPw-4411";'
#: Each is planted in a place of its own; none may stand in the archive.
SECRETS = (
    *(
        "sasl-Pw-0001",
        "keyPw-0002",
        "pulsarTok-0003",
        "jaasPw-4411",
        "storePw-0004",
        "brokerSecret-0005",
    ),
    *(
        "envPw-0006!",
        "cli-Pw 0007",
        "Pw 0007",
        "cliPw-0008",
        "hdrTok-0009",
        "urlPw-0010",
        "stackPw-0011",
        "errPw-0012",
    ),
    *(
        "MIIEpAIBAAKCAQEA7bq",
        "q8vW2x1Zt0u",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl",
        "yamlPw-0013",
    ),
    *("foldedPw-0014", "abc12", "98765432"),
)
#: Names and values that say something about the run and are no secrets.
KEPT = (
    *(
        "delegation.token.max.lifetime.ms=604800000",
        "ssl.keystore.location=/etc/ks.jks",
        "acks=all",
    ),
    *(
        "ssl.key.password = null",
        "a-credentials-1.4.jar:/lib/b.jar",
        "RequestHeader(apiKey=BROKER_HEARTBEAT)",
    ),
    *("kafka-1", "u@example", "sasl.mechanism=PLAIN"),
)


def plant(run: RunDir) -> None:
    """Secrets in settings, broker configuration, command line, logs, errors, stacks and the
    scenario."""
    plan = read_json(run.plan)
    plan["producers"][0]["options"] |= {
        "sasl.password": "sasl-Pw-0001",
        "ssl.key.pem": PEM,
        "acks": "all",
    }
    plan["producers"][0]["options"] |= {
        "sasl.jaas.config": JAAS,
        "authParams": "token:pulsarTok-0003",
    }
    plan["broker_config"] = {"ssl.keystore.password": "storePw-0004", "num.partitions": "3"}
    write_json(run.plan, plan)
    manifest = read_json(run.manifest)
    manifest["command"] = (
        "brokerstorm run x --set 'load.options.sasl.password=cli-Pw 0007' --password cliPw-0008"
    )
    manifest["machine"]["apiKey"] = ["98765432"]
    write_json(run.manifest, manifest)
    run.scenario.write_text(
        "load:\n  options:\n    ssl.key.password: keyPw-0002\n    sasl.password: >-\n      foldedPw-0014\n"
        "  list: [{password: 'yamlPw-0013'}, {secret: abc12}]\n"
    )
    conf = run.cluster / "kafka-1" / "conf"
    conf.mkdir(parents=True)
    (conf / "server.properties").write_text(
        "\n".join([*KEPT[:6], "token.secret.key=brokerSecret-0005\n", PEM])
    )
    logs = run.cluster / "kafka-1" / "logs"
    logs.mkdir()
    (logs / "stdout.log").write_text(
        f"kafka-1 login of u@example with sasl-Pw-0001 (sasl.mechanism=PLAIN) {JAAS}\n"
        "Authorization: Bearer hdrTok-0009\nconnecting to amqp://guest:urlPw-0010@127.0.0.1:5672\n"
        'EXPORT KAFKA_PASSWORD="envPw-0006!"\n{"ssl.key.password": "keyPw-0002"} secret => abc12\n'
        f"{SECRETS[15]} is a token of the web\nspec: {json.dumps(json.dumps({'ssl.key.pem': PEM}))}\n"
    )
    run.stacks.mkdir()
    (run.stacks / "p-1.txt").write_text('at login(password="stackPw-0011") in env PW=envPw-0006!\n')
    worker = run.worker("p-1")
    worker.mkdir(parents=True)
    # base64 of the first
    (worker / "stderr.log").write_text("retry with c2FzbC1Qdy0wMDAx and keyPw-0002\n")
    write_jsonl(
        run.events,
        [{"t_ns": 1, "kind": "note", "text": "refused password=errPw-0012", "token": None}],
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, RunDir]:
    """The bytes of the archive, uncompressed, and the run that it opens to."""
    folder = tmp_path_factory.mktemp("secrets")
    history = History(sessions=0).sent(5).log(0, 1, 2, 3, 4)
    history.send(5, "fail", error="login refused: password=errPw-0012")
    history.plan = history.plan.model_copy(update={"rate_per_s": 0.0})
    run = history.write(folder / "run")
    plant(run)
    write_result(run, judge_here(run))
    made = make_bundle(
        run, folder / "x.tar.gz", 20_000_000, {"MY_PASSWORD": "envPw-0006!", "HOME": "/home/u"}
    )
    unpack(made.path, folder / "opened", check=lambda _folder: None)
    return gzip.decompress(made.path.read_bytes()), RunDir(folder / "opened")


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_enters_a_bundle(opened: tuple[bytes, RunDir], secret: str) -> None:
    assert secret.encode() not in opened[0]
    assert json.dumps(secret)[1:-1].encode() not in opened[0]


def test_a_secret_is_gone_in_base64_too(opened: tuple[bytes, RunDir]) -> None:
    assert b"c2FzbC1Qdy0wMDAx" not in opened[0]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_stays(opened: tuple[bytes, RunDir], text: str) -> None:
    assert text.encode() in opened[0]


def test_a_redacted_run_is_judged_as_before(opened: tuple[bytes, RunDir]) -> None:
    """The sealed names of errors held a secret, so their file changed, and its checksum with it."""
    run = opened[1]
    assert REDACTED in run.names.read_text()
    assert judge_here(run).verdict is Verdict.PASS
    told = read_json(run.bundle)["redacted"]
    assert {"plan.json", "scenario.yaml", "sealed/names.jsonl", "stacks/p-1.txt"} <= set(told)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *(
            ("sasl.password", True),
            ("ssl.key.password", True),
            ("SSL_KEY", True),
            ("brokerClientSecret", True),
        ),
        *(
            ("sasl.jaas.config", True),
            ("credentials", True),
            ("authParams", True),
            ("AWS_ACCESS_KEY_ID", False),
        ),
        *(("acks", False), ("ssl.keystore.location", False), ("token.max.lifetime.ms", False)),
        *(
            ("tokenExpiryMs", False),
            ("key", False),
            ("sasl.mechanism", False),
            ("max.in.flight", False),
        ),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_an_ordinary_word_goes_only_beside_its_name() -> None:
    redactor = Redactor({}, ordinary=["orders"])
    text = "password=orders\norders-1 has a leader, says guest\nuser=x password: guest\n"
    redactor.collect("a.log", text)
    cleaned, count = redactor.redacted("a.log", text)
    assert (
        cleaned
        == f"password={REDACTED}\norders-1 has a leader, says guest\nuser=x password: {REDACTED}\n"
    )
    assert count == 2


def test_the_folder_of_a_shell_is_no_password() -> None:
    redactor = Redactor({"PWD": "/home/ann/work", "OLDPWD": "/home/ann", "DB_PWD": "hunter2-x"})
    text = "in /home/ann/work with hunter2-x\n"
    assert redactor.redacted("a.log", text) == (f"in /home/ann/work with {REDACTED}\n", 1)


def test_a_document_stays_one(tmp_path: Path) -> None:
    redactor = Redactor({})
    text = json.dumps(
        {"a": {"token": {"value": 'x"y\\z-12345', "tries": 3}}, "log": 'has x"y\\z-12345'}
    )
    redactor.collect("a.json", text)
    cleaned, _ = redactor.redacted("a.json", text)
    assert json.loads(cleaned) == {
        "a": {"token": {"value": REDACTED, "tries": REDACTED}},
        "log": f"has {REDACTED}",
    }


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


OAUTH2 = _b64(json.dumps({"client_secret": "oPw-05"}))


@pytest.mark.parametrize(
    ("value", "alone"),
    [
        ("token:abcdef", "abcdef"),
        ("file:/home/me/tokens/t1", "/home/me/tokens/t1"),
        ("appuser:basicPw-01", "basicPw-01"),
        (f"Basic {_b64('appuser:basicPw-02')}", "basicPw-02"),
        ("tlsCertFile:/etc/c.pem,tlsKeyFile:/etc/key-03.pem", "/etc/key-03.pem"),
        ('{"userId": "appuser", "password": "basicPw-04"}', "basicPw-04"),
        (json.dumps({"privateKey": f"data:application/json;base64,{OAUTH2}"}), "oPw-05"),
    ],
)
def test_a_part_that_a_client_prints_alone_goes_too(value: str, alone: str) -> None:
    redactor = Redactor({})
    redactor.collect("plan.json", json.dumps({"options": {"authParams": value}}))
    text, count = redactor.redacted("stderr.log", f"appuser refused: got {alone} from here\n")
    assert (text, count) == (f"appuser refused: got {REDACTED} from here\n", 1)
