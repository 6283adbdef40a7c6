"""The copies of a stream, each read from the server that has it.

A consumer without replicas of its own reads the copy of the server that it is on
(server/consumer.go, `getNextMsg`), and its description names that server. Servers choose where it
is, at random; so some are made, until each copy was read by one. No leader moves: an election may
change the copies that it is about.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final

from harness.admin.failover import NoAnswer, NotThere
from harness.contracts.rows import ReplicaRow, ReplicaSpan
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import PartitionState
from harness.systems.nats.api import JetStream
from harness.systems.nats.link import place_of

#: One of three servers is given none of so many consumers once in 100,000 times.
_TRIES: Final = 30
_BATCH: Final = 2000
_STUCK_S: Final = 5.0
_CONSUMER: Final[Mapping[str, Any]] = {
    "ack_policy": "none", "deliver_policy": "all", "num_replicas": 1, "mem_storage": True,
    "inactive_threshold": 60_000_000_000,
}  # fmt: skip
_UNREAD: Final = "no consumer was given to it"


class _Copy:
    """The rows of a stream on one server, as far as they were read."""

    def __init__(self, begin: int) -> None:
        self.at = begin
        self.messages: dict[int, bytes] = {}
        self.why = _UNREAD

    def take(self, reply: str, data: bytes) -> None:
        """Keep a message. ``reply``: its subject for answers, which says where it is."""
        sequence, _ = place_of(reply)
        self.messages[sequence] = blake2b(data, digest_size=8).digest()
        self.at = sequence + 1


class StreamReading:
    """Reads the copies of a stream, each up to where its leader's log ended at first.

    Args:
        name: as the servers call it.
        servers: the name that a server has itself -> its node, of those that have a copy.
    """

    def __init__(self, api: JetStream, name: str, servers: Mapping[str, str]) -> None:
        self._api, self._name, self._servers = api, name, servers
        said = api.ask(f"STREAM.INFO.{name}")["state"]
        self._begin, self._end = int(said["first_seq"]), int(said["last_seq"]) + 1
        self._copies = {node: _Copy(self._begin) for node in sorted(servers.values())}

    def read(self, deadline: float) -> None:
        """Read what there is; a copy that gives no more, or whose server breaks off, is read no
        further."""
        left = {node for node, one in self._copies.items() if one.at < self._end}
        for _ in range(_TRIES):
            if not left or time.monotonic() > deadline:
                return
            config = {"stream_name": self._name, "config": dict(_CONSUMER)}
            made = self._api.ask(f"CONSUMER.CREATE.{self._name}", config)
            consumer = f"{self._name}.{made['name']}"
            node = self._servers.get(str((made.get("cluster") or {}).get("leader")), "")
            if node in left:
                left.remove(node)
                self._copies[node].why = self._read(node, consumer, deadline)
            with suppress(NotThere, EnvironmentNotReady):
                self._api.ask(f"CONSUMER.DELETE.{consumer}")

    def _read(self, node: str, consumer: str, deadline: float) -> str:
        """Why it was not read to its end; empty = it was."""
        copy, moved = self._copies[node], time.monotonic()
        try:
            with self._api.link(node) as link:
                while copy.at < self._end:
                    before = copy.at
                    asked = link.pull(
                        f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", _BATCH, within_s=_STUCK_S
                    )
                    for reply, head, data in asked:
                        copy.take(reply, head + data)
                    if copy.at > before:
                        moved = time.monotonic()
                    elif time.monotonic() > min(deadline, moved + _STUCK_S):
                        pending = link.ask(f"$JS.API.CONSUMER.INFO.{consumer}").get("num_pending")
                        if pending != 0:
                            return f"gives no more of {pending} messages"
                        # it has no more, and had time to apply what it was sent
                        copy.at = self._end
        except NoAnswer as error:
            return str(error)
        return ""

    def _odd(self) -> dict[str, list[ReplicaSpan]]:
        """By node, stretches of positions that not all have alike, as it has them. Of neighbours
        the same servers agree."""
        nodes, own = list(self._copies), [copy.messages for copy in self._copies.values()]
        found: dict[str, list[ReplicaSpan]] = {node: [] for node in nodes}

        def who_agrees(position: int) -> tuple[int, ...]:
            have = [messages.get(position) for messages in own]
            return tuple(-1 if each is None else have.index(each) for each in have)

        for agree, positions in groupby(range(self._begin, self._end), who_agrees):
            if len(set(agree)) == 1:
                continue
            stretch = list(positions)
            for node, messages, has in zip(nodes, own, agree, strict=True):
                if has >= 0:
                    data = b"".join(messages[position] for position in stretch)
                    digest = blake2b(data, digest_size=8).hexdigest()
                    found[node].append(ReplicaSpan(stretch[0], stretch[-1], digest))
        return found

    def rows(
        self, stream: str, before: PartitionState, after: PartitionState
    ) -> Iterator[ReplicaRow]:
        """A row for each copy, with what not all have. ``before``, ``after``: who leads and is in
        sync."""
        odd = self._odd()
        for node, copy in self._copies.items():
            yield ReplicaRow(
                stream=stream,
                node=node,
                leads=node == before.leader == after.leader,
                in_sync=node in before.in_sync and node in after.in_sync,
                begin=self._begin,
                end=self._end,
                read_to=min(copy.at, self._end),
                why=copy.why,
                odd=tuple(odd[node]),
            )
