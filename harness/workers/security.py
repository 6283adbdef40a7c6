"""``[security]`` of a ``worker.toml``: what a cluster asks of clients, in the client's own words.

A template is text with places: ``"ssl.ca.location" = "{ca}"``. `PLACES` has them; ``{{`` and ``}}``
are braces. ``{secret:jaas}`` is the value as a quoted string of a JAAS configuration,
``{key:contents}`` the text of the file. An option with a place that the cluster does not ask for is
left out; with ``{scope?}`` it stays, and the place is empty.
"""

from __future__ import annotations

import fcntl
import json
import os
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from harness.connections.redaction import SecretRemover
from harness.connections.secret import Secret
from harness.connections.security import Auth, Security, Tls
from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import read_text
from harness.scenario.part import Part

#: How clients prove who they are, as a table of ``[security.auth]``: `Mechanism`, and of
#: oauthbearer the token itself or (``-client``) an OAuth2 client that asks ``token_url`` for one.
Proof = Literal[
    "plain",
    "scram-sha-256",
    "scram-sha-512",
    "oauthbearer",
    "oauthbearer-client",
    "token",
    "oauth2",
    "user",
]
#: Environment variable of a worker's process: the pipe.
VARIABLE: Final = "BROKERSTORM_SECURITY"
#: Place -> key of the connection file.
PLACES: Final[Mapping[str, str]] = {
    "ca": "tls.ca",
    "certificate": "tls.certificate",
    "key": "tls.key",
    "key_password": "tls.key_password",
    "user": "auth.user",
    "secret": "auth.password, token or client_secret",
    "token_url": "auth.token_url",
    "client_id": "auth.client_id",
    "scope": "auth.scope",
    "audience": "auth.audience",
    "protocol": "Kafka's security.protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
}
_HINT: Final = "docs/howto/add-a-worker.md, Security; `brokerstorm list workers` has other clients"


@dataclass(frozen=True, slots=True, repr=False)
class SecureOptions:
    """The data that a worker's process receives through a pipe, and not in a file, an argument or a
    variable.

    Attributes:
        options: of the client, laid over all others.
        secrets: texts among them that are secret.
    """

    options: Mapping[str, str]
    secrets: tuple[str, ...] = ()


NOTHING_SECURE: Final = SecureOptions({})


@contextmanager
def handed_over(handed: SecureOptions) -> Iterator[tuple[Mapping[str, str], Sequence[int]]]:
    """Environment and file descriptors for a process that is started inside: a pipe with them, as
    JSON."""
    if not handed.options:
        yield {}, ()
        return
    hidden = SecretRemover(handed.secrets).forms
    text = json.dumps({"options": handed.options, "hidden": hidden}).encode()
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            # Room for all of it: it is read only when the process runs.
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, max(len(text), 4096))
            pipe.write(text)
        yield {VARIABLE: f"/dev/fd/{reading}"}, (reading,)
    finally:
        os.close(reading)


class SecurityWords(Part):
    """``[security]``. Tables that apply are laid over each other, in this order.

    Attributes:
        always: whenever a cluster asks for something of the following.
        tls: with TLS; without, the worker has no TLS.
        any_host: with TLS, where certificates need not name their host.
        auth: by proof; the worker has no others.
    """

    always: dict[str, str] = Field(default_factory=dict)
    tls: dict[str, str] = Field(default_factory=dict)
    any_host: dict[str, str] = Field(default_factory=dict)
    auth: dict[Proof, dict[str, str]] = Field(default_factory=dict)

    @field_validator("always", "tls", "any_host", "auth")
    @classmethod
    def _has_known_places(cls, tables: dict[str, Any]) -> dict[str, Any]:
        for option, text in tables.items():
            for each in text.values() if isinstance(text, dict) else [text]:
                for place, how in _places(each):
                    if place.rstrip("?") not in PLACES:
                        raise ValueError(
                            f"{option}: no place {{{place}}}; places: {', '.join(PLACES)}"
                        )
                    if how not in _AS:
                        raise ValueError(
                            f"{option}: :{how} must be one of :{', :'.join(filter(None, _AS))}"
                        )
        return tables

    @property
    def option_names(self) -> set[str]:
        """Every option that it may set: no scenario does."""
        tables = [self.always, self.tls, self.any_host, *self.auth.values()]
        return {option for table in tables for option in table}

    def options(self, security: Security | None, library: str) -> SecureOptions:
        """The client's options for a cluster.

        Raises:
            UsageError: the worker has no words for what the cluster asks.
            EnvironmentNotReady: a file cannot be read.
        """
        if security is None or not (security.tls or security.auth):
            return NOTHING_SECURE
        found = {key: value for key, value in _values(security).items() if value}
        templates = self._tables(security, library)
        options, used = {}, {"protocol"}
        for option, template in templates.items():
            places = list(_places(template))
            if all(place in found for place, _ in places if not place.endswith("?")):
                options[option] = _FORMAT.vformat(template, (), _Filled(found))
                used.update(place.rstrip("?") for place, _ in places)
        if unused := found.keys() - used:
            key = PLACES[next(place for place in PLACES if place in unused)]
            raise _no_words(library, f"{key} of the connection file")
        return SecureOptions(options, _secrets(security))

    def _tables(self, security: Security, library: str) -> dict[str, str]:
        templates = dict(self.always)
        if security.tls:
            if not self.tls:
                raise _no_words(library, "TLS")
            templates |= self.tls
            if not security.tls.check_host_name:
                if not self.any_host:
                    raise _no_words(library, "tls.check_host_name: false")
                templates |= self.any_host
        if security.auth:
            proof = _proof(security.auth)
            if proof not in self.auth:
                shown = "oauthbearer with client_secret" if proof.endswith("-client") else proof
                has = ", ".join(self.auth) or "none"
                raise _no_words(library, f"auth.mechanism {shown} (it has {has})")
            templates |= self.auth[proof]
        return templates


def _no_words(library: str, what: str) -> UsageError:
    return UsageError(f"client {library}: its worker cannot do {what}", hint=_HINT)


def _proof(auth: Auth) -> Proof:
    if auth.mechanism == "oauthbearer" and auth.client_id:
        return "oauthbearer-client"
    return auth.mechanism


def _values(security: Security) -> dict[str, str]:
    """Place -> value, empty where the cluster does not ask for it."""
    tls, auth = security.tls or Tls(), security.auth
    texts: dict[str, Path | Secret | str | None] = {
        **{name: getattr(tls, name) for name in ("ca", "certificate", "key", "key_password")},
        **{name: getattr(auth, name, "") for name in ("user", "secret", *_OAUTH)},
        "protocol": ("SASL_" if auth else "") + ("SSL" if security.tls else "PLAINTEXT"),
    }
    return {name: _plain(value) for name, value in texts.items()}


_OAUTH: Final = ("token_url", "client_id", "scope", "audience")


def _plain(value: Path | Secret | str | None) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    return str(value) if value else ""


def _secrets(security: Security) -> tuple[str, ...]:
    tls, auth = security.tls or Tls(), security.auth
    texts = [_plain(tls.key_password), _plain(auth.secret if auth else None)]
    if tls.key:
        texts.append(_contents(str(tls.key)))
    return tuple(text for text in texts if text)


def _jaas(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _contents(path: str) -> str:
    try:
        return read_text(Path(path))
    except UsageError as error:
        raise EnvironmentNotReady(
            str(error), hint="tls of the connection file names PEM files"
        ) from None


_AS: Final[Mapping[str, Callable[[str], str]]] = {"": str, "jaas": _jaas, "contents": _contents}
_FORMAT: Final = string.Formatter()


def _places(template: str) -> Iterator[tuple[str, str]]:
    """Name and way of each place."""
    for _, place, how, _ in _FORMAT.parse(template):
        if place is not None:
            yield place, how or ""


class _Text(str):
    """A value that knows the ways of writing it."""

    __slots__ = ()

    def __format__(self, how: str) -> str:
        return _AS[how](str(self))


class _Filled(dict[str, _Text]):
    def __init__(self, found: Mapping[str, str]) -> None:
        super().__init__({place: _Text(text) for place, text in found.items()})

    def __missing__(self, place: str) -> _Text:
        return self.get(place.rstrip("?"), _Text())
