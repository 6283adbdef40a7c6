"""Where the secrets of a cluster of ours lie, and how they are made and written: for our user
alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from harness.clusters.layout.addresses import state_folder
from harness.connections.secret import Secret
from harness.run_ids import checked_run_id

_RANDOM_BYTES: Final = 24


def folder_of(run_id: str) -> Path:
    """Where the secrets of a run's cluster are.

    Raises:
        UsageError: not a run id.
    """
    return state_folder().parent / "security" / checked_run_id(run_id)


def fresh_secret() -> Secret:
    """A new random password, safe in URLs."""
    return Secret(secrets.token_urlsafe(_RANDOM_BYTES))


def write_secret_file(path: Path, content: bytes) -> None:
    """Write a file that only our user can read, from its first byte on.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
