"""The kinds of fault, one module each. To add one: docs/howto/add-a-fault.md.

A kind is registered by being here: every class of a module of this package that names its ``kind``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

from faults.kit.injection import FaultKind


def _found() -> Iterator[FaultKind[Any]]:
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        for member in vars(module).values():
            is_own = isinstance(member, type) and member.__module__ == module.__name__
            if is_own and issubclass(member, FaultKind) and "kind" in vars(member):
                yield member()


#: Name in a scenario -> kind, in the order of names.
KINDS: Final[dict[str, FaultKind[Any]]] = {
    kind.kind: kind for kind in sorted(_found(), key=lambda kind: kind.kind)
}
