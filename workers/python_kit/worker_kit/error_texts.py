"""Texts of a client's errors, as ids refer to them: alike for every message, and without
secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "(secret)"
_VARYING = re.compile(r"TopicPartition\([^)]*\)|0x[0-9a-f]+|\d+")
_LONGEST = 200
_secrets: list[str] = []


def hide(secrets: Iterable[str]) -> None:
    """Hide texts from everything that this process writes down, from now on; the longest first."""
    _secrets[:] = secrets


def without_secrets(text: str) -> str:
    """A text that may be written down: clients print their settings in errors."""
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    return text


def error_text(error: BaseException) -> str:
    """Class and first line, without what differs from message to message."""
    name = type(error).__name__
    # Secrets first: of one with digits in it the next step would leave a part.
    text = without_secrets(str(error)).partition("\n")[0].removeprefix(f"{name}: ")
    return f"{name}: {_VARYING.sub('*', text)[:_LONGEST]}"
