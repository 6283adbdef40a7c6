"""A Pulsar cluster that somebody else started, asked by REST who it is and what its brokers are set
to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from harness.admin.failover import NotThere
from harness.connections.security import Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Endpoint, Node
from harness.systems.pulsar import SYSTEM
from harness.systems.pulsar.rest import PulsarRest

#: All settings of the broker that is asked; only a superuser receives them.
_SETTINGS: Final = "/brokers/configuration/runtime"


@dataclass(frozen=True, slots=True)
class Broker:
    """Where clients find a broker, and where it is administrated."""

    client: Endpoint
    admin: Endpoint


@dataclass(frozen=True, slots=True)
class PulsarIdentity:
    """The facts that a cluster reports about itself.

    Attributes:
        name: which other clusters may have, too.
        url: of its service, as the cluster has it on record.
        brokers: id (``host:port``) -> where it is.
        write_quorum: bookies of an entry, unless a namespace says otherwise.
        lacks: settings that transactions need, with their present values.
    """

    name: str
    url: str
    version: str
    brokers: Mapping[str, Broker]
    write_quorum: int | None
    lacks: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster_id(self) -> str:
        """Pulsar knows no id of a cluster: its name, at the address that it has on record."""
        return f"{self.name}@{urlsplit(self.url).netloc}"


class PulsarQuestions:
    """Questions to a cluster; nothing is made there.

    Args:
        endpoints: where it is administrated; one that answers will do.
    """

    def __init__(self, endpoints: Sequence[Endpoint], security: Security) -> None:
        self._security = security
        self._rest = PulsarRest(_nodes(endpoints), lambda _node: True, None, security)
        self._shown = ", ".join(map(str, endpoints))

    def identity(self) -> PulsarIdentity:
        """Return the cluster's identity.

        Raises:
            EnvironmentNotReady: no broker answers, none accepts our login, or the role is not a
                superuser.
        """
        settings = self.settings()
        name = str(settings["clusterName"])
        about = self._ask(f"/clusters/{name}")
        urls = [about.get(key) for key in ("serviceUrl", "serviceUrlTls", "brokerServiceUrl")]
        quorum = _number(settings.get("managedLedgerDefaultWriteQuorum"))
        try:
            version = str(self._ask("/brokers/version")).strip()
        except NotThere:  # before 2.6
            version = ""
        brokers = dict(self._brokers(sorted(self._ask(f"/brokers/{name}")), settings))
        url = next((str(url) for url in urls if url), "")
        return PulsarIdentity(name, url, version, brokers, quorum, lacks_of(settings))

    def settings(self) -> Mapping[str, str]:
        """Return the brokers' settings. They contain secrets: keep only what is needed.

        Raises:
            EnvironmentNotReady: as `identity`.
        """
        found: Mapping[str, str] = self._ask(_SETTINGS)
        return found

    def bookies(self) -> list[str]:
        """Return the bookies that are registered.

        Raises:
            EnvironmentNotReady: as `identity`.
        """
        return [str(one["bookieId"]) for one in self._ask("/bookies/all")["bookies"]]

    def _brokers(
        self, ids: Sequence[str], first: Mapping[str, str]
    ) -> Iterator[tuple[str, Broker]]:
        """Each tells its own ports; one that does not answer now has the ports of the first."""
        web = _port(first, "webServicePort", self._security)
        places = {one: endpoint_of(one) for one in ids}
        if self._security.tls and _number(first.get("webServicePort")):  # ids have the plain port
            places = {one: Endpoint(at.host, web) for one, at in places.items()}
        rest = PulsarRest(_nodes(places.values()), lambda _node: True, None, self._security)
        try:
            for one, at in places.items():
                try:
                    settings = rest.get(_SETTINGS, only=str(at))
                except (EnvironmentNotReady, UsageError):
                    settings = first
                yield one, Broker(client_of(settings, at.host, self._security), at)
        finally:
            rest.close()

    def _ask(self, path: str) -> Any:
        try:
            return self._rest.get(path)
        except NotThere:
            raise
        except UsageError as error:
            raise EnvironmentNotReady(
                f"{self._shown}: {error}",
                hint="admin_auth of the connection file (else auth) must belong to a superuser: "
                "brokers show the owners of bundles only to superusers",
            ) from error
        except EnvironmentNotReady as error:
            tls = "TLS: " in str(error)
            hint = (
                "look at tls of the connection file, and at the brokers' certificates"
                if tls
                else _NOBODY
            )
            raise EnvironmentNotReady(str(error), hint=hint) from error


def lacks_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings that are other than transactions need them."""
    needed = SYSTEM.transactional_config.items()
    return {
        key: settings.get(key, "")
        for key, value in needed
        if settings.get(key, "").lower() != value
    }


_NOBODY: Final = "check that the brokers are up, and admin_url of the connection file"


def _nodes(places: Iterable[Endpoint]) -> list[Node]:
    return [
        Node(str(at), n, at, at, at, Path("/nonexistent"), ("broker",))
        for n, at in enumerate(places)
    ]


def endpoint_of(text: str) -> Endpoint:
    """Parse ``host:port``.

    Raises:
        ValueError: it is something else.
    """
    host, _, port = text.rpartition(":")
    return Endpoint(host, int(port))


def _number(text: object) -> int | None:
    """Parse a number, also ``Optional[8080]``; None for ``Optional.empty``."""
    found = re.search(r"\d+", str(text or ""))
    return int(found[0]) if found else None


def _port(settings: Mapping[str, str], key: str, security: Security) -> int:
    return _number(settings.get(f"{key}Tls" if security.tls else key)) or 0


def client_of(settings: Mapping[str, str], host: str, security: Security) -> Endpoint:
    """Where a broker tells clients to come: its listener of the brokers' own name, or the first."""
    scheme = "pulsar+ssl" if security.tls else "pulsar"
    own = str(settings.get("internalListenerName") or "")
    said = str(settings.get("advertisedListeners") or "").split(",")
    listeners = [one.strip().partition(":") for one in said]
    for _, _, url in sorted(listeners, key=lambda one: one[0] != own):
        if url.startswith(f"{scheme}://"):
            return endpoint_of(urlsplit(url).netloc)
    return Endpoint(host, _port(settings, "brokerServicePort", security))
