"""Name ids of topic-partitions, as fast as two look-ups."""

from __future__ import annotations

from .process import Session


class StreamIds(dict[str, "PartitionIds"]):
    """``ids[topic][partition]`` is the name id; a stream the spec does not list is named on first
    sight."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __missing__(self, topic: str) -> PartitionIds:
        self[topic] = PartitionIds(self._session, topic)
        return self[topic]


class PartitionIds(dict[int, int]):
    def __init__(self, session: Session, topic: str) -> None:
        super().__init__()
        self._session = session
        self._topic = topic

    def __missing__(self, partition: int) -> int:
        self[partition] = self._session.names.id("stream", f"{self._topic}-{partition}")
        return self[partition]
