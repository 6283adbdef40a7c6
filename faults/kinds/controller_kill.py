"""controller-kill: a crash of the node that decides who leads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faults.kinds.kill import Kill, KillParams


class ControllerKillParams(KillParams):
    target: Literal["controller"] = Field("controller", description="always the active controller")


class ControllerKill(Kill):
    """SIGKILL the active controller: an election comes before any leader can move."""

    kind = "controller-kill"
    params = ControllerKillParams
