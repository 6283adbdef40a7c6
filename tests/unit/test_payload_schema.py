"""Bodies by a schema file: what readers decode, what is refused, and that nothing needs the file
later."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.contracts.message import MessageId
from harness.errors import BrokerstormError, EnvironmentNotReady, ScenarioError
from harness.plan.build import build_plan
from harness.run.worker_specs import Endpoints, client_spec
from harness.rundir import RunDir
from harness.scenario.file import load_scenario, variants
from harness.scenario.model import Scenario
from harness.workers import known_workers
from workers.python_kit.worker_kit.spec import Lane
from workers.python_kit.worker_kit.template import Template

fastavro = pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

LANE = Lane(lane=4, topic="orders", key=b"k000017", partition=-1, key_number=17)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total", "type": "long"},
        {"name": "by", "type": {"type": "record", "name": "By", "fields": [
            {"name": "text", "type": ["null", "string"]}, {"name": "share", "type": "double"},
        ]}},
    ],
}  # fmt: skip
VALUES = {"id": "{id}", "total": -300, "by": {"text": "n{n} ä{producer}/{lane}", "share": 0.1}}
PROTO = """
syntax = "proto3";
package shop;
message By { string text = 1; double share = 2; }
message Order { string id = 1; int64 total = 2; By by = 3; }
"""


def descriptors() -> bytes:
    """`PROTO` compiled, as protoc writes it."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    by, order = file.message_type.add(name="By"), file.message_type.add(name="Order")
    by.field.add(name="text", number=1, type=9, label=1)
    by.field.add(name="share", number=2, type=1, label=1)
    order.field.add(name="id", number=1, type=9, label=1)
    order.field.add(name="total", number=2, type=3, label=1)
    order.field.add(name="by", number=3, type=11, label=1, type_name=".shop.By")
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "order.desc").write_bytes(descriptors())
    return tmp_path


def scenario_of(folder: Path, payload: dict[str, Any], **more: Any) -> Scenario:
    path = folder / "scenario.yaml"
    load = {"payload": payload, "producers": {"p": {}}}
    path.write_text(yaml.safe_dump({"name": "x", "load": load, **more}))
    return load_scenario(path, clients=known_workers, classes=["acked-lost"])


def read_avro(body: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(body), ORDER)


def read_protobuf(body: bytes) -> Any:
    from google.protobuf import descriptor_pool, json_format, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.AddSerializedFile(file.SerializeToString())
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    found = json_format.MessageToDict(order.FromString(body))
    return {**found, "total": int(found["total"])}


PROTOC = pytest.mark.skipif(
    not (shutil.which("protoc") or find_spec("grpc_tools")), reason="there is no protoc"
)


@pytest.mark.parametrize(
    ("named", "read"),
    [
        ({"avro": "order.avsc"}, read_avro),
        ({"protobuf": "order.desc", "message": "shop.Order"}, read_protobuf),
        pytest.param(
            {"protobuf": "order.proto", "message": "shop.Order"}, read_protobuf, marks=PROTOC
        ),
    ],
)
def test_a_reader_decodes_every_body(folder: Path, named: dict[str, str], read: Any) -> None:
    payload = scenario_of(folder, {"template": VALUES, **named}).load.payload
    assert isinstance(payload, dict)
    template = Template(payload["template"], 7, payload["charset"])
    for seq, attempt in ((0, 0), (42, 0), (10**9, 3)):
        found = read(template.body(LANE, seq, attempt))
        assert MessageId.parse(found["id"]) == MessageId(7, 4, seq, attempt or None)
        by = {"text": f"n{seq:020} ä0000000007/0000000004", "share": 0.1}
        assert (found["total"], found["by"]) == (-300, by)


def test_the_plan_and_what_is_written_out_need_no_schema_file(folder: Path) -> None:
    small = {"override": {"load": {"payload": {"template": {"total": 1}}}}, "expect": "clean"}
    payload = {"template": VALUES, "avro": "order.avsc"}
    scenario = scenario_of(folder, payload, variants={"large": {"expect": "clean"}, "small": small})
    elsewhere = folder / "elsewhere" / "x.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(scenario.text)
    again = load_scenario(elsewhere, clients=known_workers, classes=["acked-lost"])
    bodies = [[each.load.payload for _, each, _ in variants(one)] for one in (scenario, again)]
    assert bodies[0] == bodies[1]
    assert bodies[0][0] != bodies[0][1]
    plan = build_plan(scenario, seed=1)
    spec = client_spec(plan, RunDir(folder), plan.producers[0], Endpoints(""))
    assert spec.producer is not None
    assert spec.producer.payload_template == plan.payload_template
    assert spec.producer.payload_charset == "latin-1"
    body = Template(plan.payload_template, 1, "latin-1").body(LANE, 0)
    assert plan.payload_bytes == len(body) + 52


AVRO = {"template": VALUES, "avro": "order.avsc"}
PROTOBUF = {"template": VALUES, "protobuf": "order.desc", "message": "shop.Order"}
BAD: list[tuple[dict[str, Any], str]] = [
    (AVRO | {"avro": "none.avsc"}, "cannot read "),
    (AVRO | {"avro": "order.proto"}, "order.proto is not an Avro schema: "),
    (AVRO | {"avro": 5}, "avro must be the path of an Avro schema"),
    (AVRO | {"bytes": 5}, "avro cannot be combined with bytes"),
    (AVRO | {"message": "x"}, "message names the message type of protobuf: write both, or neither"),
    ({"avro": "order.avsc"}, "avro needs template: the values of the fields"),
    ({"template": VALUES}, "template must be a text, such as "),
    (AVRO | {"template": VALUES | {"sum": 1}}, "the template does not fit order.avsc: "),
    (AVRO | {"template": VALUES | {"total": "{n}"}}, "the template does not fit order.avsc: "),
    (
        AVRO | {"template": VALUES | {"id": "x"}},
        "the encoded body cannot be used: template has no {",
    ),
    (AVRO | {"template": VALUES | {"id": "{id:9}"}}, "template has {id:9}: {id} has no width"),
    (AVRO | {"template": VALUES | {"id": "{key}"}}, "template has {key}, which is not a place"),
    (PROTOBUF | {"message": "Order"}, "has no message type 'Order'; did you mean shop.Order?"),
    (PROTOBUF | {"template": VALUES | {"total": "{n}"}}, "the template does not fit shop.Order of"),
    (PROTOBUF | {"protobuf": "order.avsc"}, "order.avsc is not a set of descriptors: "),
    ({"template": "{id}", "charset": "x"}, "charset must be latin-1; leave it out for UTF-8"),
    ({"template": "{id} €", "charset": "latin-1"}, "template has '€', which is not a byte with"),
    ({"template": "{id:0}"}, "template has {id:0}: a width is 1 to 99 characters"),
]


@pytest.mark.parametrize(("payload", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_one_line_names_what_is_wrong(folder: Path, payload: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_of(folder, payload)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'scenario.yaml'}:")
    assert "load.payload: " in text
    assert words in text
    assert "\n" not in text


def refused(folder: Path, payload: dict[str, Any]) -> str:
    """The one line by which a payload is refused."""
    with pytest.raises(ScenarioError) as caught:
        scenario_of(folder, payload)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def order_with(folder: Path, *fields: dict[str, Any]) -> dict[str, Any]:
    """A payload of a schema with these fields after the id, which the template leaves out."""
    schema = record("Order", {"name": "id", "type": "string"}, *fields)
    (folder / "order.avsc").write_text(json.dumps(schema))
    return {"template": {"id": "{id}"}, "avro": "order.avsc"}


def chain(length: int, times: int) -> list[dict[str, Any]]:
    """Fields with types R0, R1 ...: the default of each fills in the next, so many times."""
    fields: list[dict[str, Any]] = []
    for k in range(length):
        inner = [{"name": f"f{j}", "type": f"R{k - 1}", "default": {}} for j in range(times)]
        fields.append(
            {"name": f"r{k}", "type": record(f"R{k}", *(inner if k else ())), "default": {}}
        )
    return fields


A = {"name": "a", "type": "A", "default": {}}
ENDLESS = [
    A | {"type": record("A", A)},
    A | {"type": record("A", A | {"type": ["null", "A"]})},
    A | {"type": record("A", A | {"type": {"type": "array", "items": "A"}, "default": [{}]})},
    A | {"type": record("A", A | {"type": {"type": "map", "values": "A"}, "default": {"x": {}}})},
    A | {"type": record("A", A | {"type": record("B", A)})},
]


@pytest.mark.parametrize("field", ENDLESS)
def test_a_default_that_contains_itself_is_refused(folder: Path, field: dict[str, Any]) -> None:
    # fastavro fills in defaults in C until the stack ends, and the process with it.
    text = refused(folder, order_with(folder, field))
    assert "order.avsc cannot be used: the default of field A.a contains itself; give" in text


@pytest.mark.parametrize(("length", "times"), [(60, 1), (3000, 1), (20, 2)])
def test_a_default_that_fills_in_very_much_is_refused(
    folder: Path, length: int, times: int
) -> None:
    text = refused(folder, order_with(folder, *chain(length, times)))
    assert "fills in more than 10,000 fields, or more than 50 in each other; write" in text


def test_a_default_that_ends_is_filled_in(folder: Path) -> None:
    null = {"name": "next", "type": ["null", "Node"], "default": None}
    node = record("Node", {"name": "n", "type": "int", "default": 7}, null)
    payload = order_with(
        folder,
        {"name": "a", "type": node, "default": {}},
        {"name": "b", "type": "Node", "default": {"n": 1, "next": None}},
        *chain(5, 2),
    )
    schema = fastavro.schema.load_schema(str(folder / "order.avsc"))
    made = scenario_of(folder, payload).load.payload
    assert isinstance(made, dict)
    body = Template(made["template"], 7, "latin-1").body(LANE, 0)
    found = fastavro.schemaless_reader(io.BytesIO(body), schema)
    assert (found["a"], found["b"]) == ({"n": 7, "next": None}, {"n": 1, "next": None})


@pytest.mark.parametrize("text", ["{n}", "{id:40}", "{other}"])
def test_bytes_that_look_like_a_place_are_refused(folder: Path, text: str) -> None:
    payload = order_with(folder, {"name": "at", "type": "string", "default": text})
    assert f"the encoded body has {text} where the template has no place" in refused(
        folder, payload
    )
    number = {"name": "at", "type": {"type": "array", "items": "long"}}
    payload = order_with(folder, number)
    numbers = [-(byte + 1) // 2 if byte % 2 else byte // 2 for byte in text.encode()]
    payload["template"] |= {"at": numbers}
    assert f"the encoded body has {text} where" in refused(folder, payload)


def test_types_in_files_next_to_the_schema_are_found(folder: Path) -> None:
    payload = order_with(folder, {"name": "by", "type": "shop.By"}, {"name": "c", "type": "C"})
    (folder / "shop.By.avsc").write_text(
        json.dumps(record("By", {"name": "c", "type": "C"}) | {"namespace": "shop"})
    )
    (folder / "shop.C.avsc").write_text(json.dumps(record("shop.C", {"name": "n", "type": "int"})))
    (folder / "C.avsc").write_text(json.dumps(record("C", {"name": "n", "type": "int"})))
    payload["template"] |= {"by": {"c": {"n": 5}}, "c": {"n": 6}}
    made = scenario_of(folder, payload).load.payload
    assert isinstance(made, dict)
    assert made["template"] == "P{id:40}\n\f"


def refers(folder: Path, name: str) -> str:
    return refused(folder, order_with(folder, {"name": "x", "type": name}))


def test_a_type_of_another_file_is_refused_unless_it_is_a_plain_file_of_its_name(
    folder: Path,
) -> None:
    inner = folder / "inner"
    inner.mkdir()
    for at in ("x.avsc", "inner/x.avsc"):
        (folder / at).write_text(json.dumps(record("x")))
    for name in (str(folder / "x"), "inner/x", "../x", "x/../x", "", "a..b"):
        text = refers(folder, name)
        assert f"order.avsc has {name!r}, which is neither a type of Avro nor a name" in text
    os.mkfifo(folder / "Pipe.avsc")
    assert "names the type Pipe, which it does not have: cannot read " in refers(folder, "Pipe")
    assert "Pipe.avsc: it is not a regular file" in refers(folder, "Pipe")
    assert "None.avsc: No such file" in refers(folder, "None")
    (folder / "Large.avsc").write_text(" " * 1_000_001)
    assert "Large.avsc: larger than 1,000,000 bytes" in refers(folder, "Large")
    (folder / "Much.avsc").write_text(json.dumps(record("Much")) + " " * 999_900)
    assert "the files of its types have more than 1,000,000 bytes" in refers(folder, "Much")
    (folder / "Torn.avsc").write_text("{")
    assert "Torn.avsc is not an Avro schema: " in refers(folder, "Torn")
    (folder / "Deep.avsc").write_text("[" * 500 + "]" * 500)
    assert "Deep.avsc is not an Avro schema: nested too deeply" in refers(folder, "Deep")
    (folder / "Other.avsc").write_text(json.dumps(record("Another")))
    assert "Other.avsc must have the type Other, which " in refers(folder, "Other")
    (folder / "L.avsc").write_text(json.dumps(record("L", {"name": "m", "type": "M"})))
    (folder / "M.avsc").write_text(json.dumps(record("M", {"name": "l", "type": "L"})))
    assert "types in files of their own name each other, or more" in refers(folder, "L")


def test_a_schema_cannot_say_that_it_was_checked(folder: Path) -> None:
    marks = {"__fastavro_parsed": True, "__named_schemas": {}}
    (folder / "order.avsc").write_text(json.dumps(ORDER | {"fields": 5} | marks))
    assert "order.avsc is not an Avro schema: " in refused(folder, AVRO)


@PROTOC
@pytest.mark.parametrize("name", ["@order.proto", "--order.proto", "-I.proto"])
def test_a_name_that_protoc_takes_for_an_option_is_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (folder / "order.proto").rename(folder / name)
    monkeypatch.chdir(folder)
    named = {"protobuf": name, "message": "shop.Order"}
    assert "{id:40}" in str(scenario_of(Path(), {"template": VALUES, **named}).load.payload)


@pytest.mark.skipif(not find_spec("grpc_tools"), reason="there are no grpcio-tools")
def test_no_module_of_the_current_folder_is_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "grpc_tools").mkdir()
    (folder / "grpc_tools" / "__init__.py").touch()
    (folder / "grpc_tools" / "protoc.py").write_text("raise SystemExit('code of a stranger')")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    named = {"protobuf": "order.proto", "message": "shop.Order"}
    assert "{id:40}" in str(scenario_of(folder, {"template": VALUES, **named}).load.payload)


@PROTOC
def test_what_protoc_says_needs_not_be_a_text(folder: Path) -> None:
    (folder / "order.proto").write_text('syntax = "proto3"; import "\\377.proto";')
    text = refused(folder, PROTOBUF | {"protobuf": "order.proto"})
    assert "order.proto cannot be compiled: " in text


def test_a_protoc_that_makes_no_file_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/opt/protoc")
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "", "")
    )
    text = refused(folder, PROTOBUF | {"protobuf": "order.proto"})
    assert "order.proto cannot be compiled: /opt/protoc made no set of descriptors" in text


@pytest.mark.parametrize(
    ("base", "own"),
    [
        (AVRO, {"template": None, "avro": None, "bytes": 100}),
        (AVRO, {"template": None, "avro": None, "sizes": {200: "70%", 1000: "30%"}}),
        (AVRO, {"template": "{id} €", "avro": None}),
        (AVRO, {"avro": None, "protobuf": "order.desc", "message": "shop.Order"}),
        (AVRO, 100),
        ({"bytes": 100, "compressible": "60%"}, AVRO | {"bytes": None, "compressible": None}),
        (100, AVRO),
    ],
)
def test_what_is_written_out_has_the_payload_of_each_variant(
    folder: Path, base: Any, own: Any
) -> None:
    other = {"override": {"load": {"payload": own}}, "expect": "clean"}
    scenario = scenario_of(
        folder, base, variants={"base": {"expect": "clean"}, "one": other, "two": other}
    )
    elsewhere = folder / "elsewhere" / "x.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(scenario.text)
    again = load_scenario(elsewhere, clients=known_workers, classes=["acked-lost"])
    bodies = [[each.load.payload for _, each, _ in variants(one)] for one in (scenario, again)]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"bytes": 5}, "avro cannot be combined with bytes"),
        ({"avro": 5}, "avro must be the path of an Avro schema"),
        ({"avro": "none.avsc"}, "cannot read "),
    ],
)
def test_one_line_names_what_is_wrong_with_a_variant(folder: Path, own: Any, words: str) -> None:
    one = {"override": {"load": {"payload": own}}, "expect": "clean"}
    with pytest.raises(ScenarioError) as caught:
        scenario_of(folder, AVRO, variants={"one": one})
    text = str(caught.value)
    assert "variants.one.override.load.payload" in text
    assert words in text


def test_a_setting_replaces_a_payload_with_keys_that_do_not_go_together(folder: Path) -> None:
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({"name": "x", "load": {"payload": AVRO | {"bytes": 5}}}))
    assert load_scenario(path, overrides=["load.payload=100"]).load.payload == 100


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(EnvironmentNotReady, match="needs the Python package fastavro") as caught:
        scenario_of(folder, AVRO)
    assert "fastavro" in str(caught.value.hint)


def test_a_worker_that_sends_texts_only_is_refused(folder: Path) -> None:
    mine = known_workers()["confluent-kafka"]
    supports = {**mine.supports, "payload": ("fixed", "range", "mixed", "template")}
    client = mine.model_copy(update={"supports": supports})
    (folder / "x.yaml").write_text(
        yaml.safe_dump({"name": "x", "load": {"payload": AVRO, "producers": {"p": {}}}})
    )
    with pytest.raises(BrokerstormError, match=r"load\.payload: is not supported by the confluent"):
        load_scenario(
            folder / "x.yaml",
            clients=lambda *_: {"confluent-kafka": client},
            classes=["acked-lost"],
        )
