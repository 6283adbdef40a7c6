"""The ledger of what admins make on a cluster of others; kept in clusters/external/made.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class MadeLedger(Protocol):
    """What was made, on disk before it is made.

    Attributes:
        run_id: of the run that makes it.
    """

    run_id: str

    @property
    def names(self) -> Mapping[str, list[str]]:
        """Kind -> names, by the brokers' words."""

    def add(self, kind: str, names: Iterable[str]) -> None:
        """Written and synced on return."""

    def remove(self, kind: str, names: Iterable[str]) -> None:
        """Strike out names of a kind that exist no longer."""
