"""Each client's own words for what a cluster asks, and the pipe through which a worker gets
them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.preflight import refuse_unspoken
from experiments.resolved import Resolved
from harness.connections.redaction import SecretRemover
from harness.connections.secret import HIDDEN, Secret
from harness.connections.security import Auth, Security, Tls
from harness.errors import UsageError
from harness.plan.build import build_plan
from harness.scenario.model import Scenario
from harness.workers import load_worker
from harness.workers.security import SecureOptions, SecurityWords, handed_over

NASTY = "p\"a\\ss;'{x}%é$"


def scram(password: str = NASTY, **tls: object) -> Security:
    return Security(Tls(Path("/ca.pem"), **tls), Auth("scram-sha-256", Secret(password), "storm"))


def test_only_what_the_cluster_asks_for_is_set() -> None:
    options = load_worker("confluent-kafka").secure_options(scram()).options
    assert options == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "storm",
        "sasl.password": NASTY,
    }
    assert load_worker("confluent-kafka").secure_options(None).options == {}
    anywhere = load_worker("confluent-kafka").secure_options(scram(check_host_name=False)).options
    assert anywhere["ssl.endpoint.identification.algorithm"] == "none"


def test_java_gets_a_password_as_jaas_quotes_it() -> None:
    options = load_worker("kafka-clients").secure_options(scram()).options
    quoted = NASTY.replace("\\", "\\\\").replace('"', '\\"')
    assert options["sasl.jaas.config"].endswith(f'required username="storm" password="{quoted}";')


@pytest.mark.parametrize(
    ("words", "security", "lacks"),
    [
        ({}, scram(), "TLS"),
        ({"tls": {"x": "{ca}"}}, scram(), r"auth\.mechanism scram-sha-256 \(it has none\)"),
        (
            {"tls": {"x": "1"}, "auth": {"scram-sha-256": {"u": "{user}{secret}"}}},
            scram(),
            r"tls\.ca",
        ),
        (
            {"tls": {"x": "{ca}"}, "auth": {"scram-sha-256": {"u": "{user}{secret}"}}},
            scram(check_host_name=False),
            r"tls\.check_host_name: false",
        ),
        (
            {"auth": {"oauthbearer": {"t": "{secret}"}}},
            Security(None, Auth("oauthbearer", Secret("s"), token_url="u", client_id="c")),
            r"auth\.mechanism oauthbearer with client_secret",
        ),
    ],
)
def test_what_a_worker_has_no_words_for_is_refused_by_name(
    words: dict[str, object], security: Security, lacks: str
) -> None:
    with pytest.raises(UsageError, match=f"client x: its worker cannot do {lacks}") as caught:
        SecurityWords.model_validate(words).options(security, "x")
    assert NASTY not in str(caught.value)


def test_a_plan_is_refused_with_the_client_that_cannot() -> None:
    load = {"producers": {"p": {"client": "sarama"}}}
    plan = build_plan(Scenario.model_validate({"name": "x", "load": load}), seed=1)
    asks = Auth("oauthbearer", Secret("s"), token_url="http://127.0.0.1:9/", client_id="c")
    with pytest.raises(
        UsageError, match=r"client sarama: its worker cannot do auth\.mechanism oauthbearer with"
    ):
        refuse_unspoken(Resolved(plans=[plan]), Security(None, asks))
    refuse_unspoken(Resolved(plans=[plan]), Security(None, Auth("plain", Secret("s"), "u")))


def test_a_template_with_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no place \{passwort\}"):
        SecurityWords.model_validate({"tls": {"x": "{passwort}"}})


def test_the_process_gets_them_through_a_pipe_that_nobody_else_has() -> None:
    code = (
        "import json, os, "
        "pathlib;print(json.loads(pathlib.Path(os.environ['BROKERSTORM_SECURITY']).read_text())['options']['p'])"
    )
    long = NASTY * 20_000  # more than a pipe holds by itself
    with handed_over(SecureOptions({"p": long})) as (env, passed):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**env, "PYTHONUTF8": "1"},
            pass_fds=passed,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.strip() == long


def test_secrets_are_replaced_however_they_are_written() -> None:
    redactor = SecretRemover([NASTY, "-----BEGIN KEY-----\nMIIEsecretline\n-----END KEY-----\n"])
    said = f"no {NASTY} {json.dumps(NASTY)} {NASTY!r} MIIEsecretline -----BEGIN KEY-----"
    assert (
        redactor.text(said) == f"no {HIDDEN} \"{HIDDEN}\" '{HIDDEN}' {HIDDEN} -----BEGIN KEY-----"
    )
    assert redactor.data({"text": [NASTY, 7]}) == {"text": [HIDDEN, 7]}


@pytest.mark.parametrize("before", ["", "u:", '{"s":"', "user:"])
def test_a_secret_is_found_in_base64(before: str) -> None:
    said = base64.b64encode(f'{before}{NASTY}"}}'.encode()).decode()
    cleaned = SecretRemover([NASTY]).text(f"Authorization: Basic {said} of somebody")
    assert cleaned.startswith("Authorization: Basic ")
    assert cleaned.endswith(" of somebody")
    assert HIDDEN in cleaned
    kept = (
        cleaned.removeprefix("Authorization: Basic ").removesuffix(" of somebody").partition(HIDDEN)
    )
    assert len(kept[0]) + len(kept[2]) <= len(base64.b64encode(before.encode())) + 8


def test_options_show_themselves_to_nobody() -> None:
    handed = load_worker("confluent-kafka").secure_options(scram())
    assert NASTY not in repr(handed)
