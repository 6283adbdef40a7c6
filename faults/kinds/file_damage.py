"""file-damage: a disk gives back other bytes than were written, and a node has to live with
them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final, Literal

from pydantic import Field

from faults.kinds.kill import Killed
from faults.kit.cluster_view import ClusterView, find_ability
from faults.kit.params import Inventory
from faults.kit.several import SeveralNodesFault, SeveralNodesParams
from harness.durations import Seconds
from harness.errors import EnvironmentNotReady
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement, Proof
from harness.protocols.files import Damage, DamagedPlace, DamagesFiles, FileKind, ForgetsNodes
from harness.protocols.nodes import Killable, Stoppable
from harness.sizes import Size, in_units

_STOP_S: Final = 30.0
#: A node reads its files when it starts and fetches what it lacks; later than this it refuses them,
#: or is slow.
_COME_BACK_S: Final = 30.0
_NAMED: Final = 2
_KEPT: Final = 50


class FileDamageParams(SeveralNodesParams):
    files: FileKind = Field(
        "log", description="kind of files: those with messages (`log`), or others of the node"
    )
    damage: Damage = Field(
        "flip",
        description=(
            "kind of damage: changed bits (`flip`), bytes that are `zero`, or an end that is "
            "`cut` off"
        ),
    )
    places: int = Field(
        1,
        ge=1,
        le=1000,
        description="number of damaged places on each node, drawn from all bytes in use",
    )
    size: Size = Field(4096, description="largest number of zeros or missing bytes at one place")
    stop: Literal["orderly", "kill"] = Field(
        "orderly",
        description="how the node is stopped: after a `kill`, brokers check their files more closely",
    )
    wipe: bool = Field(
        True,
        description="if a node does not start again, its data is removed and it rejoins the cluster empty",
    )
    for_: Seconds = Field(1.0, alias="for", gt=0, description="the node restarts after this time")


class FilesDamaged(Killed):
    """Nodes stopped, files of theirs damaged; heal starts them, without their data if they refuse
    it."""

    params: FileDamageParams

    def __init__(
        self, view: ClusterView, targets: Sequence[str], params: FileDamageParams, seed: int
    ) -> None:
        super().__init__(view, targets, params)
        self._disks = view.ability(DamagesFiles)
        self._seed = seed
        self._damaged: dict[str, list[DamagedPlace]] = {}
        self._wiped: dict[str, str] = {}
        self._started_s: float | None = None

    def apply(self) -> None:
        for node in self.targets:
            if self.params.stop == "kill":
                self.view.ability(Killable).kill(node)
            else:
                self.view.ability(Stoppable).stop(node, timeout_s=_STOP_S)
        self._gone = not any(self.view.is_running(node) for node in self.targets)
        for number, node in enumerate(self.targets):
            asked = self.params
            self._damaged[node] = self._disks.damage_files(
                node,
                asked.files,
                asked.damage,
                places=asked.places,
                size_bytes=asked.size,
                seed=self._seed + number,
            )
            if not self._damaged[node]:
                raise EnvironmentNotReady(f"{node} has no bytes in files of kind {asked.files}")

    def process_evidence(self) -> str:
        """Return that the nodes ended, and the damaged bytes of each as read back; else empty."""
        if (
            not self._gone
            or len(self._damaged) < len(self.targets)
            or not all(self._damaged.values())
        ):
            return ""
        said = {
            "ended": "refused them",
            "not whole": f"was not whole {_COME_BACK_S:g} s after its start,",
        }
        wiped = "".join(f"; {node} {said[why]} and was wiped" for node, why in self._wiped.items())
        return f"{self.view.seen.gone}, damaged: {'; '.join(map(self._said, self._damaged))}{wiped}"

    def _said(self, node: str) -> str:
        places = self._damaged[node]
        shown = ", ".join(str(each) for each in places[:_NAMED])
        more = len(places) - _NAMED
        rest = f" and {more} more place{'s' * (more > 1)}" if more > 0 else ""
        return f"{f'{node}: ' if len(self.targets) > 1 else ''}{shown}{rest}"

    def proof(self) -> Proof:
        found = super().proof()
        places = {
            node: [asdict(each) for each in rows[:_KEPT]] for node, rows in self._damaged.items()
        }
        return replace(
            found, details={**found.details, "damaged": places, "wiped": dict(self._wiped)}
        )

    def confirmed_acks(self) -> ConfirmedAcks:
        """Return that confirmed acknowledgements may be lost: the damaged file may be what a cursor
        wrote."""
        return "at-risk"

    def heal(self) -> None:
        """Start the nodes; those that refused their files once are wiped first."""
        if self._started_s is not None and self.params.wipe:
            for node in self._refusing():
                self._wiped[node] = self._why(node)
                self.view.ability(Killable).kill(node)
                self._disks.renew_data(node)
                if forgets := find_ability(self.view.cluster, ForgetsNodes):
                    forgets.forget(node)
        self._started_s = time.monotonic()
        super().heal()

    def _why(self, node: str) -> str:
        return "not whole" if self.view.is_running(node) else "ended"

    def _refusing(self) -> list[str]:
        """Nodes that did not come back with their damaged files: they ended, or are not whole in
        time. One without others of its kind has all that there is, and stays as it is."""
        first = [
            node
            for node in self.targets
            if node not in self._wiped and len(self.view.alike(node)) > 1
        ]
        return [node for node in first if self._is_refusing(node)]

    def _is_refusing(self, node: str) -> bool:
        if self._started_s is None:
            return False
        if not self.view.is_running(node):
            return True
        return time.monotonic() - self._started_s > _COME_BACK_S and bool(self.missing())

    def is_undone(self) -> bool:
        return super().is_undone() and not (self.params.wipe and self._refusing())


class FileDamage(SeveralNodesFault[FileDamageParams]):
    """Stop nodes, damage some of their files (bits, zeros, a cut end), and start them after
    `for`."""

    kind = "file-damage"
    samples = ()  # it removes what was acknowledged
    abilities = (DamagesFiles, Killable, Stoppable, HasPlacement)
    params = FileDamageParams

    def commands(self, params: FileDamageParams, inventory: Inventory) -> list[str]:
        stop = "SIGKILL" if params.stop == "kill" else f"SIGTERM, within {_STOP_S:g} s,"
        what = {
            "flip": "flip a bit",
            "zero": f"write {in_units(params.size)} of zeros",
            "cut": f"cut off {in_units(params.size)}",
        }[params.damage]
        each = f"in {params.places} places of" if params.places > 1 else "in one of"
        files = "all its files" if params.files == "any" else f"its files of kind {params.files}"
        wipe = "; wipe one that does not come back, and start it again" if params.wipe else ""
        return [
            f"{stop} {self.who(params, inventory)}; {what} {each} {files}",
            f"after {params.for_:g} s: start again{wipe}",
        ]

    def seeded(
        self, view: ClusterView, targets: tuple[str, ...], params: FileDamageParams, seed: int
    ) -> FilesDamaged:
        return FilesDamaged(view, targets, params, seed)
