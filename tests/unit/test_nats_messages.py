"""Outputs of an application on NATS: a stream is read from the copy of its leader, and the position
of a group is what it has acknowledged without a gap."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from harness.admin.failover import AlreadyThere, NoAnswer, NotThere
from harness.contracts.rows import Bounds
from harness.protocols.cluster import Endpoint, Node, StoredMessage, TopicSettings
from harness.systems.nats import messages
from harness.systems.nats.admin import NatsAdmin
from harness.systems.nats.link import place_of
from harness.systems.nats.messages import headers_of

HEAD = b"NATS/1.0\r\nNats-Msg-Id: 1/0/3\r\n\r\n"


class Servers:
    """Two servers; consumers are placed on one after the other. ``breaks_at``: the connection
    breaks once before this sequence; ``has``: messages of the copy that is read; ``deleted``:
    sequences that the stream reports as deleted."""

    def __init__(self, has: int = 5, breaks_at: int = 0, deleted: Sequence[int] = ()) -> None:
        self.has, self.breaks_at, self.deleted = has, breaks_at, deleted
        self.asked = 0
        self._placed = cycle(("nats-2", "nats-1"))
        self._next = 1
        self.read_on: set[str] = set()

    def ask(self, what: str, body: Any = None) -> dict[str, Any]:
        if what.startswith("STREAM.INFO"):
            state: dict[str, Any] = {"first_seq": 1, "last_seq": 5}
            if body and body["deleted_details"]:
                state["deleted"] = list(self.deleted)
            return {"state": state, "cluster": {"leader": "nats-1"}}
        if what.startswith("CONSUMER.CREATE"):
            self.asked += 1
            self._next = body["config"]["opt_start_seq"]
            return {"name": "c", "cluster": {"leader": next(self._placed)}}
        return {}

    @contextmanager
    def link_to(self, server: str) -> Iterator[Any]:
        self.read_on.add(server)
        yield Link(self)

    def pull(self) -> Iterator[tuple[str, bytes, bytes]]:
        for sequence in range(self._next, self.has + 1):
            if sequence == self.breaks_at:
                self.breaks_at = 0
                raise NoAnswer("closed")
            self._next = sequence + 1
            yield f"$JS.ACK.orders-0.c.1.{sequence}.9.{sequence}000000.0", HEAD, b"order"


class Link:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def pull(self, *_: object, within_s: float) -> Iterator[tuple[str, bytes, bytes]]:
        return self._servers.pull()

    def ask(self, subject: str) -> dict[str, Any]:
        return {"num_pending": 0}


def read(servers: Any, last: int = 0, for_s: float = 5.0) -> tuple[list[StoredMessage], Bounds]:
    taken: list[StoredMessage] = []
    end = time.monotonic() + for_s
    bounds = messages.read(
        servers, servers.link_to, "orders-0", 0, taken.append, deadline=end, last=last
    )
    return taken, bounds


def test_a_stream_is_read_from_its_leader_with_headers_and_times() -> None:
    servers = Servers()
    taken, bounds = read(servers)
    assert servers.read_on == {"nats-1"}
    assert [message.position for message in taken] == [1, 2, 3, 4, 5]
    assert taken[2] == StoredMessage(0, 3, 3, b"", b"order", [("Nats-Msg-Id", b"1/0/3")])
    assert (bounds.begin, bounds.end, bounds.is_complete) == (0, 6, True)


def test_reading_continues_where_a_connection_broke() -> None:
    taken, bounds = read(Servers(breaks_at=3))
    assert [message.position for message in taken] == [1, 2, 3, 4, 5]
    assert bounds.is_complete


def test_a_copy_that_lacks_messages_is_not_complete() -> None:
    taken, bounds = read(Servers(has=3), for_s=0.2)
    assert len(taken) == 3
    assert (bounds.read_to, bounds.is_complete) == (4, False)


def test_a_stream_whose_last_messages_were_deleted_is_read_to_its_end() -> None:
    servers = Servers(has=3, deleted=(4, 5))
    taken, bounds = read(servers)
    assert (len(taken), bounds.read_to, bounds.is_complete) == (3, 6, True)
    assert servers.asked == 4, "it asks no more once it knows that nothing is missing"


def test_headers_keep_their_bytes() -> None:
    head = b"NATS/1.0\r\ntext: K\xc3\xa4se 42\r\nbytes: \xff\xfe\r\n\r\n"
    assert [*headers_of(head)] == [("text", "Käse 42".encode()), ("bytes", b"\xff\xfe")]


def test_the_last_messages_only() -> None:
    taken, bounds = read(Servers(), last=2)
    assert [message.position for message in taken] == [4, 5]
    assert bounds.begin == 4


@pytest.mark.parametrize(
    "reply", ["$JS.ACK.s.c.1.7.2.9.0", "$JS.ACK.hub.A1.s.c.1.7.2.9.0.r"], ids=["old", "new"]
)
def test_the_place_of_a_message_is_in_its_reply_subject(reply: str) -> None:
    assert place_of(reply) == (7, 9)


def test_the_position_of_a_group_is_what_it_has_acknowledged_without_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = Endpoint("127.0.0.1", 1)
    admin = NatsAdmin([Node("nats-1", 1, at, at, at, Path())])
    monkeypatch.setitem(admin._made, "orders", 3)
    floors = {"orders-0": 7, "orders-1": 0}

    def ask(what: str, body: Any = None) -> dict[str, Any]:
        stream = what.split(".")[2]
        if stream not in floors:
            raise NotThere("consumer not found")
        return {"ack_floor": {"stream_seq": floors[stream]}, "num_ack_pending": 3}

    monkeypatch.setattr(admin._api, "ask", ask)
    assert admin.committed_offsets("billing", ["orders"]) == {"orders-0": 8, "orders-1": -1}


@pytest.mark.parametrize(
    ("pending", "backoff", "held_s"),
    [(3, [], 30.0), (3, [5 * 10**9, 60 * 10**9], 60.0), (0, [], 0)],
)
def test_servers_wait_for_the_acknowledgement_of_what_a_group_holds(
    monkeypatch: pytest.MonkeyPatch, pending: int, backoff: list[int], held_s: float
) -> None:
    at = Endpoint("127.0.0.1", 1)
    admin = NatsAdmin([Node("nats-1", 1, at, at, at, Path())])
    monkeypatch.setitem(admin._made, "orders", 1)
    config = {"ack_wait": 30 * 10**9, "backoff": backoff}
    said = {"config": config, "num_ack_pending": pending}
    monkeypatch.setattr(admin._api, "ask", lambda what: said)
    assert admin.held_for_s("billing", ["orders"]) == held_s


@pytest.mark.parametrize("there", [True, False], ids=["others", "ours"])
def test_a_stream_belongs_to_others_only_if_it_was_there_before(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """A server that made a stream and answered too late is asked again: the stream exists then."""
    at = Endpoint("127.0.0.1", 1)
    admin = NatsAdmin([Node("nats-1", 1, at, at, at, Path())])
    names = ["orders-0"] if there else []

    def ask(what: str, body: Any = None) -> dict[str, Any]:
        if what == "STREAM.NAMES":
            return {"streams": names, "total": len(names)}
        return {"did_create": False, "config": body}

    monkeypatch.setattr(admin._api, "ask", ask)
    expected = pytest.raises(AlreadyThere, match="exists already") if there else nullcontext()
    with expected:
        admin.create_topics([TopicSettings("orders", 1, 3)])
