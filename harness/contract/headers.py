"""Contract of producers: headers of messages, read by another client than the one under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from harness.contract.checks import check
from harness.contract.driving import equal, expect
from harness.contract.rig import RUN_TAG, Rig
from harness.records import HEADER_MAGIC

#: Headers that every client can name, and some that JMS cannot.
_PLAIN: Final = {"tenant": "acme", "text": "Käse 42", **{f"x_{k}": "y" * 20 for k in range(20)}}
_ODD: Final = {"trace-id": "4bf92f3577b34da6", "X.Retry-Count": "3"}
_READ_S: Final = 20.0
_BATCH: Final = 500


@check("producer", supports={"headers": "identifiers"})
def headers_are_sent(rig: Rig) -> None:
    """In every message, with their values, for another client that reads them."""
    headers = _PLAIN if "any" not in rig.worker.supports["headers"] else {**_PLAIN, **_ODD}
    topic = rig.topic()
    asked = {"headers": [list(each) for each in headers.items()]}
    producer = rig.producer(topic, load_s=0.25, asked=asked).send_all()
    found = [sent for value, sent in _READERS[rig.system.name](rig, topic) if _is_ours(value)]
    equal("messages read again", len(found), producer.done_message["ok"])
    expect(found, "no message was read again")
    wrong = next((sent for sent in found if sent != headers), headers)
    equal("headers of a message", wrong, dict(headers))


def _is_ours(value: bytes) -> bool:
    return value[:2] == HEADER_MAGIC and value[3] != 0  # no probe


Found = Iterator[tuple[bytes, dict[str, str]]]


def _kafka(rig: Rig, topic: str) -> Found:
    import confluent_kafka as kafka

    settings = {"bootstrap.servers": rig.cluster.bootstrap, "group.id": f"headers-{topic}"}
    reader = kafka.Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    left = set(range(rig.partitions[topic]))
    reader.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in left])
    try:
        while left:
            messages = reader.consume(_BATCH, _READ_S)
            expect(messages, f"nothing more to read in {_READ_S:g} s")
            for message in messages:
                if message.error() is None:
                    pairs = message.headers() or []
                    yield message.value() or b"", {name: _text(value) for name, value in pairs}
                elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        reader.close()


def _pulsar(rig: Rig, topic: str) -> Found:
    import pulsar

    address = rig.system.address(topic, RUN_TAG)
    count = rig.partitions[topic]
    client = pulsar.Client(rig.cluster.bootstrap)
    try:
        for name in [address] if count == 1 else [f"{address}-partition-{p}" for p in range(count)]:
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=int(_READ_S * 1000))
                yield message.data(), dict(message.properties())
    finally:
        client.close()


def _qpid(rig: Rig, topic: str) -> Found:
    import pika

    from harness.brokers.qpid_rest import PASSWORD, USER, VIRTUAL_HOST

    host, _, port = rig.cluster.bootstrap.partition(",")[0].rpartition(":")
    login = pika.PlainCredentials(USER, PASSWORD)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), VIRTUAL_HOST, login))
    try:
        channel = connection.channel()
        method, properties, value = channel.basic_get(f"{topic}-0", auto_ack=True)
        while method is not None:
            yield value, {name: _text(each) for name, each in (properties.headers or {}).items()}
            method, properties, value = channel.basic_get(f"{topic}-0", auto_ack=True)
    finally:
        connection.close()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_READERS: Final[Mapping[str, Callable[[Rig, str], Found]]] = {
    "kafka": _kafka, "pulsar": _pulsar, "qpid": _qpid,
}  # fmt: skip
