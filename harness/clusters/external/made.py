"""A ledger of what runs make on clusters of others: on disk before it is made, so that another
process can remove it.

One JSON file per run and cluster in the state folder of this user: a run folder may be deleted, or
be in another place the next time. The files stay until everything in them is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from harness.clusters.layout.addresses import state_folder
from harness.clusters.nodes.processes import ProcessId, identify
from harness.contracts import read_document
from harness.errors import UsageError
from harness.rundir import write_json

_FOLDER: Final = "external"


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The objects that one run made on somebody else's cluster: kind ("topic", "group",
    "namespace") -> names, as brokers know them.
    """

    run_id: str
    cluster_id: str
    folder: str
    owner: ProcessId
    names: Mapping[str, list[str]] = field(default_factory=dict)

    def describe(self) -> str:
        """One line for people."""
        parts = [
            f"{len(names)} {kind}s ({', '.join(names)})"
            for kind, names in self.names.items()
            if names
        ]
        return f"{self.run_id}: {', '.join(parts) or 'nothing'}"


class MadeNames:
    """The file of one run on one cluster. It is there from the first `add` to `close`."""

    def __init__(self, cluster_id: str, run_id: str, folder: Path) -> None:
        self.path = _folder() / f"{_safe(cluster_id)}--{_safe(run_id)}.json"
        self.run_id = run_id
        owner = identify(os.getpid())
        assert owner is not None
        self._names: dict[str, list[str]] = {}
        with suppress(UsageError):
            self._names = dict(read_document(self.path, MadeBy).names)
        self._made = MadeBy(run_id, cluster_id, str(folder.absolute()), owner, self._names)

    @property
    def names(self) -> Mapping[str, list[str]]:
        """Kind -> names."""
        return self._names

    def add(self, kind: str, names: Iterable[str]) -> None:
        """Note what is about to be made; synced to disk on return."""
        known = self._names.setdefault(kind, [])
        known += [name for name in names if name not in known]
        self._write()

    def remove(self, kind: str, names: Iterable[str]) -> None:
        """Strike out what is gone."""
        gone = set(names)
        self._names[kind] = [name for name in self._names.get(kind, ()) if name not in gone]
        self._write()

    def close(self) -> None:
        """Forget the run, if nothing of it is left."""
        if not any(self._names.values()):
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        write_json(self.path, asdict(self._made))
        handle = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)  # a new name is durable only when its folder is
        finally:
            os.close(handle)


def made_on(cluster_id: str) -> Iterator[MadeBy]:
    """Yield what ended runs left on a cluster: runs that no process looks after any more."""
    for path in sorted(_folder().glob(f"{_safe(cluster_id)}--*.json")):
        made = read_document(path, MadeBy)
        if made.cluster_id == cluster_id and not made.owner.is_alive():
            yield made


def _folder() -> Path:
    return state_folder().parent / _FOLDER


def _safe(text: str) -> str:
    """Return a text in a form that can be part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)
