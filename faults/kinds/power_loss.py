"""power-loss: a machine without power loses what its disk had not been told to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Literal

from pydantic import Field

from faults.kinds.kill import Killed
from faults.kit.cluster_view import ClusterView
from faults.kit.lied_disks import ANY_STREAM, is_own, lied_about
from faults.kit.params import Inventory
from faults.kit.resources import ResourceFault
from faults.kit.several import SeveralNodesFault, SeveralNodesParams
from harness.durations import Seconds
from harness.protocols.cluster import HasPlacement, Proof
from harness.protocols.nodes import Killable
from harness.protocols.power import LosesPower, Unsynced
from harness.sizes import in_units
from harness.systems import SYSTEMS

_NAMED: Final = 2


class PowerLossParams(SeveralNodesParams):
    tail: Literal["whole", "torn"] = Field(
        "whole",
        description=(
            "end of a file that grew: where it was synced (`whole`), or up to 4,096 bytes later "
            "(`torn`)"
        ),
    )
    directories: Literal["kept", "lost"] = Field(
        "kept",
        description=(
            "file names that changed in a folder since it was synced: `kept`, as journalling file"
            " systems do within seconds, or `lost`, as POSIX allows (needs synced-folders)"
        ),
    )
    for_: Seconds = Field(5.0, alias="for", gt=0, description="the power returns after this time")


class PowerLost(Killed):
    """Nodes killed at once, their disks put back to what was synced; heal starts them."""

    params: PowerLossParams

    def __init__(
        self, view: ClusterView, targets: Sequence[str], params: PowerLossParams, seed: int
    ) -> None:
        super().__init__(view, targets, params)
        self._disks = view.ability(LosesPower)
        self._seed = seed
        self._dropped: dict[str, Unsynced] = {}

    def apply(self) -> None:
        with ThreadPoolExecutor(len(self.targets)) as pool:
            list(pool.map(self.view.ability(Killable).kill, self.targets))
        self._gone = not any(self.view.is_running(node) for node in self.targets)
        torn, folders = self.params.tail == "torn", self.params.directories == "lost"
        for node in self.targets:
            dropped = self._disks.drop_unsynced(node, torn=torn, folders=folders, seed=self._seed)
            self._dropped = {**self._dropped, node: dropped}

    def process_evidence(self) -> str:
        """A disk of which all was synced loses nothing, and has lost power all the same."""
        if not self._gone or len(self._dropped) < len(self.targets):
            return ""
        return f"{self.view.seen.gone}, {'; '.join(map(self._said, self._dropped))}"

    def _said(self, node: str) -> str:
        lost = self._dropped[node]
        if not lost.bytes and not lost.entries:
            return f"all of {node} was synced"
        files = f"{in_units(lost.bytes)} in {lost.files} files not synced"
        shown = ", ".join(lost.names[:_NAMED])
        entries = f", {lost.entries} changes of folders" if lost.entries else ""
        entries += ", of which some were said to be synced" if lost.claimed_entries else ""
        of = f" of {node}" if len(self.targets) > 1 else ""
        lied = f", {in_units(lost.claimed)} said to be synced" if lost.claimed else ""
        return f"dropped{of}: {files}{f' ({shown} ...)' if shown else ''}{lied}{entries}"

    def proof(self) -> Proof:
        found = super().proof()
        rows = {
            node: {"bytes": lost.bytes, "files": lost.files, "entries": lost.entries}
            for node, lost in self._dropped.items()
        }
        lost = {node for node, one in self._dropped.items() if one.bytes or one.claimed_entries}
        kept_by = self._kept_by()
        unkept = sorted(stream for stream, nodes in kept_by.items() if nodes <= lost)
        more = {"unkept": unkept, "lied": self._lied(kept_by)}
        return replace(found, details={**found.details, "dropped": rows, **more})

    def _kept_by(self) -> dict[str, frozenset[str]]:
        """Stream -> its replicas in sync, as far as they are known: judging asks for streams of
        which all of them are nodes that lost something.

        Where brokers keep no data, every node that does may have been one.
        """
        if self.before is None:
            return {}
        others = self._disks.stores()
        found = {
            stream: frozenset(self.before.in_sync(stream) or others)
            for stream in self.before.partitions
        }
        return {stream: nodes for stream, nodes in found.items() if nodes}

    def _lied(self, kept_by: Mapping[str, frozenset[str]]) -> list[str]:
        """Streams of which the disk of every replica in sync had lied about messages.

        The replicas of the brokers' own topics (Kafka's transactions and offsets) are not known.
        Such a stream counts when as many disks lied about it as the smallest in-sync set has.
        """
        system = SYSTEMS[self.view.inventory.system]
        about = {node: lied_about(lost, system) for node, lost in self._dropped.items()}
        lied = [
            stream
            for stream, nodes in kept_by.items()
            if all(not about.get(node, set()).isdisjoint({stream, ANY_STREAM}) for node in nodes)
        ]
        fewest = min(map(len, kept_by.values()), default=0)
        own = Counter(each for streams in about.values() for each in streams if is_own(each))
        return sorted({*lied, *(each for each, count in own.items() if count >= fewest > 0)})


class PowerLoss(SeveralNodesFault[PowerLossParams], ResourceFault[PowerLossParams]):
    """Cut the power of nodes (SIGKILL; what was not synced is lost) and restore it after `for`."""

    kind = "power-loss"
    abilities = (LosesPower, Killable, HasPlacement)
    needs = frozenset({"synced-disk"})
    params = PowerLossParams

    def needs_for(self, params: PowerLossParams) -> frozenset[str]:
        return self.needs | ({"synced-folders"} if params.directories == "lost" else set())

    def commands(self, params: PowerLossParams, inventory: Inventory) -> list[str]:
        folders = ", names in folders included" if params.directories == "lost" else ""
        return [
            f"SIGKILL {self.who(params, inventory)}; put each disk back to what was synced{folders}",
            f"after {params.for_:g} s: start again",
        ]

    def seeded(
        self, view: ClusterView, targets: tuple[str, ...], params: PowerLossParams, seed: int
    ) -> PowerLost:
        return PowerLost(view, targets, params, seed)
