"""Policies of a namespace as settings of text: read, and written whole, as the admin REST takes
them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.systems.pulsar import POLICIES

#: Asks for a policy by its name; None = it was not set.
Get = Callable[[str], Any]


def read_settings(get: Get, keys: Iterable[str]) -> dict[str, str | None]:
    """Settings as a namespace has them, None = it was not set."""
    wanted = [key.partition(".") for key in keys]
    found = {policy: get(policy) for policy in dict.fromkeys(policy for policy, _, _ in wanted)}
    return {f"{policy}{dot}{field}": _text(found[policy], field) for policy, dot, field in wanted}


def as_policies(get: Get, to: Mapping[str, str | None]) -> dict[str, Any]:
    """Policy -> what to write, None = take it away. Of several values, those not named stay as they
    are."""
    made: dict[str, Any] = {}
    for key, text in to.items():
        policy, _, field = key.partition(".")
        value = None if text is None else json.loads(text)
        if field and value is not None:
            value = {**(made.get(policy) or get(policy) or POLICIES[policy]), field: value}
        made[policy] = value
    return made


def _text(found: Any, field: str) -> str | None:
    value = found.get(field) if field and found is not None else found
    return None if value is None else json.dumps(value)
