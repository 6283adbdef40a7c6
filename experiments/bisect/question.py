"""Checks what a bisection asks, and makes the plan of each of its rounds; nothing is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.classes import CLASSES
from experiments.bisect.commits import ordered_ends
from experiments.context import CommandContext
from experiments.plans import drawn, read_scenario
from experiments.versions import Releases, between, choose, is_open
from harness.errors import UsageError, did_you_mean
from harness.plan.build import build_plan
from harness.rundir import resolved
from harness.scenario.file import variants
from harness.scenario.merging import deep_merge
from harness.scenario.model import VariantSpec
from harness.toolchains.cache import cache_folder
from harness.toolchains.own_builds import is_own
from harness.workers import load_worker, released

if TYPE_CHECKING:
    from harness.contracts.plan import Plan
    from harness.scenario.model import Scenario

CLEAN: Final = "clean"
_SIDES: Final = ("producers", "consumers")


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectSettings:
    """The options of `bisect` that its question keeps. Empty texts: as the bug file says.

    Attributes:
        variant: of the scenario, with another version of the client; empty = it has none.
        error: the highest probability that any of the answers is wrong.
        rate: share of rounds from which on the class is called present.
    """

    scenario: str
    overrides: tuple[str, ...]
    client: str
    variant: str
    good: str
    bad: str
    error: float
    rate: float
    runtime: str
    master: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectRequest(BisectSettings):
    """The command line of `bisect`."""

    repo: Path | None
    pair: str
    cls: str
    seed: int | None
    offline: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectQuestion(BisectSettings):
    """The question with every option decided, written down before the first round.

    Attributes:
        expect: the class; ``clean`` = any violation.
        counter, floor: exposure that a round needs to count; no counter = as the verdict says.
        versions: the ends and what is released between them, oldest first; of a repository only its
            ends.
        repo: the checkout; empty = releases.
        is_fix: the older end is the bad one.
        witness: what tells the bug from others of its class; empty = the class does.
    """

    expect: str
    counter: str
    floor: int
    versions: tuple[str, ...]
    repo: str
    is_fix: bool
    seed: int
    command: str
    witness: str = ""

    @property
    def direction(self) -> str:
        """Return what is looked for: *first fixed* or *first bad*."""
        return "first fixed" if self.is_fix else "first bad"


def question_of(
    context: CommandContext, request: BisectRequest, scenario: Scenario, tell: Callable[[str], None]
) -> BisectQuestion:
    """Everything that is decided before anything is started.

    Args:
        tell: gets one line when an older list of releases had to do.

    Raises:
        UsageError: what is asked does not fit the scenario, the client or its releases.
        EnvironmentNotReady: the package index does not answer.
    """
    variant, expect, arms = _asked_variant(request, scenario)
    merged = _merged(scenario)
    client = request.client or _client_of(merged, arms or (variant,))
    _refuse_unused(client, merged[variant])
    bad = request.bad or (_version_in(merged[arms[0]], client) if arms else "")
    good = request.good or (_version_in(merged[arms[1]], client) if arms else "")
    if not (bad and good):
        missing = " and ".join(name for name, end in (("--good", good), ("--bad", bad)) if not end)
        raise UsageError(f"{scenario.name} does not say where to begin: {missing} is missing")
    if request.repo is None:
        (bad, good), versions = _released(client, (bad, good), scenario, request.offline, tell)
    else:
        bad, good, versions = ordered_ends(request.repo, bad, good)
    bug = scenario.bug if arms else None
    exposure = bug.exposure if bug else None
    seed = drawn(request.seed)
    settings = {each.name: getattr(request, each.name) for each in fields(BisectSettings)}
    decided = {"client": client, "variant": variant, "good": good, "bad": bad}
    return BisectQuestion(
        **settings | decided,
        expect=expect,
        counter=exposure.counter if exposure else "",
        floor=exposure.floor if exposure else 0,
        witness=bug.witness if bug and not request.cls else "",
        versions=tuple(versions),
        repo=str(resolved(request.repo)) if request.repo else "",
        is_fix=versions[0] == bad,
        seed=seed,
        command=context.repeat_command(
            "bisect", request, client=client, good=good, bad=bad, seed=seed
        ),
    )


def _asked_variant(request: BisectRequest, scenario: Scenario) -> tuple[str, str, tuple[str, ...]]:
    """The variant, the class, and of a known bug the affected and the fixed variant."""
    if request.cls and request.cls not in CLASSES:
        raise UsageError(
            f"--class {request.cls}: no such class; {did_you_mean(request.cls, CLASSES)}"
        )
    bug, variants = scenario.bug, scenario.variants
    if bug is not None and not request.variant:
        pair = request.pair or next(iter(bug.pairs))
        if pair not in bug.pairs:
            raise UsageError(
                f"{scenario.name} has no pair {pair!r}", hint=f"its pairs: {', '.join(bug.pairs)}"
            )
        arms = bug.pairs[pair]
        return (
            arms.affected,
            request.cls or variants[arms.affected].expect,
            (arms.affected, arms.fixed),
        )
    if request.pair:
        raise UsageError(
            f"--pair {request.pair}: only a known bug has pairs; --variant names a variant"
        )
    if request.variant and request.variant not in variants:
        known = ", ".join(variants) or "none"
        raise UsageError(
            f"{scenario.name} has no variant {request.variant!r}", hint=f"its variants: {known}"
        )
    if variants and not request.variant:
        raise UsageError(
            f"{scenario.name} has variants: which one?",
            hint=f"--variant, one of {', '.join(variants)}",
        )
    expect = variants[request.variant].expect if request.variant else CLEAN
    return request.variant, request.cls or expect, ()


def _merged(scenario: Scenario) -> dict[str, Scenario]:
    return {name: merged for name, merged, _ in variants(scenario)}


def _uses(merged: Scenario) -> list[tuple[str, str, str, str]]:
    """Side, name, client and version of everything that has a client."""
    return [
        (side, name, spec.client, spec.client_version)
        for side in _SIDES
        for name, spec in getattr(merged.load, side).items()
    ]


def _client_of(merged: dict[str, Scenario], arms: Sequence[str]) -> str:
    """The client whose version makes the difference, or the only one.

    Raises:
        UsageError: there are several.
    """
    uses = [set(_uses(merged[name])) for name in arms]
    every = {client for side in uses for _, _, client, _ in side}
    differing = {client for _, _, client, _ in uses[0] ^ uses[-1]}
    for found in (differing, every):
        if len(found) == 1:
            return found.pop()
    raise UsageError("which client?", hint=f"--client, one of {', '.join(sorted(every))}")


def _refuse_unused(client: str, merged: Scenario) -> None:
    used = sorted({each for _, _, each, _ in _uses(merged)})
    if client not in used:
        raise UsageError(
            f"--client {client}: the scenario does not use it; {did_you_mean(client, used)}"
        )


def _version_in(merged: Scenario, client: str) -> str:
    """The version of a client that a variant names, if it names one."""
    named = {version for _, _, each, version in _uses(merged) if each == client}
    return named.pop() if len(named) == 1 else ""


def _released(
    client: str,
    ends: tuple[str, str],
    scenario: Scenario,
    offline: bool,
    tell: Callable[[str], None],
) -> tuple[tuple[str, str], list[str]]:
    """The ends, ``latest`` resolved, and the releases between them."""
    worker = load_worker(client, scenario.worker_folders)
    family = next((end.rpartition(" ")[0] for end in ends if " " in end), "")
    name = f"{client} {family}".strip() if family else client
    named = next((end for end in ends if not is_open(end)), "")
    known = Releases(cache_folder() / "releases", offline=offline, tell=tell).releases_of(
        name, lambda: released(worker, named)
    )
    bad, good = (
        choose(end, named or worker.default_version, known)[-1].version if is_open(end) else end
        for end in ends
    )
    return (bad, good), between((bad, good), known)


# ----- plans --------------------------------------------------------------------------------------


class VersionPlans:
    """The plans of a question: one scenario, in which only the version of the client changes."""

    def __init__(self, question: BisectQuestion) -> None:
        self.question = question
        self._scenario = read_scenario(question.scenario, question.overrides)
        self._uses = _uses(_merged(self._scenario)[question.variant])

    @property
    def scenario(self) -> Scenario:
        return self._scenario

    def plan(self, label: str, client_version: str, number: int) -> Plan:
        """The plan of round ``number``, from 1; every version has the same seeds and so the same
        faults.

        Args:
            label: names the version in folders and views.
        """
        question = self.question
        load: dict[str, dict[str, Any]] = {side: {} for side in _SIDES}
        for side, name, client, _ in self._uses:
            if client == question.client:
                load[side][name] = {"client_version": client_version}
        given = self._scenario.variants.get(question.variant) or VariantSpec(
            about=self._scenario.about
        )
        override = deep_merge(
            given.override, {"load": {side: names for side, names in load.items() if names}}
        )
        expect = given.expect if given.expect != CLEAN else question.expect
        made = given.model_copy(update={"override": override, "expect": expect})
        only = self._scenario.model_copy(update={"variants": {label: made}})
        ((_, merged, _),) = variants(only)
        # A build of the user's is pinned to what is there.
        named = {version for _, _, client, version in _uses(merged) if client == question.client}
        if named != {client_version} and not is_own(client_version):
            raise UsageError(
                f"--set decides the version of {question.client}, which is what is bisected"
            )
        seed = question.seed + number - 1
        return build_plan(merged, seed=seed, variant=label, expect=expect, about=made.about)


def label_of(version: str, is_commit: bool) -> str:
    """A version as folders and views name it."""
    return version[:12] if is_commit else re.sub(r"[^A-Za-z0-9._-]+", "-", version)
