"""The message systems there are: a folder each, found by it.

The folder's own module has the facts of a system. It imports nothing of ours but errors, so that
everybody may ask; the rest of the folder is loaded when `System` is asked for it.
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
    folders = (found.name for found in iter_modules(__path__) if found.ispkg)
    systems = [import_module(f"{__name__}.{name}").SYSTEM for name in folders]
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
        raise UsageError(f"unknown system {name!r}", hint=f"the systems are {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
