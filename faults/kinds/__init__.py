"""The kinds of fault, one file each. To add one: docs/howto/add-a-fault.md."""

from __future__ import annotations

from typing import Any, Final

from faults.kinds.bandwidth import Bandwidth
from faults.kinds.blackhole import Blackhole
from faults.kinds.client_freeze import ClientFreeze
from faults.kinds.connection_close import ConnectionClose
from faults.kinds.connection_reset import ConnectionReset
from faults.kinds.controller_kill import ControllerKill
from faults.kinds.cpu_limit import CpuLimit
from faults.kinds.disk_full import DiskFull
from faults.kinds.kill import Kill
from faults.kinds.latency import Latency
from faults.kinds.leader_move import LeaderMove
from faults.kinds.mastership_move import MastershipMove
from faults.kinds.memory_limit import MemoryLimit
from faults.kinds.name_change import NameChange
from faults.kinds.packet_loss import PacketLoss
from faults.kinds.partition import Partition
from faults.kinds.pause import Pause
from faults.kinds.preferred_election import PreferredElection
from faults.kinds.restart import Restart
from faults.kinds.rolling_restart import RollingRestart
from faults.kinds.slow_disk import SlowDisk
from faults.kinds.split_bundle import SplitBundle
from faults.kinds.transfer import Transfer
from faults.kinds.unload import Unload
from faults.kinds.unload_storm import UnloadStorm
from faults.kit.injection import FaultKind

_ALL: Final[tuple[FaultKind[Any], ...]] = (
    Kill(),
    Restart(),
    RollingRestart(),
    Pause(),
    ControllerKill(),
    CpuLimit(),
    MemoryLimit(),
    DiskFull(),
    SlowDisk(),
    LeaderMove(),
    PreferredElection(),
    Unload(),
    UnloadStorm(),
    Transfer(),
    SplitBundle(),
    MastershipMove(),
    ConnectionClose(),
    ClientFreeze(),
    Partition(),
    Latency(),
    Bandwidth(),
    Blackhole(),
    ConnectionReset(),
    PacketLoss(),
    NameChange(),
)
#: Name in a scenario -> kind.
KINDS: Final[dict[str, FaultKind[Any]]] = {kind.kind: kind for kind in _ALL}
