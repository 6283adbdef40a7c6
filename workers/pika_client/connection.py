"""A connection and a channel of pika, and how an application comes to new ones when they are
gone."""

from __future__ import annotations

import difflib
import inspect
import math
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import pika
from pika.exceptions import AMQPError
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session

USER = "guest"
#: Between two tries to connect.
PAUSE_S = 0.25
FAILURES = (AMQPError, OSError)
#: Options of the application itself, by role, with what they are by default.
_OWN: Mapping[str, Mapping[str, int]] = {
    "producer": {"transacted": 0, "confirms": 0, "mandatory": 0, "delivery_mode": 2},
    "consumer": {"prefetch_count": 0},
}
_MOST = 0xFFFF
#: Of what the cluster asks; see worker.toml.
_SECURE = {"tls", "ca", "certificate", "key", "key_password", "any_host", "user", "password"}
#: The harness says where the brokers are and who the client is.
_OURS = {
    "host",
    "port",
    "virtual_host",
    "credentials",
    "client_properties",
    "ssl_options",
    "self",
    "kwargs",
}


class Options:
    """The scenario's options: keywords of `pika.ConnectionParameters`, and the application's own
    numbers.

    Raises:
        WorkerFailure: an unknown option, or a value that is not a number where one is needed.
    """

    def __init__(self, given: Mapping[str, str], role: str) -> None:
        self.own = dict(_OWN[role])
        self.secure = {name: text for name, text in given.items() if name in _SECURE}
        self.of_connection: dict[str, Any] = {}
        known = set(inspect.signature(pika.ConnectionParameters.__init__).parameters) - _OURS
        for name, text in given.items():
            if name in _SECURE:
                continue
            if name in self.own:
                self.own[name] = _own(name, text)
            elif name in known:
                self.of_connection[name] = _value(name, text)
            else:
                near = difflib.get_close_matches(name, [*known, *self.own], n=1)
                guess = f"; did you mean {near[0]}?" if near else ""
                raise WorkerFailure(f"pika {pika.__version__} has no option {name}{guess}")


def _value(name: str, text: str) -> Any:
    if name == "locale":
        return text
    number = _number(name, text)
    return int(number) if number == int(number) else number


def _own(name: str, text: str) -> int:
    """A number of the application itself: a short of the protocol at most."""
    number = _number(name, text)
    if not 0 <= number <= _MOST or number != int(number):
        raise WorkerFailure(f"pika: {name}={text} must be a whole number from 0 to {_MOST}")
    return int(number)


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise WorkerFailure(f"pika: {name}={text} must be a number")
    return number


class AmqpConnection:
    """One connection at a time, to whichever broker serves; one channel on it."""

    def __init__(self, session: Session, options: Options) -> None:
        self._session = session
        brokers, _, rest = session.spec.bootstrap.partition("/")
        virtual_host = rest.partition("?")[0]
        self._parameters = [
            _parameters(at, virtual_host, session, options) for at in brokers.split(",")
        ]
        # Clients of a cluster spread over its nodes; each tries the others when its own is gone.
        part = session.spec.part
        first = part.get("instance", part.get("session", 0)) % len(self._parameters)
        self._parameters = [*self._parameters[first:], *self._parameters[:first]]
        self._connection: pika.BlockingConnection | None = None
        self._channel: Any = None
        self._not_before = 0.0
        self._why: Exception = ConnectionError("not connected yet")
        self.reconnects = 0

    @property
    def is_open(self) -> bool:
        return self._channel is not None

    def channel(self, prepare: Callable[[Any], None]) -> Any:
        """The channel; a new one is made ready by ``prepare``. At most one try to connect a quarter
        second.

        Raises:
            AMQPError, OSError: there is none now.
        """
        if self._channel is not None:
            return self._channel
        if time.monotonic() < self._not_before:
            raise self._why
        try:
            if self._connection is None or not self._connection.is_open:
                again = self._connection is not None
                self._connection = pika.BlockingConnection(self._parameters)
                if again:
                    self.reconnects += 1
                    self._session.report.event("connect", "connected again")
            channel = self._connection.channel()
            prepare(channel)
        except FAILURES as error:
            self._why, self._not_before = error, time.monotonic() + PAUSE_S
            raise
        self._channel = channel
        return channel

    def serve(self, seconds: float) -> None:
        """Let the client read from its socket, heartbeats included.

        Raises:
            AMQPError, OSError: the connection is gone.
        """
        if self._connection is not None and self._connection.is_open:
            self._connection.process_data_events(seconds or 0)
        elif seconds:
            time.sleep(seconds)

    def drop_channel(self) -> None:
        """Close the channel: what it holds goes back to the queue."""
        channel, self._channel = self._channel, None
        channel.close()

    def broken(self, error: Exception) -> None:
        """The channel is of no use any more, and perhaps the connection."""
        self._session.report.error(type(error).__name__, describe(error))
        self._session.report.event("disconnect", describe(error))
        self._channel = None
        self._why = error
        if self._connection is not None and self._connection.is_open:
            try:
                self._connection.close()
            except FAILURES:
                return

    def close(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.close()


def describe(error: Exception) -> str:
    """``ConnectionClosedByBroker: 320 Connection closed by external action``."""
    return (
        f"{type(error).__name__}: {' '.join(str(part) for part in error.args) or 'no reason given'}"
    )


def _ssl_options(host: str, secure: Mapping[str, str]) -> dict[str, Any]:
    if not secure.get("tls"):
        return {}
    try:
        context = ssl.create_default_context(cafile=secure.get("ca"))
        if certificate := secure.get("certificate"):
            context.load_cert_chain(certificate, secure["key"], secure.get("key_password"))
    except OSError as error:  # SSLError is one
        raise WorkerFailure(
            f"pika: TLS: {error}", hint="check tls of the connection file"
        ) from error
    context.check_hostname = not secure.get("any_host")
    return {"ssl_options": pika.SSLOptions(context, host)}


def _parameters(
    at: str, virtual_host: str, session: Session, options: Options
) -> pika.ConnectionParameters:
    host, _, port = at.rpartition(":")
    secure = options.secure
    return pika.ConnectionParameters(
        host=host,
        port=int(port),
        virtual_host=virtual_host,
        credentials=pika.PlainCredentials(secure.get("user", USER), secure.get("password", USER)),
        client_properties={
            "instance": f"{session.spec.name}-{session.spec.run_tag:08x}",
            "qpid.client_pid": str(os.getpid()),
        },
        **{"socket_timeout": 2, "stack_timeout": 5, **options.of_connection},
        **_ssl_options(host, secure),
    )
