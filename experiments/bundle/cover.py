"""Reads bundle.json, what a bundle says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.errors import UsageError
from harness.rundir import RunDir, read_json

SCHEMA_VERSION: Final = 1


def read_cover(root: RunDir) -> Mapping[str, Any]:
    """bundle.json of an opened bundle.

    Raises:
        UsageError: none, or of another version.
    """
    document = read_json(root.bundle)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise UsageError(f"{root.bundle}: schema_version is {version!r}, this version reads {SCHEMA_VERSION}")
    return dict(document)
