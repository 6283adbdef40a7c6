"""The connection file: a cluster that somebody else started, as its owner describes it (`--cluster
FILE`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from harness.connections.drivers import ConnectionPart, DriversPart
from harness.connections.secret import Secret, SecretSource
from harness.connections.security import Auth, Mechanism, Security, Tls
from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import path_below, read_bytes, resolved
from harness.systems import SYSTEMS
from harness.validation import Location, dotted, problems_of
from harness.yaml_lines import SCHEMA_KEY, parse, read

#: The authorities that a system trusts have 0.3 MB.
_MOST_CERTIFICATE_BYTES: Final = 16 << 20

if TYPE_CHECKING:
    from typing import TypeAlias

    SystemName: TypeAlias = str
else:
    SystemName = Literal[tuple(SYSTEMS)]


class TlsPart(ConnectionPart):
    """TLS; an empty mapping: TLS, checked against the system's own authorities."""

    ca: str = Field("", description="PEM file of the trusted authorities. Default: the system's.")
    certificate: str = Field(
        "", description="PEM file of the client's own certificate (mutual TLS)."
    )
    key: str = Field("", description="PEM file of its private key, PKCS#8.")
    key_password: SecretSource | None = Field(None, description="What the key is encrypted with.")
    check_host_name: bool = Field(
        True, description="Whether a broker's certificate must name its host."
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key come together")
        return self


class AuthPart(ConnectionPart):
    """The identity of the clients."""

    mechanism: Mechanism = Field(description="How they prove it.")
    user: str = Field("", description="The user's name (plain, scram-*, user).")
    password: SecretSource | None = Field(None, description="The user's password.")
    token: SecretSource | None = Field(
        None, description="A token as it is sent (token, oauthbearer)."
    )
    token_url: str = Field("", description="Where tokens are had (oauthbearer, oauth2).")
    client_id: str = Field("", description="The OAuth2 client.")
    client_secret: SecretSource | None = Field(None, description="Its secret.")
    scope: str = Field("", description="The scope that is asked for.")
    audience: str = Field("", description="The audience that is asked for.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = [
            name
            for name in ("password", "token", "client_secret")
            if getattr(self, name) is not None
        ]
        wanted = {
            "token": ("token",),
            "oauth2": ("client_secret",),
            "oauthbearer": ("token", "client_secret"),
        }.get(self.mechanism, ("password",))
        if len(given) != 1 or given[0] not in wanted:
            raise ValueError(f"{self.mechanism} needs {' or '.join(wanted)}, and no other secret")
        if "password" in given and not self.user:
            raise ValueError(f"{self.mechanism} needs user")
        if "client_secret" in given and not (self.token_url and self.client_id):
            raise ValueError(f"{self.mechanism} with client_secret needs token_url and client_id")
        return self


class TopicsPart(ConnectionPart):
    """The objects that a run may create on the cluster."""

    prefix: str = Field(
        "brokerstorm", description="How the names of its topics begin; the run's tag follows."
    )
    replication: int | None = Field(
        None,
        ge=1,
        description="Copies of a message. Default: the scenario's; of Pulsar the brokers'.",
    )


class NodePart(ConnectionPart):
    """One broker, as faults and the report name it."""

    address: str = Field(
        description="host:port at which clients reach it, as the broker advertises it."
    )


class ConnectionFile(ConnectionPart):
    """A cluster that brokerstorm did not start."""

    system: SystemName = Field(description="Whose brokers they are.")
    yours: bool = Field(
        False,
        description="true: this cluster is yours to load and to hurt. Nothing is sent to it before.",
    )
    cluster_id: str = Field(
        "", description="Id of the cluster, which is compared before anything is sent."
    )
    bootstrap: str = Field(
        description="What clients connect to: host:port,... or the service URL (Pulsar)."
    )
    admin_url: str = Field("", description="Base URL of its administration (Pulsar, Qpid).")
    tls: TlsPart | None = Field(None, description="TLS. Default: plain text.")
    auth: AuthPart | None = Field(None, description="Authentication of the clients. Default: none.")
    admin_auth: AuthPart | None = Field(
        None,
        description="Who administrates, which may need more rights than clients. Default: as auth.",
    )
    cookie: SecretSource | None = Field(
        None, description="The secret that the nodes share (RabbitMQ: the cookie of Erlang)."
    )
    topics: TopicsPart = Field(
        default_factory=lambda: TopicsPart(prefix="brokerstorm"), description="Its topics."
    )
    nodes: dict[str, NodePart] = Field(
        default_factory=dict,
        description="Names of its brokers. Default: as the cluster names them.",
    )
    drivers: DriversPart = Field(
        default_factory=DriversPart,
        description="What kills, stops and pauses its nodes, for faults. Default: nothing does.",
    )

    @model_validator(mode="after")
    def _drivers_know_names(self) -> Self:
        if self.drivers.model_fields_set and not self.nodes:
            raise ValueError(
                "drivers need nodes: give the brokers the names that the drivers know them by"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        mechanisms = SYSTEMS[self.system].mechanisms
        if self.cookie and not SYSTEMS[self.system].has_cookie:
            raise ValueError(f"cookie: nodes of {self.system} have none; leave it out")
        for key, auth in (("auth", self.auth), ("admin_auth", self.admin_auth)):
            if auth and auth.mechanism not in mechanisms:
                allowed = ", ".join(mechanisms)
                raise ValueError(
                    f"{key}.mechanism {auth.mechanism} is not {self.system}'s; allowed: {allowed}"
                )
        return self


def _hidden(data: Any) -> Any:
    """The same keys with no value."""
    if isinstance(data, dict):
        return {key: _hidden(value) for key, value in data.items()}
    return Secret("")


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection file that was read, and its secrets.

    Attributes:
        security: of clients.
        administrator: of who administrates; None = as clients.
        cookie: the secret that the nodes share; None = the file names none.
    """

    path: Path
    file: ConnectionFile
    security: Security
    administrator: Security | None = None
    cookie: Secret | None = None

    @property
    def admin(self) -> Security:
        """Return the security of the user who administrates."""
        return self.administrator or self.security

    @property
    def is_guarded(self) -> bool:
        """Return whether the cluster asks clients for anything."""
        return bool(self.security.tls or self.security.auth)

    def named(self) -> dict[str, Any]:
        """How clients get in, for another machine: names of variables and files, never what they
        hold."""
        kept_here = {"admin_auth", "cookie", "drivers", "nodes"}
        file = self.file.model_dump(mode="json", exclude=kept_here)
        return {"file": file, "folder": str(resolved(self.path.parent))}


def security_here(named: Mapping[str, Any]) -> Security:
    """Return the security of clients that `Connection.named` described on another machine, with
    this machine's variables and files at the same paths.

    Raises:
        EnvironmentNotReady: a secret is not there, or a file cannot be read.
    """
    file, folder = ConnectionFile.model_validate(named["file"]), Path(named["folder"])
    tls = _tls(file, folder)
    _require_certificates(tls, all_there=True)
    return Security(tls, _auth("auth", folder, file.auth))


def read_connection(path: Path) -> Connection:
    """Read a connection file, and the secrets that it names.

    Raises:
        UsageError: no such file, no YAML, or a key that does not fit.
        EnvironmentNotReady: a secret that is not there.
    """
    if not path.exists():
        raise UsageError(
            f"there is no connection file {path}",
            hint=f"`brokerstorm new {shlex.quote(str(path))} --cluster` writes one",
        )
    data, places = parse(path, read(path), what="a connection", has_secrets=True)
    data.pop(SCHEMA_KEY, None)
    file, problems = _checked(data)
    if file is None:
        raise UsageError.of_lines(_line(places, *each) for each in problems)
    tls = _tls(file, path.parent)
    _require_certificates(tls, all_there=False)
    clients, admin = (_auth(key, path.parent, getattr(file, key)) for key in ("auth", "admin_auth"))
    cookie = file.cookie.read("cookie", path.parent) if file.cookie else None
    administrator = Security(tls, admin) if admin else None
    return Connection(path, file, Security(tls, clients), administrator, cookie)


def _require_certificates(tls: Tls | None, *, all_there: bool) -> None:
    """Clients in C and Java would wait for a pipe without hearing a signal, so the files are looked
    at here.

    Args:
        all_there: whether a file that is missing is an error; else the client reports it.

    Raises:
        EnvironmentNotReady: a file cannot be read.
    """
    for key in ("ca", "certificate", "key"):
        path: Path | None = getattr(tls, key, None)
        try:
            if path and (all_there or path.exists()):
                read_bytes(path, _MOST_CERTIFICATE_BYTES)
        except UsageError as error:
            raise EnvironmentNotReady(f"tls.{key}: {error}") from None


def _line(places: Mapping[Location, str], location: Location, problem: str) -> str:
    written = next(location[:n] for n in range(len(location), -1, -1) if location[:n] in places)
    return f"{places[written]}: {dotted(location, 'the file')}: {problem}"


def _checked(data: Any) -> tuple[ConnectionFile | None, list[tuple[Location, str]]]:
    """The file, or the key path and a sentence for each problem of it. No value is repeated, nor
    kept in an exception's context: somebody may have written a password where it does not
    belong."""
    try:
        return ConnectionFile.model_validate(data), []
    except ValidationError as error:
        return None, problems_of(ConnectionFile, error, _hidden(data))


def _tls(file: ConnectionFile, folder: Path) -> Tls | None:
    def place(text: str) -> Path | None:
        return resolved(path_below(folder, text)) if text else None

    part = file.tls
    if part is None:
        return None
    password = part.key_password.read("tls.key_password", folder) if part.key_password else None
    return Tls(
        place(part.ca), place(part.certificate), place(part.key), password, part.check_host_name
    )


def _auth(name: str, folder: Path, auth: AuthPart | None) -> Auth | None:
    if auth is None:
        return None
    ((key, source),) = (
        (f"{name}.{secret}", getattr(auth, secret))
        for secret in ("password", "token", "client_secret")
        if getattr(auth, secret) is not None
    )
    secret = source.read(key, folder)
    return Auth(
        auth.mechanism, secret, auth.user, auth.token_url, auth.client_id, auth.scope, auth.audience
    )
