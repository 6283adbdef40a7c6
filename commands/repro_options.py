"""Options of `repro`: which do not go together, and versions that take the place of those of the arms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from commands.plans import pinned_version
from harness.errors import UsageError

if TYPE_CHECKING:
    from analysis.verdict.campaign import Question
    from harness.scenario.model import Scenario


class Replaced(Protocol):
    """Versions as they were asked for; empty = as the bug file says."""

    @property
    def affected(self) -> str: ...
    @property
    def fixed(self) -> str: ...


class Early(Replaced, Protocol):
    """What decides when to stop."""

    @property
    def quick(self) -> bool: ...
    @property
    def rounds(self) -> int | None: ...
    @property
    def until_hit(self) -> bool: ...
    @property
    def max_time_s(self) -> float | None: ...


def replaced_versions(scenario: Scenario, question: Question, request: Replaced) -> Iterator[str]:
    """``--affected`` and ``--fixed`` as settings: they replace the versions in which the two arms differ."""
    from harness.scenario.file import variants

    named = {question.affected: request.affected, question.fixed: request.fixed}
    arms = {name: _places(each) for name, each, _ in variants(scenario) if name in named}
    bad, good = arms[question.affected], arms[question.fixed]
    differ = [key for key in bad if bad[key] != good.get(key)]
    of_clients = [key for key in differ if key != _BROKERS] or differ
    for variant, version in named.items():
        if version and not of_clients:
            raise UsageError(
                f"the two variants of pair {question.pair} differ in no version, so none can be replaced",
                hint="--set KEY=VALUE sets the version of a client or of the brokers in both",
            )
        if version and len({arms[variant][key][0] for key in of_clients}) > 1:
            raise UsageError(
                f"the two variants of pair {question.pair} differ in the versions of several clients",
                hint=f"say which with --set variants.{variant}.override.KEY=VALUE",
            )
        for key in of_clients if version else ():
            of, _ = arms[variant][key]
            yield f"variants.{variant}.override.{key}={json.dumps(_named(scenario, of, key, version))}"


def _named(scenario: Scenario, of: str, key: str, version: str) -> str:
    try:
        return pinned_version(scenario, "" if key == _BROKERS else of, version)
    except UsageError as error:
        raise UsageError(f"{version} cannot be a version of {of}: {error}", hint=error.hint) from error


_BROKERS = "cluster.version"


def _places(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """Key of a version -> of what it is one, and which."""
    found = {_BROKERS: (scenario.system, scenario.cluster.version)}
    for side in ("producers", "consumers"):
        for name, spec in getattr(scenario.load, side).items():
            found[f"load.{side}.{name}.client_version"] = (spec.client, spec.client_version)
    return found


def refuse_mixture(request: Early) -> None:
    """Raises: UsageError: options that do not go together."""
    if request.max_time_s is not None and not request.until_hit:
        raise UsageError("--max-time bounds --until-hit", hint="add --until-hit, or leave out --max-time")
    if request.until_hit and (request.quick or request.rounds or request.fixed):
        raise UsageError(
            "--until-hit runs the affected version until it shows the bug",
            hint="leave out --quick, --rounds and --fixed",
        )
