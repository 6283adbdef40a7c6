"""A controller that gets a vote, or loses it (KIP-853), and how the leader of the others describes
that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from faults.kit.cluster_view import POLL_S, ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.injection import FaultKind, Injection
from faults.kit.params import Params
from harness.errors import EnvironmentNotReady
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Cluster, Proof
from harness.protocols.members import ChangesVoters, Quorum
from harness.waiting import wait_while

P = TypeVar("P", bound=Params)


def refuse_second(view: ClusterView, before: Quorum) -> None:
    """Raise FiringSkipped while the voters differ from the cluster's: Kafka changes one at a time,
    and 4.1 loses its active controller when a second change meets an election."""
    own = set(view.with_role("controller"))
    spare, lost = sorted(own - set(view.brokers)), sorted(own - before.voters.keys())
    if spare:
        raise FiringSkipped(
            f"{spare[0]} is in the quorum, or joins it: one change of voters at a time"
        )
    if lost:
        raise FiringSkipped(f"{lost[0]} has no vote now: one change of voters at a time")


class VoteChange(Injection):
    """Base of both kinds: one controller, and the quorum before.

    Attributes:
        gives: it gives a vote; else it takes one.
    """

    gives: bool

    def __init__(
        self, view: ClusterView, node: str, params: Params, before: Quorum, within_s: float
    ) -> None:
        super().__init__(view, [node], params)
        self.node = node
        self.before = before
        self._within_s = within_s
        self.admin = view.ability(ChangesVoters)

    def give(self) -> None:
        self._until(lambda: self.admin.add_voter(self.node), "gets no vote")

    def take(self) -> None:
        self._until(lambda: self.admin.remove_voter(self.node), "keeps its vote")

    def _until(self, refused: Callable[[], str], what: str) -> None:
        """Ask again while the brokers refuse, or none answers: an election may be under way."""

        def lacking() -> str:
            try:
                return refused()
            except EnvironmentNotReady as error:
                return str(error)

        if why := wait_while(lacking, self._within_s, every_s=POLL_S):
            raise EnvironmentNotReady(f"{self.node} {what} within {self._within_s:g} s: {why}")

    def proof(self) -> Proof:
        """The voters before and now, and who leads them."""
        now = self.admin.quorum()
        lag = now.voters.get(self.node, now.observers.get(self.node))
        voters = " -> ".join(", ".join(sorted(quorum.voters)) for quorum in (self.before, now))
        active = " -> ".join(
            f"{quorum.leader} (epoch {quorum.epoch})" for quorum in (self.before, now)
        )
        told = "not known" if lag is None else f"{lag:,}"
        text = f"voters {voters}; active {active}; lag of {self.node}: {told}"
        details = {"voters": sorted(now.voters), "leader": now.leader, "epoch": now.epoch}
        return Proof(
            (self.node in now.voters) == self.gives and now.leader is not None, text, details
        )

    def missing(self) -> str:
        if (self.node in self.admin.quorum().voters) == self.gives:
            return f"{self.node} still votes" if self.gives else f"{self.node} has no vote"
        topics = (topic.name for topic in self.view.inventory.topics)
        return next(filter(None, map(self.view.behind, topics)), "")

    def confirmed_acks(self) -> ConfirmedAcks:
        """Controllers have none."""
        return "kept"


class VoteFault(FaultKind[P]):
    """Base of both kinds."""

    def refusal(self, params: P, cluster: Cluster) -> str:
        given: frozenset[str] = getattr(cluster.runtime, "needs", frozenset())
        lacking = ", ".join(sorted(self.needs - given))
        return (
            f"it was started without {lacking}, which no cluster in containers has"
            if lacking
            else ""
        )
