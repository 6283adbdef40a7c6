"""Security of connections in neutral words: whom clients trust, and how they prove who they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.connections.secret import Secret

#: Kafka, as SASL: plain, scram-*, oauthbearer. Pulsar: token, oauth2. Qpid: user (SASL over AMQP).
Mechanism = Literal[
    "plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "token", "oauth2", "user"
]


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. ``certificate`` and ``key`` (PKCS#8) are the client's own: mutual TLS."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: Secret | None = None
    check_host_name: bool = True


@dataclass(frozen=True, slots=True)
class Auth:
    """``secret``: the password, the token, or the OAuth2 client's secret, by mechanism."""

    mechanism: Mechanism
    secret: Secret
    user: str = ""
    token_url: str = ""
    client_id: str = ""
    scope: str = ""
    audience: str = ""


@dataclass(frozen=True, slots=True)
class Security:
    """The security of one cluster. If both are None, it is plain text and open to everybody."""

    tls: Tls | None = None
    auth: Auth | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Both ways into a cluster: the clients', and the harness's to the admin endpoints."""

    clients: Security = Security()
    admin: Security = Security()


#: Plain text without authentication.
ANYBODY = Access()
