"""Things of others on a Qpid broker: queues with settings and messages, an exchange, clients that
stay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pika
import urllib3

from bench.own_management import management_at
from harness.clusters.layout.management import USER

PREFIX: Final = "brokerstorm"
#: Queues of others: one expires, one keeps the last of a key, one drops the oldest; two are called
#: nearly as ours.
OTHERS: Final[Mapping[str, dict[str, Any]]] = {
    "orders-0": {},
    "clicks": {"maximumMessageTtl": 86_400_000},
    "customers": {"type": "lvq", "lvqKey": "customer"},
    "latest": {"overflowPolicy": "RING", "maximumQueueDepthMessages": 30},
    f"{PREFIX}-plans": {"maximumDeliveryAttempts": 3},
    f"{PREFIX}-0badcafe-orders-0": {},
}
EXCHANGE: Final = "shop"
_MESSAGES: Final = 60
_QUIET_S: Final = 0.5
#: Names that a client of a run has, too, but for the tag of the run.
_CLIENTS: Final = ("consumer-1", "producer-1-0badcafe")
#: Connections of others, open as long as this process.
_open: list[pika.BlockingConnection] = []


class PlainManagement:
    """The management of the broker that serves, plain text."""

    def __init__(self, bootstrap: str, admin_url: str) -> None:
        password = management_at(admin_url).secret_file.read_text()
        pool = urllib3.PoolManager(headers=urllib3.make_headers(basic_auth=f"{USER}:{password}"))
        self.virtual_host = urlsplit(f"//{bootstrap}").path.strip("/")
        for at in admin_url.removeprefix("http://").replace("http://", "").split(","):
            self._url, self._pool = f"http://{at}/api/latest", pool
            found = self.ask(
                f"querybroker/virtualhost?select={quote('$parent.name,name,id,state')}"
            )
            for host, name, number, state in found["results"]:
                if (name, state) == (self.virtual_host, "ACTIVE"):
                    self.place, self.id = f"{host}/{name}", number
                    return
        raise SystemExit(f"nobody serves {self.virtual_host}")

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Send a request and return the decoded answer."""
        found = self._pool.request(method, f"{self._url}/{path}", json=body)
        if found.status >= 300:
            raise SystemExit(f"{method} {path}: {found.status} {found.data[:200]!r}")
        return found.json() if found.data else None

    def of(self, kind: str) -> Sequence[dict[str, Any]]:
        """Objects of a kind in the virtual host."""
        found: Sequence[dict[str, Any]] = self.ask(f"{kind}/{self.place}")
        return found


def fill(bootstrap: str, admin_url: str) -> None:
    """Make the queues of others, with messages, an exchange that feeds them, and clients that
    stay."""
    rest = PlainManagement(bootstrap, admin_url)
    rest.ask(f"exchange/{rest.place}", "POST", {"name": EXCHANGE, "type": "topic", "durable": True})
    for name, settings in OTHERS.items():
        rest.ask(f"queue/{rest.place}", "POST", {"name": name, "durable": True, **settings})
        for exchange in (EXCHANGE, "amq.direct"):
            bind = {"destination": name, "bindingKey": name}
            rest.ask(f"exchange/{rest.place}/{exchange}/bind", "POST", bind)
    _open.extend(_connected(bootstrap, rest.virtual_host, name) for name in _CLIENTS)
    channel = _open[0].channel()
    for name in OTHERS:
        for number in range(_MESSAGES):
            properties = pika.BasicProperties(delivery_mode=2, headers={"customer": number % 20})
            channel.basic_publish(EXCHANGE, name, f"{name} {number}".encode(), properties)
    channel.close()  # is answered when the broker has all


def _connected(bootstrap: str, virtual_host: str, name: str) -> pika.BlockingConnection:
    host, _, port = bootstrap.partition("/")[0].partition(",")[0].rpartition(":")
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            host, int(port), virtual_host, heartbeat=0, client_properties={"instance": name}
        )
    )


def fingerprint(bootstrap: str, admin_url: str) -> dict[str, Any]:
    """All that others have there: queues with settings and messages, exchanges with bindings,
    connections.

    The harness' queue of a broker that brokerstorm started belongs to no run.
    """
    rest = PlainManagement(bootstrap, admin_url)
    queues = {row["name"]: row for row in rest.of("queue") if row["name"] != f"{PREFIX}.probe"}
    looking = _connected(bootstrap, rest.virtual_host, "looks")
    try:
        messages = {name: _messages(looking.channel(), name) for name in queues}
    finally:
        looking.close()
    return {
        "topics": {name: _settings(row) for name, row in queues.items()},
        "depths": {name: row["statistics"]["queueDepthMessages"] for name, row in queues.items()},
        "messages": messages,
        "exchanges": {row["name"]: _settings(row) for row in rest.of("exchange")},
        "connections": {
            row["name"]: row["clientId"]
            for row in rest.ask("connection")
            if row["clientId"] in _CLIENTS
        },
    }


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an object, without counters and times; lists such as bindings are
    sorted."""
    passing = {
        "statistics",
        "lastOpenedTime",
        *(["lastUpdatedTime", "lastUpdatedBy"] if "bindings" in row else []),
    }
    found = {key: value for key, value in row.items() if key not in passing}
    return {
        key: sorted(map(repr, value)) if isinstance(value, list) else value
        for key, value in found.items()
    }


def _messages(channel: Any, queue: str) -> str:
    """A digest of all messages of a queue: what they are, whether they were handed out, what is in
    them."""
    digest = hashlib.sha256()
    # Looks without taking; the REST side shows contents over TLS alone.
    looks = channel.consume(
        queue, arguments={"x-filter-no-consume": True}, inactivity_timeout=_QUIET_S
    )
    for method, properties, content in looks:
        if method is None:
            break
        digest.update(
            repr((method.redelivered, properties.timestamp, properties.headers, content)).encode()
        )
    channel.cancel()
    return digest.hexdigest()


def connection(folder: Path, bootstrap: str, admin_url: str) -> Path:
    """A connection file of the cluster."""
    rest = PlainManagement(bootstrap, admin_url)
    urls = ",".join(f"http://{at}" for at in admin_url.replace("http://", "").split(","))
    path, password = folder / "staging.yaml", management_at(admin_url).secret_file
    path.write_text(
        f"system: qpid\nyours: true\ncluster_id: {rest.id}\nbootstrap: {bootstrap}\nadmin_url: {urls}\n"
        f"topics: {{prefix: {PREFIX}}}\n"
        f"admin_auth: {{mechanism: user, user: {USER}, password: {{file: {password}}}}}\n"
    )
    return path
