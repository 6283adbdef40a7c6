"""Abilities to let a broker join the cluster, and leave it for good (see
`harness.protocols.cluster`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from harness.protocols.cluster import HasReassignments

#: What a cluster must be started with: a broker that has not joined yet, or a fourth one that has.
SPARE_BROKER: Final = "spare-broker"
FOURTH_BROKER: Final = "fourth-broker"
#: A quorum of controllers that can change (KIP-853); and a controller that is nothing else and not
#: in it.
DYNAMIC_QUORUM: Final = "dynamic-quorum"
SPARE_CONTROLLER: Final = "spare-controller"


@runtime_checkable
class HasMembers(Protocol):
    """Can start a node that was not in the cluster, and stop one for good.

    Needs ``spare-broker``, ``fourth-broker`` or ``spare-controller`` of the cluster's start.
    """

    def outside(self, role: str = "broker") -> Sequence[str]:
        """Nodes of a role that have not joined, or have left."""

    def may_leave(self) -> Sequence[str]:
        """Brokers of the cluster that are nothing else: no controllers."""

    def join(self, node: str) -> None:
        """Start a node with an empty disk; returns when its process runs. No-op for one that has
        joined.

        Raises:
            EnvironmentNotReady: it does not start.
        """

    def leave(self, node: str) -> None:
        """Stop a node in good order and drop its data. No-op for one that is outside."""


@runtime_checkable
class UnregistersBrokers(HasReassignments, Protocol):
    """Can forget a broker that is gone for good (Kafka)."""

    def topics(self) -> Sequence[str]:
        """Names of all topics, internal ones included."""

    def unregister(self, node: str) -> None:
        """No-op for one that is not known.

        Raises:
            EnvironmentNotReady: refused, in the brokers' words, or no broker answers.
        """


@dataclass(frozen=True, slots=True)
class Quorum:
    """The controllers, as their leader describes them.

    Attributes:
        leader: the active controller; None while there is none.
        epoch: how often one was elected.
        voters: controller -> records that it lags the leader.
        observers: the same of the others that follow: brokers, and controllers without a vote.
    """

    leader: str | None
    epoch: int
    voters: Mapping[str, int]
    observers: Mapping[str, int]


@runtime_checkable
class ChangesVoters(Protocol):
    """Can change which controllers vote (Kafka: KIP-853)."""

    def quorum(self) -> Quorum:
        """Raises EnvironmentNotReady: no node answers, or none leads."""

    def add_voter(self, node: str) -> str:
        """Why a controller that follows has no vote yet, in the brokers' words; empty = it has one.
        To be asked again. Raises EnvironmentNotReady: no node answers."""

    def remove_voter(self, node: str) -> str:
        """Why a controller still has its vote; as `add_voter`. One without a vote continues to
        follow."""
