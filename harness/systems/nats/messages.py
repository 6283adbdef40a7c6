"""Reads all messages of a stream that clients of somebody else wrote: the outputs of an application
under test."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from email import message_from_string
from typing import Any, Final

from harness.admin.failover import NoAnswer, NotThere
from harness.contracts.rows import Bounds
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import StoredMessage
from harness.systems.nats.api import JetStream
from harness.systems.nats.link import Link, place_of

#: A server that leads one of three copies is given none of so many consumers once in 100,000 times.
_TRIES: Final = 30
_BATCH: Final = 2000
_PULL_S: Final = 5.0
_PAUSE_S: Final = 0.1
_MS: Final = 1_000_000
#: The line before the headers of a message.
_VERSION: Final = b"NATS/1.0"


def read(
    api: JetStream,
    link_to: Callable[[str], Link],
    stream: str,
    partition: int,
    take: Callable[[StoredMessage], None],
    *,
    deadline: float,
    last: int = 0,
) -> Bounds:
    """Hand every message of a stream to ``take``, from the copy of its leader; how far it was read.

    Args:
        link_to: opens a connection to a server, by the name that it has itself; empty = to any.
        stream: as the servers call it.
        partition: the number of the partition, which every message gets.
        deadline: on the monotonic clock.
        last: begin so many sequences before the end; 0 = at the first message.

    Raises:
        NotThere: the stream does not exist.
        EnvironmentNotReady: the servers do not answer.
    """
    state = api.ask(f"STREAM.INFO.{stream}")["state"]
    first, end = int(state["first_seq"]), int(state["last_seq"]) + 1
    at = max(first, end - last) if last else first
    begin = at if at > 1 else 0  # sequences are counted from 1: nothing was removed
    read_to, why = begin, "end"
    while read_to < end and at < end:
        if time.monotonic() > deadline:
            why = "deadline"
            break
        before = at
        with closing(_messages(api, link_to, stream, partition, at, deadline)) as messages:
            for message in messages:
                if message.position >= end:
                    break
                take(message)
                at = read_to = message.position + 1
        if at == before:  # the leader has no more: either it was deleted, or its copy lacks it
            if _are_deleted(api, stream, at, end):
                read_to = end
            else:
                time.sleep(_PAUSE_S)
    return Bounds(begin=begin, end=end, read_to=max(read_to, begin), why=why, isolation="outputs")


def _are_deleted(api: JetStream, stream: str, first: int, end: int) -> bool:
    """Return whether the stream reports every sequence from ``first`` up to ``end`` as deleted."""
    state = api.ask(f"STREAM.INFO.{stream}", {"deleted_details": True})["state"]
    return set(range(first, end)) <= set(state.get("deleted") or ())


def _messages(
    api: JetStream,
    link_to: Callable[[str], Link],
    stream: str,
    partition: int,
    at: int,
    deadline: float,
) -> Generator[StoredMessage]:
    """Yield messages from a sequence on, until the connection or the consumer fails; none = no
    consumer was on the leader."""
    for _ in range(_TRIES):
        leader = (api.ask(f"STREAM.INFO.{stream}").get("cluster") or {}).get("leader")
        config: dict[str, Any] = {
            "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": max(1, at),
            "num_replicas": 1, "mem_storage": True, "inactive_threshold": 60_000_000_000,
        }  # fmt: skip
        asked = {"stream_name": stream, "config": config}
        made = api.ask(f"CONSUMER.CREATE.{stream}", asked)
        server = (made.get("cluster") or {}).get("leader")
        name = str(made["name"])
        try:
            if server == leader:
                with link_to(str(leader or "")) as link:
                    yield from _pulled(link, f"{stream}.{name}", partition, deadline)
                return
        except NoAnswer:
            time.sleep(_PAUSE_S)
            return
        finally:
            with suppress(NotThere, EnvironmentNotReady):
                api.ask(f"CONSUMER.DELETE.{stream}.{name}")
        if time.monotonic() > deadline:
            return


def _pulled(link: Link, consumer: str, partition: int, deadline: float) -> Iterator[StoredMessage]:
    """Yield what a consumer has, until it has no more."""
    while time.monotonic() < deadline:
        is_empty = True
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer}"
        for reply, head, data in link.pull(subject, _BATCH, within_s=_PULL_S):
            is_empty = False
            sequence, stored_ns = place_of(reply)
            headers = list(headers_of(head))
            yield StoredMessage(partition, sequence, stored_ns // _MS, b"", data, headers)
        if is_empty and not _pending(link, consumer):
            return


def _pending(link: Link, consumer: str) -> int:
    """Return how many messages a consumer has not handed out."""
    return int(link.ask(f"$JS.API.CONSUMER.INFO.{consumer}").get("num_pending") or 0)


def headers_of(head: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the names and values of headers.

    Args:
        head: the headers of a message as the protocol has them; empty where it has none.
    """
    _, _, lines = head.partition(b"\r\n")
    if head.startswith(_VERSION):
        # Latin 1 has a character for each byte, so values keep theirs.
        for name, value in message_from_string(lines.decode("latin-1")).items():
            yield name, str(value).encode("latin-1")
