"""Asks the servers over HTTP what they say of themselves (docs.nats.io, "Monitoring"), at the same
time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import urllib3

from harness.admin.failover import each
from harness.admin.tls import context_of
from harness.connections.security import ANYBODY, Security
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import PartitionState

_CONNECT_S: Final = 0.75
_ANSWER_S: Final = 2.5  # a healthy server answers in milliseconds; a starved one in about a second
#: A follower under load always lags by some entries, and `current` is false then. One that was
#: heard of just now and lacks no more follows; one that catches up after a loss lacks thousands.
_HEARD_NS: Final = 2_000_000_000
_FEW: Final = 1000


@dataclass(frozen=True, slots=True)
class Told:
    """One server's view of JetStream: the leader of the meta group, and the Raft group of each
    stream of which it has a copy.
    """

    meta: str = ""
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Monitor:
    """Questions to the monitoring ports. Thread-safe; every answer comes within a fixed time.

    Args:
        urls: node -> where its monitoring answers.
        called: server, by the name that it has itself -> node, where that differs.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        security: Security = ANYBODY.admin,
        called: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._urls = urls
        self._security = security
        self._called = called

    @cached_property
    def _http(self) -> urllib3.PoolManager:
        """Opened at the first question: certificates are made when the cluster starts."""
        return urllib3.PoolManager(
            num_pools=len(self._urls) + 1,
            maxsize=4,
            retries=False,
            ssl_context=context_of(self._security.tls),
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S),
        )

    def leaders_told(self, nodes: Sequence[str]) -> dict[str, Told]:
        """By node; those that give no answer are left out."""

        def ask(node: str) -> Told:
            said = self.account(node, "?streams=true")
            details = [
                stream
                for account in said.get("account_details") or ()
                for stream in account.get("stream_detail") or ()
            ]
            alone = {} if "meta_cluster" in said else {"leader": node}  # a server without a cluster
            groups = {
                str(stream["name"]): alone or self._group(stream.get("cluster") or {})
                for stream in details
            }
            return Told(self._node(alone or said["meta_cluster"]), groups)

        return each(nodes, ask)

    def healthy(self, nodes: Sequence[str]) -> dict[str, str]:
        """Node -> what it lacks, in its words; empty = it has JetStream, and its copies are up to
        date. Those that give no answer are left out."""

        def ask(node: str) -> str:
            answer = self._get(node, "healthz")
            if answer.status < 400:
                return ""
            said = _parsed(node, answer)
            return str(said.get("error") or said.get("status"))

        return each(nodes, ask)

    def date(self, node: str) -> str:
        """The header `Date` of an answer of a server. Raises as `account`."""
        return str(self._get(node, "healthz").headers.get("Date", ""))

    def account(self, node: str, how: str = "") -> Mapping[str, Any]:
        """JetStream of a server: its limits, and what is used of them.

        Raises:
            EnvironmentNotReady: no answer.
        """
        return _parsed(node, self._get(node, f"jsz{how}"))

    def _node(self, group: Mapping[str, Any]) -> str:
        """The node that leads a group; empty = none."""
        leader = str(group.get("leader") or "")
        return self._called.get(leader, leader)

    def _group(self, group: Mapping[str, Any]) -> Mapping[str, Any]:
        """A Raft group, with nodes instead of servers."""
        replicas = [
            {**each, "name": self._called.get(str(each["name"]), str(each["name"]))}
            for each in group.get("replicas") or ()
        ]
        return {**group, "leader": self._node(group), "replicas": replicas}

    def close(self) -> None:
        """Drop all connections. Idempotent; a later question opens them again."""
        self._http.clear()

    def _get(self, node: str, path: str) -> urllib3.BaseHTTPResponse:
        try:
            return self._http.request("GET", f"{self._urls[node]}/{path}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise EnvironmentNotReady(f"{node} does not answer at {self._urls[node]}") from error


def _parsed(node: str, answer: urllib3.BaseHTTPResponse) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = answer.json()
    except ValueError as error:
        raise EnvironmentNotReady(f"{node} answers with something else than JSON") from error
    return found


def meta_leader(told: Mapping[str, Told], nodes: int) -> str | None:
    """The leader of the meta group: named by most of all servers. One that was frozen until now
    still names the one of before."""
    return _most(Counter(each.meta for each in told.values()), nodes)


def stream_state(stream: str, told: Mapping[str, Told]) -> PartitionState | None:
    """Return the leader and the servers in sync of a stream, by its leader's view; None if no
    server has a copy of it.
    """
    groups = {node: each.streams[stream] for node, each in told.items() if stream in each.streams}
    if not groups:
        return None
    votes = Counter(str(group.get("leader") or "") for group in groups.values())
    replicas = sorted(set().union(*(_members(node, group) for node, group in groups.items())))
    leader = _most(votes, len(replicas))
    by_leader = groups.get(leader or "", {})
    current = [str(each["name"]) for each in by_leader.get("replicas") or () if _follows(each)]
    return PartitionState(
        leader, tuple(replicas), tuple(sorted({str(leader), *current})) if by_leader else ()
    )


def _follows(replica: Mapping[str, Any]) -> bool:
    if replica.get("offline"):
        return False
    heard = 0 <= int(replica.get("active") or 0) < _HEARD_NS
    return bool(replica.get("current")) or (heard and int(replica.get("lag") or 0) < _FEW)


def _members(node: str, group: Mapping[str, Any]) -> set[str]:
    """The servers of a Raft group, as one of them sees it."""
    leader = {str(group["leader"])} if group.get("leader") else set()
    return {node, *leader, *(str(each["name"]) for each in group.get("replicas") or ())}


def _most(votes: Counter[str], members: int) -> str | None:
    """Whom more than half of the members name."""
    name, count = votes.most_common(1)[0] if votes else ("", 0)
    return name if name and 2 * count > members else None
