"""Bodies from templates: what is in them, what is refused, and that nothing of the identity is
lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.message import MessageId
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.run.worker_specs import Endpoints, client_spec
from harness.rundir import RunDir
from harness.scenario.file import load_scenario
from harness.scenario.model import Scenario
from harness.workers import known_workers
from workers.python_kit.worker_kit import layouts as lay
from workers.python_kit.worker_kit import payload
from workers.python_kit.worker_kit.spec import Lane
from workers.python_kit.worker_kit.template import HEADER, Template, joined, parted, parted_as_text

ORDER = '{"order": {"id": "{id}"}, "n": {n}, "key": "{key}", "by": "{producer}/{lane}"}'
LANE = Lane(lane=4, topic="orders", key=b"k000017", partition=-1, key_number=17)


def message(attempt: int = 0) -> bytes:
    body = Template(ORDER, 7).body(LANE, 42, attempt)
    length = len(body) + lay.MIN_PAYLOAD_BYTES
    return payload.encode(0xABCD, 7, 4, 42, 5, attempt=attempt, length=length, filling=body)


@pytest.mark.parametrize(("attempt", "name"), [(0, "7/4/42"), (2, "7/4/42.2")])
def test_a_body_names_its_message(attempt: int, name: str) -> None:
    body, identity = parted(message(attempt))
    assert json.loads(body) == {"order": {"id": name}, "n": 42, "key": "k000017", "by": "7/4"}
    assert MessageId.parse(name) == MessageId(7, 4, 42, attempt or None)
    assert len(identity) == lay.MIN_PAYLOAD_BYTES


@pytest.mark.parametrize(
    ("attempt", "body"), [(0, "7/4/000042 00042 004 %"), (2, "7/4/0042.2 00042 004 %")]
)
def test_a_place_with_a_width_always_has_as_many_characters(attempt: int, body: str) -> None:
    made = Template("{id:10} {n:5} {lane:3} %", 7).body(LANE, 42, attempt)
    assert made == body.encode()


def test_a_reader_puts_body_and_header_together_and_notices_every_change() -> None:
    whole = message()
    body, identity = parted(whole)
    headers: list[tuple[str, Any]] = [("trace", b"x"), (HEADER, identity)]
    assert joined(body, headers) == whole
    assert payload.check(joined(body, headers), 0xABCD) == lay.CHECK_OK
    for changed in (body[:-1], body + b" ", body.replace(b"42", b"43")):
        assert payload.check(joined(changed, headers), 0xABCD) == lay.CORRUPT
    assert payload.check(joined(body, []), 0xABCD) == lay.FOREIGN
    assert joined(whole, headers) == whole, "a plain payload has its identity in itself"
    assert joined(None, None) == b""


def test_where_headers_are_texts_the_identity_is_base64() -> None:
    whole = message()
    body, header = parted_as_text(whole)
    assert joined(body, header.items()) == whole
    assert payload.check(joined(body, {HEADER: "not base64"}.items()), 0xABCD) == lay.FOREIGN


def test_plan_and_spec_of_a_template(tmp_path: Path) -> None:
    load = {"payload": {"template": ORDER}, "producers": {"p": {}}}
    plan = build_plan(Scenario(name="x", topics={"a": {}}, load=load), seed=1)
    assert plan.payload_template == ORDER
    body = len(Template(ORDER, 1).body(LANE, 0))
    assert plan.payload_bytes <= body + lay.MIN_PAYLOAD_BYTES <= plan.payload_max_bytes
    spec = client_spec(plan, RunDir(tmp_path), plan.producers[0], Endpoints(""))
    assert spec.producer is not None
    assert spec.producer.payload_template == ORDER


BAD = [
    ("{template: '{id}', compressible: 50%}", "template takes no sizes: leave out compressible"),
    ("{template: '{\"n\": {n}}'}", "template has no {id}, by which readers name the message"),
    (
        "{template: '{id} {nr}'}",
        "template has {nr}, which is not a place: use {id}, {n}, {key}, {lane} or {producer}",
    ),
    (
        "{template: 'BS {id}'}",
        "template begins with BS, as payloads without one do: begin it with another",
    ),
    ("{template: '{id}', bytes: 150}", "template takes no sizes: leave out bytes"),
    ("{template: 5}", "template must be a text"),
    ('{template: "{id} \\0"}', "template must be a text"),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_one_line_names_what_is_wrong_with_a_template(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"name: x\nload:\n  payload: {text}\n  producers: {{p: {{}}}}\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, clients=known_workers, classes=["acked-lost"])
    line = f"{path}:3: load.payload: {words}"
    assert str(caught.value).startswith(line), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_client_that_cannot_carry_the_header_is_refused(tmp_path: Path) -> None:
    """Every worker of ours can; one of somebody else says so in its ``[supports]``."""
    mine = known_workers()["amqp091-go"]
    supports = {**mine.supports, "payload": ("fixed", "range", "mixed")}
    client = mine.model_copy(update={"supports": supports})
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: x\nsystem: qpid\nload:\n  payload: {template: '{id}'}\n"
        "  producers: {c: {client: amqp091-go}}\n"
    )
    with pytest.raises(
        ScenarioError, match=r"load\.payload: is not supported by the amqp091-go worker"
    ):
        load_scenario(path, clients=lambda *_: {"amqp091-go": client}, classes=["acked-lost"])


def test_transactions_of_which_readers_are_given_no_headers_are_refused(tmp_path: Path) -> None:
    """What no transaction of Pulsar committed is told by the admin, without the properties of
    messages."""
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: x\nsystem: pulsar\nload:\n  payload: {template: '{id}'}\n"
        "  producers: {p: {client: pulsar-client-java, transactions: {messages: 10}}}\n"
    )
    with pytest.raises(
        ScenarioError, match=r"load\.payload: a template cannot be combined with transactions"
    ):
        load_scenario(path, clients=known_workers, classes=["acked-lost"])
