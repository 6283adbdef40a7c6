"""Things of others on a Pulsar cluster: namespaces with policies, topics with messages, a
subscription."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pulsar
import urllib3

from bench.own_management import management_at

PREFIX: Final = "brokerstorm"
#: Namespaces of others: one expires, one keeps, one is called nearly as ours are.
OTHERS: Final[Mapping[str, dict[str, Any]]] = {
    "public/shop": {"retention_policies": {"retentionTimeInMinutes": 90, "retentionSizeInMB": 10}},
    "public/clicks": {"message_ttl_in_seconds": 86400},
    f"public/{PREFIX}-plans": {"deduplicationEnabled": True},
    f"public/{PREFIX}-0badcafe": {},
}
GROUP: Final = "billing"
_MESSAGES: Final = 400
#: Where brokers keep what deduplication knows; it continues by itself.
_OWN: Final = "pulsar.dedup"


class PlainRest:
    """The administration of a cluster, plain text."""

    def __init__(self, admin_url: str) -> None:
        self._url = f"{admin_url.split(',')[0]}/admin/v2"
        token = management_at(admin_url).token_file.read_text()
        # Brokers send a question on to the owner of what it is about; the token goes there, too.
        follow = urllib3.Retry(remove_headers_on_redirect=())
        self._pool = urllib3.PoolManager(
            headers={"Authorization": f"Bearer {token}"}, retries=follow
        )

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Send a request and return the decoded answer."""
        found = self._pool.request(method, f"{self._url}{path}", json=body)
        if found.status >= 300:
            raise SystemExit(f"{method} {path}: {found.status} {found.data[:200]!r}")
        return found.json() if found.data else None


def fill(bootstrap: str, admin_url: str) -> None:
    """Make the namespaces of others, with messages, and a subscription that read some of them."""
    rest, client = PlainRest(admin_url), _client(bootstrap, admin_url)
    try:
        for namespace, policies in OTHERS.items():
            rest.ask(f"/namespaces/{namespace}", "PUT", {"bundles": {"numBundles": 4}, **policies})
            rest.ask(f"/persistent/{namespace}/orders", "PUT")
            rest.ask(f"/persistent/{namespace}/customers/partitions", "PUT", 3)
            for topic in ("orders", "customers"):
                producer = client.create_producer(
                    f"persistent://{namespace}/{topic}", batching_enabled=True
                )
                for number in range(_MESSAGES):
                    producer.send_async(
                        f"{topic} {number}".encode(),
                        lambda *_: None,
                        partition_key=str(number % 40),
                    )
                producer.flush()
                producer.close()
        reader = client.subscribe(
            f"persistent://{next(iter(OTHERS))}/orders",
            GROUP,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        last = [reader.receive(10_000) for _ in range(_MESSAGES // 4)][-1]
        reader.acknowledge_cumulative(last)
        reader.close()
    finally:
        client.close()


def fingerprint(bootstrap: str, admin_url: str) -> dict[str, Any]:
    """All that others have there: namespaces with policies, topics with ledgers and subscriptions,
    messages.

    Ledgers tell that a topic was not unloaded, either: with each load it begins another one.
    """
    rest = PlainRest(admin_url)
    namespaces = sorted(
        n for tenant in rest.ask("/tenants") for n in rest.ask(f"/namespaces/{tenant}")
    )
    topics = sorted(topic for name in namespaces for topic in rest.ask(f"/persistent/{name}"))
    kept = {topic: _kept(rest, topic) for topic in topics}
    client = _client(bootstrap, admin_url)
    try:
        messages = {topic: _messages(client, topic, kept[topic]["entries"]) for topic in topics}
    finally:
        client.close()
    return {
        "namespaces": {name: rest.ask(f"/namespaces/{name}") for name in namespaces},
        "topics": kept,
        "messages": messages,
    }


def _kept(rest: PlainRest, topic: str) -> dict[str, Any]:
    found = rest.ask(f"/{topic.replace('://', '/')}/internalStats")
    return {
        "entries": found["numberOfEntries"],
        "ledgers": [row["ledgerId"] for row in found["ledgers"]],
        "since": found["lastLedgerCreatedTimestamp"],
        "subscriptions": {
            n: row["markDeletePosition"] for n, row in found["cursors"].items() if n != _OWN
        },
    }


def _messages(client: pulsar.Client, topic: str, entries: int) -> str:
    """A digest of all messages of a topic: positions, times, keys and values."""
    digest = hashlib.sha256()
    if not entries:
        return digest.hexdigest()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        while reader.has_message_available():
            message = reader.read_next(30_000)
            row = (str(message.message_id()), message.publish_timestamp(), message.partition_key())
            digest.update(repr((*row, message.data())).encode())
    finally:
        reader.close()
    return digest.hexdigest()


def connection(folder: Path, bootstrap: str, admin_url: str) -> Path:
    """A connection file of the cluster."""
    rest = PlainRest(admin_url)
    (name,) = rest.ask("/clusters")
    at = rest.ask(f"/clusters/{name}")["serviceUrl"].partition("://")[2]
    path = folder / "staging.yaml"
    path.write_text(
        f"system: pulsar\nyours: true\ncluster_id: {name}@{at}\nbootstrap: {bootstrap}\n"
        f"admin_url: {admin_url}\ntopics: {{prefix: {PREFIX}}}\n"
        f"auth: {{mechanism: token, token: {{file: {management_at(admin_url).token_file}}}}}\n"
    )
    return path


def _client(bootstrap: str, admin_url: str) -> pulsar.Client:
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    token = pulsar.AuthenticationToken(management_at(admin_url).token_file.read_text())
    return pulsar.Client(bootstrap, logger=quiet, authentication=token)
