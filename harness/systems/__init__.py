"""The message systems there are: one module per system, found by its file in this folder.

Imports nothing of ours but errors, so that everybody may ask. What starts a system's cluster is loaded late,
from the module of the same name in `harness.clusters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from harness.errors import UsageError
from harness.systems.base import System

__all__ = ["DEFAULT", "SYSTEMS", "System", "system_of"]


def _found() -> dict[str, System]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    systems = [module.SYSTEM for module in modules if hasattr(module, "SYSTEM")]
    return {system.name: system for system in systems}


SYSTEMS: Final[Mapping[str, System]] = _found()
#: Of a scenario or a plan that names none.
DEFAULT: Final = next(system for system in SYSTEMS.values() if system.is_default)


def system_of(name: str) -> System:
    """The system of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in SYSTEMS:
        raise UsageError(f"unknown system {name!r}", hint=f"there is: {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
