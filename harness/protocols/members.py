"""Abilities to let a broker join the cluster, and leave it for good (see `harness.protocols.cluster`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from harness.protocols.cluster import HasReassignments

#: What a cluster must be started with: a broker that has not joined yet, or a fourth one that has.
SPARE_BROKER: Final = "spare-broker"
FOURTH_BROKER: Final = "fourth-broker"


@runtime_checkable
class HasMembers(Protocol):
    """Can start a broker that was not in the cluster, and stop one for good.

    Needs ``spare-broker`` or ``fourth-broker`` of the cluster's start.
    """

    def outside(self) -> Sequence[str]:
        """Brokers that have not joined, or have left."""

    def may_leave(self) -> Sequence[str]:
        """Brokers of the cluster that are nothing else: no controllers."""

    def join(self, node: str) -> None:
        """Start a broker with an empty disk; returns when its process runs. No-op for one that has joined.

        Raises:
            EnvironmentNotReady: it does not start.
        """

    def leave(self, node: str) -> None:
        """Stop a broker in good order and drop its data. No-op for one that is outside."""


@runtime_checkable
class UnregistersBrokers(HasReassignments, Protocol):
    """Can forget a broker that is gone for good (Kafka)."""

    def topics(self) -> Sequence[str]:
        """Names of all topics, internal ones included."""

    def unregister(self, node: str) -> None:
        """No-op for one that is not known.

        Raises:
            EnvironmentNotReady: refused, in the brokers' words, or nobody answers.
        """
