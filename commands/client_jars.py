"""``repro --client-jars DIR``: clients that no repository has, brought by the user."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.plan.model import Plan

#: A client version that is a folder of jars (`harness.workers.java_build`).
JARS = "jars:"
#: Jars that an error names.
MOST_NAMED = 4


def with_jars(plan: Plan, folder: Path | None) -> Plan:
    """``jars:0.5`` of a bug file is folder 0.5 of ``--client-jars``.

    Raises:
        UsageError: a version that only the user can bring, and they did not, or brought another.
    """

    def found(version: str) -> str:
        name = version.removeprefix(JARS)
        if not version.startswith(JARS) or Path(name).is_absolute():
            return version
        return f"{JARS}{_jars_of(name, folder, plan.variant)}"

    sides = {
        "producers": [
            p.model_copy(update={"client_version": found(p.client_version)}) for p in plan.producers
        ],
        "consumers": [
            c.model_copy(update={"client_version": found(c.client_version)}) for c in plan.consumers
        ],
    }
    return plan.model_copy(update=sides)


def _jars_of(version: str, folder: Path | None, variant: str) -> Path:
    where = folder / version if folder else Path("DIR") / version
    jars = sorted(path.name for path in where.glob("*.jar")) if folder else []
    if not jars:
        raise UsageError(
            f"{variant} needs jars that no repository has: there are none in {where}",
            hint=f"put the jars of version {version} into DIR/{version} and name DIR: --client-jars DIR",
        )
    # A pair of versions means nothing if both folders hold the same client.
    if not any(re.search(rf"[-_]{re.escape(version)}(?![0-9]|\.[0-9])", name) for name in jars):
        named = ", ".join(jars[:MOST_NAMED]) + (", ..." if len(jars) > MOST_NAMED else "")
        raise UsageError(
            f"{variant} is about version {version}, and no jar in {where} has it in its name: {named}",
            hint=f"the client's own jar must be there under its own name, such as client-{version}.jar",
        )
    return where.resolve()
