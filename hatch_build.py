"""Puts the launcher into the wheel as the package itself; an editable install has it in its own
folder."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Launcher(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["launcher/brokerstorm"] = "/"
