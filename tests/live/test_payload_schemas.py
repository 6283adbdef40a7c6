"""An application under test reads Avro or Protobuf: it decodes each message with the library of the
format, and every input has its output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.errors import Exit
from tests.live.run_rig import LiveRun
from tests.unit.test_payload_schema import ORDER, VALUES, descriptors

pytestmark = [pytest.mark.live, pytest.mark.extended]

#: Writes the id of each order that it can decode, and ends at the first that it cannot.
READER = """
import contextlib, io, json, os, pathlib, sys
from confluent_kafka import Consumer, KafkaException

form, here = sys.argv[1], pathlib.Path(__file__).parent
if form == "avro":
    import fastavro
    schema = fastavro.parse_schema(json.loads((here / "order.avsc").read_text()))
    read = lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema)
else:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString((here / "order.desc").read_bytes())
    pool.AddSerializedFile(files.file[0].SerializeToString())
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    read = lambda value: json_format.MessageToDict(order.FromString(value))
consumer = Consumer({
    "bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": os.environ["GROUP"],
    "enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
})
consumer.subscribe([os.environ["IN"]])
print("started", flush=True)
with open(os.path.join(os.environ["FOLDER"], "orders.jsonl"), "ab", buffering=0) as file:
    while True:
        for message in consumer.consume(100, timeout=0.1):
            if message.error() is None and message.key() != b"brokerstorm-probe":
                found = read(message.value())
                assert (int(found["total"]), found["by"]["share"]) == (-300, 0.1), found
                file.write(json.dumps({"order": found}).encode() + b"\\n")
                # The coordinator may be down: a later commit covers this message, too.
                with contextlib.suppress(KafkaException):
                    consumer.commit(message, asynchronous=False)
"""
SCENARIO = f"""
name: schema
topics: {{orders: {{partitions: 4}}}}
load:
  rate: 150
  duration: 6s
  warm_up: 1s
  payload: {{template: {json.dumps(VALUES)}, NAMED}}
  producers:
    shop: {{topics: [orders]}}
    web: {{topics: [orders], client: kafka-clients}}
    depot: {{topics: [orders], client: franz-go}}
applications:
  billing:
    run: [{sys.executable}, reader.py, FORM]
    env: {{BOOTSTRAP: "{{bootstrap}}", IN: "{{topic:orders}}", GROUP: "{{group}}", FOLDER: "{{folder}}"}}
    ready: {{log: started}}
    from: orders
    to: {{file: "*.jsonl"}}
    identity: {{json: /order/id}}
faults:
  - {{fault: kill, target: "leader-of:orders-0", at: 2s, for: 2s}}
require: {{rate_ratio: 0.5}}
limits: {{drain: 30s}}
"""


@pytest.mark.parametrize(
    ("form", "named"),
    [("avro", "avro: order.avsc"), ("protobuf", "protobuf: order.desc, message: shop.Order")],
)
def test_an_application_decodes_every_message(tmp_path: Path, form: str, named: str) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "order.desc").write_bytes(descriptors())
    (tmp_path / "reader.py").write_text(READER)
    text = SCENARIO.replace("NAMED", named).replace("FORM", form)
    with LiveRun(tmp_path, scenario=text) as live:
        assert live.wait() == Exit.PASS, live.errors()
        (application,) = live.document()["applications"]
        assert application["outputs"] >= 1_000
        assert application["drained"]
