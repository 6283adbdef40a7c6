"""Options arrive as text; aiokafka wants Python values, of the types that its defaults have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def typed(options: Mapping[str, str], client: type) -> dict[str, object]:
    """Text -> the value that the constructor expects.

    An option whose default is text stays text. Unknown names pass: the client itself refuses them.
    """
    defaults = {name: each.default for name, each in inspect.signature(client).parameters.items()}
    return {name: _value(text, defaults.get(name)) for name, text in options.items()}


def _value(text: str, default: object) -> object:
    if isinstance(default, str):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return int(text)
    except ValueError:
        return text  # acks=all, a name, a credential
