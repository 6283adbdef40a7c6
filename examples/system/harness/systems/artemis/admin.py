"""Artemis's admin side: its management messages over STOMP 1.2."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

from harness.admin.probe import probe_payload
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node, PartitionState, TopicSettings
from harness.waiting import wait_while

_ANSWER_S = 2.5
_REPLIES, _PROBES = "brokerstorm.replies", "brokerstorm.probes"
_HEADER = str.maketrans({"\\": r"\\", "\n": r"\n", ":": r"\c"})


class _Session:
    """One connection with a subscription to a queue."""

    def __init__(self, node: Node, queue: str) -> None:
        self._link = socket.create_connection((node.admin.host, node.admin.port), timeout=_ANSWER_S)
        self._stream = self._link.makefile("rb")
        self.frame("CONNECT", {"accept-version": "1.2", "host": "brokerstorm"}, want="CONNECTED")
        self.frame(
            "SUBSCRIBE",
            {"destination": queue, "id": "1", "ack": "auto", "receipt": "1"},
            want="RECEIPT",
        )

    def frame(
        self, command: str, headers: dict[str, str], body: bytes = b"", *, want: str
    ) -> bytes:
        """Send a frame and wait for one of a kind; its body."""
        lines = [
            command,
            *(f"{name}:{value.translate(_HEADER)}" for name, value in headers.items()),
        ]
        self._link.sendall("\n".join(lines).encode() + b"\n\n" + body + b"\0")
        while True:
            kind, said, found = self._read()
            if kind == "ERROR":
                raise UsageError(f"Artemis refuses {command}: {said.get('message', '')}")
            if kind == want:
                return found

    def _read(self) -> tuple[str, dict[str, str], bytes]:
        kind = ""
        while not kind:  # newlines between frames
            line = self._stream.readline()
            if not line:
                raise ConnectionError("closed")
            kind = line.decode().strip()
        lines = iter(lambda: self._stream.readline().decode().rstrip("\r\n"), "")
        headers = dict(line.split(":", 1) for line in lines)
        size = int(headers.get("content-length", 0))
        body = self._stream.read(size)
        while self._stream.read(1) not in (b"\0", b""):
            pass
        return kind, headers, body

    def close(self) -> None:
        self._link.close()


class ArtemisAdmin:
    """Admin, HasTopics, HasPlacement, HasBacklogs and HasHealthProbe of one broker. Thread-safe."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._node = nodes[0]
        self.watch: Callable[[], None] = lambda: None

    def _with(self, queue: str, do: Callable[[_Session], Any]) -> Any:
        try:
            session = _Session(self._node, queue)
            try:
                return do(session)
            finally:
                session.close()
        except (OSError, ValueError) as error:
            raise EnvironmentNotReady(
                f"{self._node.name} does not answer ({type(error).__name__})"
            ) from error

    def _manage(self, resource: str, operation: str, *arguments: object) -> Any:
        headers = {
            "destination": "activemq.management",
            "reply-to": _REPLIES,
            "_AMQ_ResourceName": resource,
            "_AMQ_OperationName": operation,
        }
        body = json.dumps(arguments).encode()
        answer = self._with(
            _REPLIES, lambda session: session.frame("SEND", headers, body, want="MESSAGE")
        )
        return json.loads(answer)[0] if answer else None

    def topics(self) -> list[str]:
        internal = (_REPLIES, _PROBES, "activemq.")
        names = self._manage("broker", "getQueueNames")
        return sorted(name for name in names if not name.startswith(internal))

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Raises UsageError: a queue exists."""
        there = set(self.topics())
        for stream in (f"{topic.name}-0" for topic in topics):
            if stream in there:
                raise UsageError(f"queue {stream} exists already")
            self._manage(
                "broker", "createQueue", stream, "ANYCAST", stream, None, True, -1, False, True
            )

    def delete_topics(self, names: Sequence[str]) -> None:
        for stream in {f"{name}-0" for name in names} & set(self.topics()):
            self._manage("broker", "destroyQueue", stream)

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        streams = [f"{topic}-0" for topic in topics]
        return {
            stream: {"": self._manage(f"queue.{stream}", "getMessageCount")} for stream in streams
        }

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        there = {f"{topic}-0" for topic in topics} & set(self.topics())
        return {stream: PartitionState(self._node.name, (), ()) for stream in sorted(there)}

    def leaders(self, topic: str) -> dict[int, str | None]:
        state = self.partition_states([topic]).get(f"{topic}-0")
        return {0: state.leader if state else None}

    def controller(self) -> str | None:
        return None

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Queues have no positions."""
        return {}

    def registered(self) -> set[str]:
        return {self._node.name} if self.answers(self._node.name) else set()

    def answers(self, node: str) -> bool:
        try:
            self._with(_REPLIES, lambda session: None)
        except EnvironmentNotReady:
            return False
        return True

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when the queues of the topics are there and a message went in and came out."""
        if missing := wait_while(lambda: self._missing(topics, run_tag), timeout_s):
            raise EnvironmentNotReady(
                f"the cluster is not ready after {timeout_s:.0f} s: {missing}"
            )

    def _missing(self, topics: Sequence[str], run_tag: int) -> str:
        self.watch()
        payload = probe_payload(run_tag)
        # A length makes it a message of bytes, which the management does not take.
        headers = {
            "destination": _PROBES,
            "persistent": "true",
            "content-length": str(len(payload)),
        }
        try:
            lacking = sorted({f"{topic}-0" for topic in topics} - set(self.topics()))
            if lacking:
                return f"queue {lacking[0]} is not there"
            found = self._with(
                _PROBES, lambda session: session.frame("SEND", headers, payload, want="MESSAGE")
            )
        except EnvironmentNotReady as error:
            return str(error)
        return "" if found == payload else "a message did not come out as it went in"

    def close(self) -> None:
        """Nothing stays open."""
