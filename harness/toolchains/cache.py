"""The folder of everything that may be deleted and fetched or built again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from harness.rundir import path_below


def cache_folder() -> Path:
    """Where it is; BROKERSTORM_CACHE overrides."""
    override = os.environ.get("BROKERSTORM_CACHE")
    return path_below(Path(), override) if override else platformdirs.user_cache_path("brokerstorm")
