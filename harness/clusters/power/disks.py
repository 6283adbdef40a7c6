"""The disks of a cluster's nodes: one process of `powerfs/` in this folder, mounted on each data
folder.

It passes everything through to the folder below and remembers what each file was when it was last
synced (fsync, fdatasync, a write with O_SYNC or O_DSYNC; the kernel turns msync into writes and an
fsync). Like the network proxy it is built once and has a pid file and the run id, so that `clean`
finds it; `clean` unmounts what it leaves. What is in a folder before it is mounted counts as
synced.

It can also disturb single operations: they fail, come late, or are said to be done.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.clusters.limits.volumes import unmount, volumes_below
from harness.clusters.nodes.file_damage import patterns_of
from harness.clusters.nodes.node_process import NodeFolder, NodeProcess
from harness.errors import EnvironmentNotReady
from harness.protocols.disturbed_disks import Disturbance, Disturbed
from harness.protocols.power import Unsynced
from harness.toolchains.go_tool import GoTool
from harness.waiting import wait_while

DISK, FOLDERS = "synced-disk", "synced-folders"
GIVES: Final = frozenset({DISK, FOLDERS})
PROGRAM: Final = GoTool(
    "powerfs 3", "FUSE file system", "faults on disks", Path(__file__).parent / "powerfs"
)
_DEVICE: Final = Path("/dev/fuse")
#: A name of its own among the nodes of the cluster folder.
_FOLDER: Final = "power"
_START_S, _ANSWER_S = 20.0, 60.0


def why_not(need: str) -> str:
    """Why no disk can lose power here; empty when one can."""
    if not _DEVICE.exists():
        return f"this system has no {_DEVICE} (FUSE)"
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    return "" if os.access(_DEVICE, os.R_OK | os.W_OK) else f"{_DEVICE} cannot be opened"


class PowerDisks(NodeProcess):
    """The mounted data folders of a cluster.

    Args:
        folder: of the cluster.
        data: node -> its data folder.
    """

    def __init__(
        self, run_id: str, folder: Path, data: Mapping[str, Path], needs: frozenset[str]
    ) -> None:
        super().__init__("the file system that loses power", NodeFolder(folder / _FOLDER), run_id)
        self._data = dict(data) if needs & GIVES else {}
        self._folders = FOLDERS in needs
        self._socket = f"brokerstorm-power-{run_id}"

    def start(self) -> None:
        """Mount the data folders, which exist; returns when that is done. No-op without the need.

        Raises:
            EnvironmentNotReady: no Go, or the machine refuses it.
        """
        if not self._data or self.is_running():
            return
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        kept = ["-keep-unlinked"] if self._folders else []
        mounts = [f"{node}={path}" for node, path in self._data.items()]
        command = [str(PROGRAM.fetch()), "-socket", self._socket, *kept, *mounts]
        self.launch(command, dict(os.environ))
        if error := wait_while(self._silence, _START_S, every_s=0.02):
            raise error

    def _silence(self) -> EnvironmentNotReady | None:
        """Return why the file system does not answer; None when it does. It listens after
        everything is mounted.
        """
        try:
            self._ask("state", next(iter(self._data)))
        except EnvironmentNotReady as error:
            if not self.is_running():
                raise self.why_dead() from None
            return error
        return None

    def drop(self, node: str, *, torn: bool, folders: bool, seed: int) -> Unsynced:
        """Drop what was not synced; see `LosesPower.drop_unsynced`."""
        self._refuse_unmounted(node)
        if folders and not self._folders:
            raise _not_given(FOLDERS)
        said = self._ask("lose", node, torn=torn, lost=folders, seed=seed)
        return Unsynced(
            said["files"],
            said["bytes"],
            said["entries"],
            tuple(said["names"]),
            said["claimed"],
            tuple(said["claimed_files"]),
            tuple(said["claimed_entries"]),
        )

    def keep_written(self) -> None:
        """Keep what was written; see `LosesPower.keep_written`."""
        for node in self._data:
            self._ask("keep", node)

    def disturb(
        self,
        node: str,
        name: str,
        disturbance: Disturbance,
        kinds: Mapping[str, Sequence[str]],
    ) -> None:
        """Begin a disturbance; see `DisturbsDisks.disturb_disk`.

        Args:
            kinds: by kind of file, patterns of paths below the data folder.
        """
        self._refuse_unmounted(node)
        of, but = patterns_of(disturbance.files, kinds)
        asked = {
            "act": disturbance.act,
            "operations": disturbance.operations,
            "share": disturbance.share,
            "errno": disturbance.errno,
            "delay_ms": disturbance.delay_s * 1e3,
            "of": of,
            "but": but,
            "seed": disturbance.seed,
        }
        self._ask("disturb", node, name=name, disturbance=asked)

    def disturbed(self, node: str, name: str) -> Disturbed | None:
        """Return the counts of a disturbance; see `DisturbsDisks.disk_disturbed`."""
        self._refuse_unmounted(node)
        return _counts(self._ask("count", node, name=name))

    def calm(self, node: str, name: str = "") -> Disturbed:
        """Undo a disturbance, or all of a disk; return what it met. No-op without the need."""
        if node not in self._data:
            return Disturbed()
        return _counts(self._ask("undo", node, name=name)) or Disturbed()

    def _refuse_unmounted(self, node: str) -> None:
        if node not in self._data:
            raise _not_given(DISK)

    def down(self) -> None:
        """End it and unmount the folders, whose users are gone. Idempotent.

        Raises:
            HealError: a folder is still in use.
        """
        self.kill()
        below = volumes_below(self.folder.root.parent.resolve()) if self._data else []
        for path in sorted({path for path in below if path in self._data.values()}):
            unmount(path)

    def _ask(self, what: str, node: str, **more: Any) -> dict[str, Any]:
        """Ask one question; return the answer.

        Raises:
            EnvironmentNotReady: no answer, or its complaint.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.settimeout(_ANSWER_S)
                peer.connect(f"\0{self._socket}")
                peer.sendall(json.dumps({"do": what, "disk": node, **more}).encode())
                said: dict[str, Any] = json.loads(peer.makefile("rb").read() or b"{}")
        except (OSError, ValueError) as error:
            raise EnvironmentNotReady(
                f"{self.name} does not answer: {error}",
                hint=f"its log is {self.folder.logs / 'stderr.log'}",
            ) from error
        if said.get("error") or "files" not in said:
            raise EnvironmentNotReady(f"{self.name}: {said.get('error', 'no answer')}")
        return said


def _not_given(need: str) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"this cluster was started without {need}",
        hint="start it with a scenario whose faults need it: `brokerstorm up SCENARIO`",
    )


def _counts(said: Mapping[str, Any]) -> Disturbed | None:
    counts = said.get("counts")
    return Disturbed(counts["seen"], counts["met"], tuple(counts["files"])) if counts else None
