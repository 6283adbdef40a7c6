"""Artemis as a cluster: one broker."""

from __future__ import annotations

from collections.abc import Callable

from harness.systems.artemis.admin import ArtemisAdmin

from harness.clusters.assembly import Assembly
from harness.clusters.layout.runtime import NodeRuntime
from harness.connections.security import ANYBODY, Access


class _Artemis(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> ArtemisAdmin:
        return ArtemisAdmin(runtime.nodes)

    def why_no_containers(self, version: str) -> str:
        return "the image of Artemis has other paths than this compose file"


ASSEMBLY = _Artemis()
