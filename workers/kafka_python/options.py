"""Options arrive as text; kafka-python wants Python values and objects."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

TOKEN = "sasl_oauth_token_provider"
_WORDS = {"true": True, "false": False, "none": None, "null": None, "inf": float("inf")}
#: Options of text whose default is None, so that the default does not tell.
_TEXT = (
    "client_id",
    "group_",
    "transactional_id",
    "sasl_",
    "ssl_ca",
    "ssl_cert",
    "ssl_key",
    "ssl_pass",
)


def typed(options: Mapping[str, str], defaults: Mapping[str, object]) -> dict[str, object]:
    """Text -> the value kafka-python expects.

    An option whose default is text stays text, and so do names and credentials; everything else is
    a number, a truth value, or text when it is neither. Unknown names pass: the client itself
    refuses them.
    """
    found = {name: _value(name, text, defaults.get(name)) for name, text in options.items()}
    if token := options.get(TOKEN):
        found[TOKEN] = _token_provider(token)
    return found


def _token_provider(token: str) -> object:
    """Gives the same token whenever the client asks."""
    base: type = object
    for module in ("kafka.net.sasl.oauth", "kafka.sasl.oauth"):  # since 3.0, and before
        try:
            base = import_module(module).AbstractTokenProvider
            break
        except ImportError:
            continue
    return type("Token", (base,), {"token": lambda _self: token})()


def _value(name: str, text: str, default: object) -> object:
    if isinstance(default, str) or name.startswith(_TEXT):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
