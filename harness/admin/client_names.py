"""The names under which our workers connect, as brokers show them."""

from __future__ import annotations

import re
from typing import Final

#: What clients of ours append to their names: the run's tag.
TAGGED: Final = re.compile(r"(.*)-([0-9a-f]{8})")


def without_tag(name: str) -> str:
    """Return the worker's name; a name without a tag is returned as it is."""
    tagged = TAGGED.fullmatch(name)
    return tagged[1] if tagged else name
