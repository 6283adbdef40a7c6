"""Contract of producers: headers of messages, read by another client than the one under test."""

from __future__ import annotations

from typing import Final

from harness.connections.security import ANYBODY
from harness.contract.checks import check
from harness.contract.driving import equal, expect
from harness.contract.rig import RUN_TAG, Rig
from harness.records import HEADER_MAGIC

#: Headers that every client can name, and some that JMS cannot.
_PLAIN: Final = {"tenant": "acme", "text": "Käse 42", **{f"x_{k}": "y" * 20 for k in range(20)}}
_ODD: Final = {"trace-id": "4bf92f3577b34da6", "X.Retry-Count": "3"}


@check("producer", supports={"headers": "identifiers"})
def headers_are_sent(rig: Rig) -> None:
    """In every message, with their values, for another client that reads them."""
    headers = _PLAIN if "any" not in rig.worker.supports["headers"] else {**_PLAIN, **_ODD}
    topic = rig.topic()
    asked = {"headers": [list(each) for each in headers.items()]}
    producer = rig.producer(topic, load_s=0.25, asked=asked).send_all()
    address = rig.system.address(topic, RUN_TAG) or topic
    security = rig.cluster.security or ANYBODY.clients
    read = rig.system.headers().read(rig.cluster.bootstrap, address, rig.partitions[topic], security)
    found = [sent for value, sent in read if _is_ours(value)]
    equal("messages read again", len(found), producer.done_message["ok"])
    expect(found, "no message was read again")
    ours = ({name: sent.get(name) for name in headers} for sent in found)  # a client may add its own
    equal("headers of a message", next((sent for sent in ours if sent != headers), headers), headers)


def _is_ours(value: bytes) -> bool:
    return value[:2] == HEADER_MAGIC and value[3] != 0  # no probe
