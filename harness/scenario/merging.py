"""The values of an override laid over the data of a file."""

from __future__ import annotations

import copy
from typing import Any


def deep_merge(base: Any, override: Any) -> Any:
    """JSON merge patch (RFC 7396); a fresh copy."""
    if not isinstance(override, dict):
        return copy.deepcopy(override)
    merged = copy.deepcopy(base) if isinstance(base, dict) else {}
    for key, value in override.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = deep_merge(merged.get(key), value)
    return merged
