"""Connections as network faults see them: wires, what can be done to them, and who can do it.

Abilities, like in `harness.protocols.cluster`; a cluster has them when it was started with what
they need.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from harness.protocols.cluster import Endpoint

#: What a cluster must be started with so that a proxy can be between clients and brokers, and
#: between the nodes (`FaultKind.needs`).
CLIENT_DETOURS, PEER_DETOURS = "client-detours", "peer-detours"
#: As `PEER_DETOURS`, where nothing but to hold bytes is asked for: more runtimes can.
PEER_CUTS = "peer-cuts"
#: Besides detours: the proxy knows where each request begins, from a connection's first byte on.
REQUESTS = "requests"
#: Besides detours: the proxy knows which answer belongs to which request, from a connection's first
#: byte on, and can give another one.
ANSWERS = "answers"
#: With client detours: the connections of producers, of consumers, of each instance of an
#: application and of other clients pass each a listener of their own.
CLIENT_ROLES = "client-roles"
How = Literal["hold", "swallow", "delay", "throttle", "reset", "stall", "answer"]
#: The source of a wire that every client outside of the cluster uses. With `CLIENT_ROLES`, those
#: that no other source is for: pipelines, readers of the log, clients on other machines.
CLIENTS = "clients"
#: The sources of the wires that only producers, or only consumers, use.
PRODUCERS, CONSUMERS = "producers", "consumers"
#: The source of the wires that only readers of the log use, where answers can be changed: their
#: answers are the evidence. The name is the role of their processes.
AUDIT = "audit"
CLIENT_SOURCES = (CLIENTS, PRODUCERS, CONSUMERS, AUDIT)
#: The source of the wires of one instance of an application is the instance's name, which begins
#: so: ``application-billing-2``.
INSTANCE = "application-"


def is_client_source(source: str) -> bool:
    """Return whether the source of a wire is a client, not a node."""
    return source in CLIENT_SOURCES or source.startswith(INSTANCE)


@dataclass(frozen=True, slots=True)
class Wire:
    """The carrier of the connections that ``source`` opens to ``target``: a node each; the source
    may also be a client, see `is_client_source`.

    ``endpoints``: name of a port -> where the source connects to, to reach it.
    """

    source: str
    target: str
    endpoints: Mapping[str, Endpoint]

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """What becomes of the answers to some requests.

    Attributes:
        act: ``error``: the answer says an error; ``drop``: it never comes; ``delay``: it and all
            later answers of its connection come ``delay_s`` later; ``throttle``: it asks the client
            to wait ``delay_s``; ``close``: the connection is closed after it; ``stale``: it names
            leaders that are not the leaders; ``flip``: a bit of the messages in it, or in the
            request, is another; ``detach``: the broker closes the producer, the consumer, the
            channel or the connection of the request, and tells the client; ``twice``: it comes
            twice; ``reorder``: it comes ``delay_s`` later, and later answers overtake it.
        error: the name of the error, or of what a broker says that closes, as the protocol has it.
        partitions: share of the partitions of an answer that get the error.
        instead: the broker does not get the request that an error or nothing answers.
        before: the client has the error before the broker gets the request, which comes ``delay_s``
            later; the broker's own answer is dropped.
        close: the connection is closed where an answer is dropped.
        gone: the leader that is named is a broker that does not exist, and not the one of before.
    """

    act: Literal[
        "error",
        "drop",
        "delay",
        "throttle",
        "close",
        "stale",
        "flip",
        "detach",
        "twice",
        "reorder",
    ]
    error: str = ""
    partitions: float = 1.0
    instead: bool = False
    before: bool = False
    close: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Impairment:
    """The effect of a network fault on the bytes of a wire.

    hold      they are held until repair, as TCP retransmission would hold them
    swallow   they vanish; the connection stays open and is closed when repaired
    delay     each waits ``delay_s``, up to ``jitter_s`` more or less
    throttle  ``kilobytes_per_s`` of each connection get through
    reset     the connection is closed: a new one with RST at its first byte
    stall     where one of ``requests`` begins, it and everything after it on that connection wait
              ``delay_s``: a ``share`` of those requests, at random. They arrive although who sent
              them may have left.
    answer    answers to some of ``requests`` are not what the broker said: ``answer``. These are a
              ``share``, or only the request of this ``number`` since the begin, or only the first
              of each connection, or only the first on a connection ``after`` a request of that kind
    """

    how: How
    delay_s: float = 0.0
    jitter_s: float = 0.0
    kilobytes_per_s: int = 0
    requests: tuple[str, ...] = ()
    share: float = 0.0
    number: int = 0
    first_of_each_connection: bool = False
    after: str = ""
    answer: AnswerChange | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a wire: the bytes towards its target, or those towards its source."""

    wire: Wire
    toward: Literal["target", "source"]

    @property
    def receiver(self) -> str:
        """Return the end of the wire that receives the bytes."""
        return self.wire.target if self.toward == "target" else self.wire.source

    @property
    def sender(self) -> str:
        """Return the end of the wire that sends the bytes."""
        return self.wire.source if self.toward == "target" else self.wire.target


@runtime_checkable
class HasDetours(Protocol):
    """Can impair what passes between clients and brokers, or between nodes."""

    def why_not(self, link: str, how: How) -> str:
        """Why connections of a link (as a fault names it, "peers" or "all") can never be
        impaired so, whatever the cluster was started with; empty when they can."""

    def wires(self) -> Sequence[Wire]:
        """Return the wires that can be impaired."""

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        """Connect as the source of a wire does.

        Raises:
            OSError: the connection is refused.
        """

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        """From now on, until `repair` of the same name. On return it is so.

        Raises:
            EnvironmentNotReady: the proxy does not answer or refuses.
        """

    def repair(self, name: str) -> None:
        """Undo. Idempotent; other impairments stay.

        Raises:
            HealError: the proxy does not answer.
        """

    def is_impaired(self, name: str) -> bool:
        """Return whether anything is in force under a name."""

    def found_by(self, wires: Iterable[Wire]) -> set[str]:
        """Return the sources of those wires that have a connection on one of them now."""


@runtime_checkable
class GivesWires(HasDetours, Protocol):
    """Can give one client wires of its own."""

    def give_wires(self, source: str) -> None:
        """Let the connections of a client take wires of its own from now on, where the cluster was
        started with `CLIENT_ROLES`; nothing happens elsewhere. Idempotent.

        Args:
            source: what the client's process names as its role (`harness.owners.ROLE`); begins
                with `INSTANCE`.

        Raises:
            EnvironmentNotReady: the proxy does not answer or refuses.
        """


@dataclass(frozen=True, slots=True)
class Stalled:
    """Requests of the kinds that an impairment is about: how many came, and how many of those were
    held."""

    seen: int
    held: int


@runtime_checkable
class StallsRequests(HasDetours, Protocol):
    """Can hold connections back where a request of a kind begins."""

    def request_kinds(self) -> Sequence[str]:
        """Return the kinds of requests that it can tell apart, under the protocol's names; empty
        where there is not such a protocol.
        """

    def stalled(self, name: str) -> Stalled:
        """Return what was held so far under the name of an impairment.

        Raises:
            EnvironmentNotReady: the proxy does not answer.
        """


@dataclass(frozen=True, slots=True)
class Answered:
    """Requests of the kinds that an impairment is about: how many came, how many of those were met,
    and how many were to be met but have answers that have no place for it or stay the same.
    ``described``: the first that were met, each with the time of day in UTC."""

    seen: int = 0
    met: int = 0
    unfit: int = 0
    described: tuple[str, ...] = ()


@runtime_checkable
class ChangesAnswers(HasDetours, Protocol):
    """Can give clients other answers than the broker's."""

    def answer_kinds(self) -> Sequence[str]:
        """Return the kinds of requests whose answers it can find, under the protocol's names."""

    def answered_kinds(self, error: str = "") -> Sequence[str]:
        """Return the kinds of requests that brokers answer at all; with an error, only kinds whose
        answers can say it."""

    def answer_errors(self) -> Mapping[str, str]:
        """Return the errors that an answer can say, under the protocol's names, each with what a
        client may do that believes it (`harness.contracts.rows.FaultDetails.permits`); empty where
        answers of the protocol cannot be changed."""

    def answer_acts(self) -> Sequence[str]:
        """Return what can become of answers of the protocol (`AnswerChange.act`). ``before``: an
        error can precede its request."""

    def closings(self) -> Mapping[str, str]:
        """Return what brokers can say when they close something, each with what a client may do
        that believes it; empty where there is one way only."""

    def closing_kinds(self) -> Sequence[str]:
        """Return the kinds of requests that name what a broker can close."""

    def skipped_permits(self) -> Mapping[str, str]:
        """Return what may follow if the broker does not get a request and gets later ones, by its
        kind; a kind that is left out permits nothing."""

    def dropped_answer_permits(self) -> str:
        """Return what a client may do to which an answer never comes, although its connection stays
        open; empty = only what it does at a timeout of its own."""

    def answered(self, name: str) -> Answered:
        """Return what was met so far under the name of an impairment.

        Raises:
            EnvironmentNotReady: the proxy does not answer.
        """


@runtime_checkable
class RenamesNodes(HasDetours, Protocol):
    """Can give a node another address under the same name."""

    def rename(self, name: str, node: str) -> Sequence[Wire]:
        """Give a node another address: the other nodes find it there when they next ask for its
        name, and no node at the old one. `HasDetours.repair` of the same name gives the old one
        back.

        Returns:
            The wires to the new address.

        Raises:
            EnvironmentNotReady: it cannot be done.
        """


@runtime_checkable
class LosesPackets(Protocol):
    """Can drop packets of connections to a node (iptables)."""

    def why_not(self, link: str) -> str:
        """Why this cluster cannot, for connections of a link; empty when it can.

        Raises:
            EnvironmentNotReady: this machine cannot.
        """

    def lose(
        self, name: str, node: str, link: str, way: Literal["both", "in", "out"], share: float
    ) -> None:
        """Drop a share of the packets of a node's connections, under a name."""

    def repair(self, name: str) -> None: ...
    def is_losing(self, name: str) -> bool:
        """Return whether packets are dropped under a name."""

    def lost(self, name: str) -> int:
        """Packets dropped so far under a name."""

    def has_ports(self, node: str, link: str) -> bool:
        """Return whether a node has ports of this link."""
