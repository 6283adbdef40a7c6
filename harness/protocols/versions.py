"""The ability to start nodes from another version of the brokers, and to use what that version can
do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, runtime_checkable

_OTHER: Final = "brokers-"


def need_of(version: str) -> str:
    """Return the need that a cluster must be started with, so that its nodes can change to that
    version later.
    """
    return f"{_OTHER}{version}"


def versions_of(needs: Iterable[str]) -> dict[str, str]:
    """Need -> version, of those needs that ask for one."""
    return {need: need.removeprefix(_OTHER) for need in sorted(needs) if need.startswith(_OTHER)}


@runtime_checkable
class HasVersions(Protocol):
    """Can start its nodes from another version of the brokers."""

    def version(self, node: str) -> str:
        """Return the version that a node runs, as its process shows it; if the node is down, the
        version that it would be started from.
        """

    def set_version(self, node: str, version: str) -> None:
        """Set the version from which a node that is down is started the next time, with its
        settings.

        Raises:
            EnvironmentNotReady: the cluster was not started for that version.
        """

    def is_changed(self) -> bool:
        """Whether a node has, or will have, another version than it began with."""

    def log_tail(self, node: str) -> str:
        """Why a node that is down went down, as text for a report."""


@runtime_checkable
class FinalizesFeatures(Protocol):
    """Can let the cluster use what only its new version can do (Kafka: KIP-584)."""

    def finalize_features(self) -> Mapping[str, tuple[int, int]]:
        """Raise the features to what the brokers support.

        Returns:
            Feature -> level before and after, of those that were raised.

        Raises:
            EnvironmentNotReady: refused, in the brokers' words, or no broker answers.
        """
