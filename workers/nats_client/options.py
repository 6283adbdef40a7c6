"""Options arrive as text; nats-py wants Python values, and objects of some."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from nats.aio.client import Client
from nats.js.api import ConsumerConfig
from worker_kit.failure import WorkerFailure

_HINT = "options are those of nats.connect, of ConsumerConfig, and the worker's own: see its worker.toml"
_SECURE = ("tls", "ca", "certificate", "key", "key_password", "any_host")
_WORDS = {"true": True, "false": False, "none": None}
_CONSUMER = ("ack_wait", "max_deliver", "max_ack_pending", "max_waiting", "backoff")


@dataclass(frozen=True, slots=True)
class Own:
    """Options of the worker itself, with their defaults.

    Attributes:
        timeout: of a publish, seconds; None = it has none (`publish_async`).
        msg_id: messages have an id by which the servers tell what is sent twice.
        max_pending: `publish_async_max_pending` of the client; 0 = its default.
        kind: durable, pulled by the members of a group, or ordered, of this client alone.
        confirm: acknowledge and wait for the answer (`ack_sync`).
        fetch, fetch_timeout: messages of a pull, and how long it waits for them, seconds.
    """

    timeout: float | None = 5.0
    msg_id: bool = False
    max_pending: int = 0
    kind: str = "durable"
    confirm: bool = False
    fetch: int = 100
    fetch_timeout: float = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the scenario, for the worker, for the connection and for a durable
    consumer."""

    own: Own
    connection: dict[str, Any]
    consumer: dict[str, Any]


def read(options: Mapping[str, str]) -> Options:
    """Raises:
    WorkerFailure: an unknown option, or an invalid value.
    """
    own = {each.name for each in fields(Own)}
    known = set(inspect.signature(Client.connect).parameters) - {"self", "tls"}
    unknown = [name for name in options if name not in {*own, *known, *_SECURE, *_CONSUMER}]
    if unknown:
        near = ", ".join(sorted(name for name in {*own, *known} if name[:4] == unknown[0][:4]))
        raise WorkerFailure(
            f"nats-py has no option {unknown[0]!r}{f'; near it: {near}' if near else ''}",
            hint=_HINT,
        )
    typed = {name: _value(name, text) for name, text in options.items() if name not in _SECURE}
    chosen = Own(**{name: value for name, value in typed.items() if name in own})
    if chosen.kind not in ("durable", "ordered"):
        raise WorkerFailure(f"kind {chosen.kind!r}: must be durable or ordered", hint=_HINT)
    connection = {name: value for name, value in typed.items() if name in known}
    if options.get("tls") == "true":
        connection["tls"] = _context(options)
    return Options(
        chosen, connection, {name: value for name, value in typed.items() if name in _CONSUMER}
    )


def consumer_config(chosen: Mapping[str, Any], durable: str) -> ConsumerConfig:
    return ConsumerConfig(durable_name=durable, ack_policy="explicit", **chosen)


def _value(name: str, text: str) -> Any:
    if name in ("user", "password", "kind"):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise WorkerFailure(
            f"nats-py: option {name}: {text!r} is not a number", hint=_HINT
        ) from None


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ca"))
    context.check_hostname = options.get("any_host") != "true"
    if options.get("certificate"):
        context.load_cert_chain(
            options["certificate"], options.get("key"), options.get("key_password")
        )
    return context
