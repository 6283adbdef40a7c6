"""Options arrive as text; aiokafka wants Python values, of the types that its defaults have, and
objects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from aiokafka.abc import AbstractTokenProvider
from aiokafka.helpers import create_ssl_context

TOKEN = "sasl_oauth_token_provider"
#: Options of the worker itself: it makes an SSL context of them.
_SECURE = {"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname"}
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def typed(options: Mapping[str, str], client: type) -> dict[str, object]:
    """Text -> the value that the constructor expects.

    An option whose default is text stays text. Unknown names pass: the client itself refuses them.
    """
    defaults = {name: each.default for name, each in inspect.signature(client).parameters.items()}
    found = {
        name: _value(text, defaults.get(name))
        for name, text in options.items()
        if name not in _SECURE
    }
    found |= {name: text for name, text in options.items() if name.startswith("sasl_plain_")}
    if options.get("security_protocol", "").endswith("SSL"):
        found["ssl_context"] = _ssl_context(options)
    if token := options.get(TOKEN):
        found[TOKEN] = _Token(token)
    return found


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # mypy has no client installed
    """Gives the same token whenever the client asks."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _ssl_context(options: Mapping[str, str]) -> object:
    context = create_ssl_context(
        cafile=options.get("ssl_cafile"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        password=options.get("ssl_password"),
    )
    context.check_hostname = options.get("ssl_check_hostname") != "false"
    return context


def _value(text: str, default: object) -> object:
    if isinstance(default, str):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return int(text)
    except ValueError:
        return text  # acks=all, a name, a credential
