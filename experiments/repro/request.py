"""Options of `repro`: which do not go together, versions instead of the arms', and what an earlier
one was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.report.documents import read_begun
from experiments.bundle.opening import is_bundle, run_of
from experiments.plans import pinned_version
from experiments.resolved import RoundOptions
from harness.errors import UsageError
from harness.scenario.file import variants

if TYPE_CHECKING:
    from analysis.verdict.campaign import Question
    from experiments.context import CommandContext
    from harness.scenario.model import Scenario
    from harness.telemetry.request import MetricsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproRequest:
    """The command line of `repro`."""

    bug: str
    pair: str
    rounds: int | None
    quick: bool
    seed: int | None
    overrides: tuple[str, ...]
    client_jars: Path | None
    affected: str = ""
    fixed: str = ""
    keep_up: bool
    offline: bool
    runtime: str
    master: str | None
    until_hit: bool = False
    max_time_s: float | None = None
    metrics: MetricsRequest | None = None

    def options(self) -> RoundOptions:
        """Where and how the rounds run."""
        return RoundOptions(
            runtime=self.runtime,
            offline=self.offline,
            keep_up=self.keep_up,
            master=self.master,
            metrics=self.metrics,
        )


def replaced_versions(
    scenario: Scenario, question: Question, request: ReproRequest
) -> Iterator[str]:
    """``--affected`` and ``--fixed`` as settings: they replace the versions in which the two arms
    differ."""
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
        raise UsageError(
            f"{version} cannot be a version of {of}: {error}", hint=error.hint
        ) from error


_BROKERS = "cluster.version"


def _places(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """Key of a version -> of what it is one, and which."""
    found = {_BROKERS: (scenario.system, scenario.cluster.version)}
    for side in ("producers", "consumers", "pipelines"):
        for name, spec in getattr(scenario.load, side).items():
            found[f"load.{side}.{name}.client_version"] = (spec.client, spec.client_version)
    return found


def libraries(scenario: Scenario, affected: str, fixed: str) -> list[str]:
    """Return the clients, or the system of the brokers, whose versions differ between two variants;
    if none differ, the clients of the affected variant."""
    arms = {
        name: _places(each) for name, each, _ in variants(scenario) if name in (affected, fixed)
    }
    bad, good = arms[affected], arms[fixed]
    differ = {of for key, (of, version) in bad.items() if good.get(key, ("", ""))[1] != version}
    return sorted(differ or {of for key, (of, _) in bad.items() if key != _BROKERS})


def refuse_mixture(request: ReproRequest) -> None:
    """Raises: UsageError: options that do not go together."""
    if request.max_time_s is not None and not request.until_hit:
        raise UsageError(
            "--max-time requires --until-hit", hint="add --until-hit, or remove --max-time"
        )
    if request.until_hit and (request.quick or request.rounds or request.fixed):
        raise UsageError(
            "--until-hit runs the affected version until it shows the bug",
            hint="remove --quick, --rounds and --fixed",
        )
    if request.quick and (request.rounds or 1) > 1:
        raise UsageError(
            f"--quick stops at the first hit and cannot be combined with --rounds {request.rounds}",
            hint="remove --quick or --rounds",
        )


def as_in_run(context: CommandContext, request: ReproRequest) -> ReproRequest:
    """The request, or what was asked when the folder or bundle was made that replaces a bug.

    Raises:
        UsageError: it holds no reproduction.
    """
    if not (Path(request.bug).is_dir() or is_bundle(request.bug)):
        return request
    run = run_of(context.run_dir, f"{request.bug}/" if Path(request.bug).is_dir() else request.bug)
    asked = read_begun(run) if run.campaign.exists() else None
    if asked is None or (question := asked.question) is None:
        raise UsageError(
            f"{run.root} was not left by `repro`", hint="`run --replay` repeats its faults"
        )
    if asked.seed is None and request.seed is None:
        raise UsageError(
            f"{run.root} has not been judged", hint=f"`brokerstorm analyze {run.root}` judges it"
        )
    again = replace(
        request,
        bug=str(run.scenario),
        pair=request.pair or question.pair,
        seed=asked.seed if request.seed is None else request.seed,
        overrides=(*question.overrides, *request.overrides),
    )
    if request.rounds or request.quick or request.until_hit:
        return again
    if question.until_hit:
        return replace(again, until_hit=True)
    return replace(again, quick=question.quick, rounds=question.rounds)
