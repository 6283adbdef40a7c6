"""Options arrive as text under the client's own keyword names; the client wants Python values.

Each option goes to the call that has a keyword of its name: `Client`, `create_producer`,
`subscribe` or `create_reader`. What a keyword takes is read from its default, so that an old
version of the client decides for itself what it knows.
"""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import pulsar
from worker_kit.failure import WorkerFailure

#: Keywords that take objects, and that we set ourselves.
OBJECTS = frozenset(
    {
        "schema",
        "logger",
        "authentication",
        "crypto_key_reader",
        "properties",
        "message_router",
        "encryption_key",
    }
)
#: Keywords whose default None says nothing about their type.
NUMBERS = frozenset({"unacked_messages_timeout_ms", "initial_sequence_id"})
#: Keywords whose default None means a policy object; written ``name=value, name=value``.
POLICIES = {
    "batch_receive_policy": "ConsumerBatchReceivePolicy",
    "dead_letter_policy": "ConsumerDeadLetterPolicy",
    "key_shared_policy": "ConsumerKeySharedPolicy",
}
_TRUTH = {"true": True, "false": False}


#: Options of the worker itself: it makes the client's authentication of them.
TOKEN, OAUTH2 = "auth_token", "oauth2_"


def authentication(options: Mapping[str, str]) -> dict[str, Any]:
    """The keyword of `Client` for who we are; none where the cluster does not ask."""
    if token := options.get(TOKEN):
        return {"authentication": pulsar.AuthenticationToken(token)}
    if of_client := {n.removeprefix(OAUTH2): v for n, v in options.items() if n.startswith(OAUTH2)}:
        return {"authentication": pulsar.AuthenticationOauth2(json.dumps(of_client))}
    return {}


def split(options: Mapping[str, str], *calls: Callable[..., Any]) -> list[dict[str, Any]]:
    """The options of each call.

    Raises:
        WorkerFailure: none of the calls has such a keyword, or the value does not fit it.
    """
    keywords = [inspect.signature(call).parameters for call in calls]
    parts: list[dict[str, Any]] = [{} for _ in calls]
    for name, text in options.items():
        if name == TOKEN or name.startswith(OAUTH2):
            continue  # see `authentication`
        index = next((i for i, known in enumerate(keywords) if name in known), None)
        if index is None or name in OBJECTS:
            known = sorted({k for each in keywords for k in each} - OBJECTS - {"self"})
            raise WorkerFailure(
                f"pulsar-client {pulsar.__version__} has no option {name!r}",
                hint=f"options are its keyword names: {', '.join(known)}",
            )
        parts[index][name] = _value(name, text, keywords[index][name].default)
    return parts


def accepted(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Make a producer, consumer or reader.

    Raises:
        WorkerFailure: the client refuses the options before it asks a broker.
        pulsar.PulsarException: the brokers refuse.
    """
    try:
        return call(*arguments, **options)
    except (ValueError, TypeError) as error:
        raise WorkerFailure(f"pulsar-client refused its options: {error}") from error


def _value(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, bool):
            return _TRUTH[text.lower()]
        if isinstance(default, int) and not isinstance(default, enum.Enum) and type(default) is int:
            return int(text)
        if name in NUMBERS:
            return int(text)
        if name in POLICIES:
            return _policy(POLICIES[name], text)
        members = getattr(type(default), "__members__", None)
        if members:
            return _member(members, text)
    except (KeyError, ValueError, TypeError) as error:
        raise WorkerFailure(
            f"option {name}={text}: {error!s} does not fit it, default {default}"
        ) from error
    return text


def _member(members: Mapping[str, object], text: str) -> object:
    """An enumeration's member by its name, whoever wrote ``Key_Shared`` or ``KeyShared``."""
    plain = {key.lower().replace("_", ""): value for key, value in members.items()}
    wanted = text.rpartition(".")[2].lower().replace("_", "")
    if wanted not in plain:
        raise ValueError(f"must be one of {', '.join(members)}:")
    return plain[wanted]


def _policy(name: str, text: str) -> object:
    """``max_num_message=10, max_num_bytes=-1, timeout_ms=100``"""
    pairs = dict(part.strip().split("=", 1) for part in text.split(","))
    arguments = {key.strip(): int(value) if value.strip().lstrip("-").isdigit() else value.strip()
                 for key, value in pairs.items()}  # fmt: skip
    return getattr(pulsar, name)(**arguments)
