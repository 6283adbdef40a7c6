"""The topics of one run on brokers that others use too: our names, the longer ones of the brokers,
and what was made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from harness.admin.client_names import TAGGED
from harness.admin.failover import AlreadyThere
from harness.admin.made_ledger import MadeLedger
from harness.errors import UsageError
from harness.protocols.cluster import TopicSettings


class RunNames:
    """Names of streams ("orders-0") as a run has them, and as its brokers have them.

    Args:
        made: the ledger; each name is in it before the brokers get it.
        kind: the brokers' word for what has these names, for example "queue".
    """

    def __init__(self, made: MadeLedger, kind: str) -> None:
        self._made = made
        self._kind = kind
        self._addresses: Mapping[str, str] = {}
        #: Names in the ledger that this process wrote there.
        self.noted: set[str] = set()

    def set(self, addresses: Mapping[str, str]) -> None:
        """Set the address of each topic: the name that the brokers have for it."""
        self._addresses = dict(addresses)

    @property
    def first_address(self) -> str:
        """Return the address of a topic; empty while the run has none."""
        return next(iter(self._addresses.values()), "")

    def theirs(self, stream: str) -> str:
        """Return the brokers' name of a stream."""
        topic, _, partition = stream.rpartition("-")
        return f"{self._addresses.get(topic, topic)}-{partition}"

    def ours(self, name: str) -> str:
        """Return the stream that has this name on the brokers; empty if it is none of the run."""
        address, _, partition = name.rpartition("-")
        topic = next((topic for topic, at in self._addresses.items() if at == address), "")
        return f"{topic}-{partition}" if topic and partition.isdigit() else ""

    def has_client(self, name: str) -> bool:
        """Return whether a client is one of the run: its name ends with the run's tag."""
        tagged = TAGGED.fullmatch(name)
        addresses = self._addresses.values()
        return tagged is not None and any(f"-{tagged[2]}-" in address for address in addresses)

    def refuse_foreign(self, topics: Sequence[TopicSettings]) -> None:
        """Raise if a topic does not belong to the run.

        Raises:
            UsageError: the name of the topic.
        """
        if foreign := [topic.name for topic in topics if topic.name not in self._addresses]:
            raise UsageError(
                f"{foreign[0]} is not a topic of this run",
                hint=f"its topics: {', '.join(self._addresses)}",
            )

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """Write a name down while it is made. If it exists already, it stays with its owner."""
        self.note(name)
        try:
            yield
        except AlreadyThere:
            self.forget([name])
            raise

    def note(self, name: str) -> None:
        """Write a name into the ledger, once."""
        if name not in self.noted:
            self._made.add(self._kind, [name])
            self.noted.add(name)

    def forget(self, names: Iterable[str]) -> None:
        """Strike out names that exist no longer."""
        gone = list(names)
        self._made.remove(self._kind, gone)
        self.noted.difference_update(gone)

    def made_in(self, made: Mapping[str, Sequence[str]]) -> Sequence[str]:
        """Return the names of this kind in a ledger that an earlier process wrote."""
        return made.get(self._kind, ())
