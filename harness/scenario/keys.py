"""The text of message keys as people write it: ``customer-{number}``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from harness.scenario.payload import check_places

_PLACES: Final = ("number", "key")


def _checked(text: str) -> str:
    if not text:
        return text
    check_places(text, _PLACES, padded=())
    if "\0" in text:
        raise ValueError("has a NUL character")
    if not any(f"{{{place}}}" in text for place in _PLACES):
        raise ValueError("has no {number} and no {key}, so all keys would be the same")
    return text


#: The text of every key of a producer, with a place that differs by key; empty = ``k000017``.
KeyText = Annotated[str, Field(max_length=200), AfterValidator(_checked)]
