"""`brokerstorm hunt`: what changes can choose from, the rounds on shared clusters, the corpus and
what was found, written as they come."""

from __future__ import annotations

import copy
import random
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml

import faults
from experiments.campaign import CampaignRunner
from experiments.context import CommandContext
from experiments.experiment import Budget, Rounds
from experiments.folders import CAPTURE, begun, close_run_folder, keep_asked, kept, playing
from experiments.hunt.changes import Choices, load_seconds, with_options
from experiments.hunt.corpus import (
    Corpus,
    CorpusEntry,
    read_corpus,
    require_folder,
    write_entry,
)
from experiments.hunt.discoveries import (
    bundle_file,
    bundle_found,
    found_file,
    known_bugs,
    smallest_file,
    write_found,
)
from experiments.hunt.search import NO_REFERENCE, Discovery, Hunt
from experiments.judging import RoundOutcome
from experiments.plans import drawn, read_scenario, resolve_scenario
from experiments.preflight import preflight
from experiments.resolved import Resolved, RoundOptions, cluster_of, key_of, refuse_impossible
from experiments.shrink.reductions import cost, shape_of
from experiments.shrink.search import Search, Wanted
from experiments.shrink.targets import pinned_data, read_target
from experiments.versions import Releases, choose_clients, is_open
from faults.kit.errors import StepProblem
from harness.errors import BrokerstormError, UsageError, did_you_mean
from harness.rundir import Document, RunDir, new_run, reading, write_json
from harness.scenario.model import ConsumerSpec, ProducerSpec
from harness.systems import DEFAULT, SYSTEMS
from harness.toolchains.cache import cache_folder
from harness.workers import known_workers, load_worker

if TYPE_CHECKING:
    from analysis.spark.session import WarmSession
    from faults.kit.params import Inventory
    from harness.contracts.plan import FaultStep, Plan
    from harness.scenario.model import Scenario
    from harness.workers.spec import Ability, WorkerSpec

KIND: Final = "hunt"
#: In the folder of a hunt: the scenario that is checked, and the corpus unless another folder is
#: named.
CANDIDATE, CORPUS = "candidate.yaml", "corpus"
#: In the same folder, once the hunt has ended.
RESULT: Final = "hunt.json"
#: A round of a hunt is short: many different rounds find more than few long ones.
ROUND_S: Final = 10.0
_RATE_PER_S: Final = 1000
#: Time limits in seconds of a scenario that is not the user's. All faults end with the load, so a
#: call that was open for so long when producers are drained had the time to end.
_LIMITS: Final = {"recovery": 40, "drain": 30, "unbounded_call": 15}
#: Faults that need these at the start of a cluster are left out: disks, clocks and memory of nodes
#: would be slow or limited in every round, for a fault that few rounds have.
_COSTLY: Final = frozenset(
    {"synced-disk", "slow-volume", "data-volume", "memory-group", "own-clocks"}
)
#: After so many milliseconds, a message that was refused is delivered again to consumers that share
#: a topic.
_REDELIVERY_MS: Final = 1000
#: Steps of a kind of fault that are drawn to see whether it can be injected.
_STEPS: Final = 5
#: Part of the budget that searches for the smallest scenarios may take.
_SEARCH_SHARE: Final = 0.25
#: Part of the budget that scenarios of the corpus of before may take, and how long a round takes,
#: as a multiple of its load: a corpus grows every night, and each night plays something new.
_CORPUS_SHARE: Final = 0.5
_ROUND_TAKES: Final = 2.0
_ROLES: Final[Mapping[str, Literal["producer", "consumer"]]] = {
    "producers": "producer",
    "consumers": "consumer",
}
#: Writes candidates; the one in C is missing if libyaml was.
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
#: Keys of clients whose values their workers list.
_VALUES: Final[Mapping[str, Sequence[Ability]]] = {
    "producers": ("calls", "results"),
    "consumers": ("receive", "settle", "commit"),
}
#: Other keys of clients: what a worker must support for them, and values; None = without the key.
_FURTHER_VALUES: Final[Mapping[str, Mapping[str, tuple[tuple[Ability, str] | None, list[Any]]]]] = {
    "producers": {
        "batch": (("calls", "batch"), [10, 50, 500]),
        "threads": (("threads", "many"), [None, 3, 16]),
        "transactions": (
            ("transactions", "produce"),
            [None, {"messages": 20, "ids": 2}, {"messages": 100, "abort_every": 5}],
        ),
        "comes_and_goes": (None, [None, {"every": 4, "away": 0.5}]),
    },
    "consumers": {
        "commit_every": (None, [0.1, 1, 5]),
        "joins_after": (None, [None, 3]),
        "nack_every": (("settle", "ack"), [None, 50]),
        "pauses": (("pauses", "periodic"), [None, {"every": 3, "for": 1}]),
        "seeks": (("seeks", "back"), [None, {"every": 4, "back": 200}]),
        "work": (None, [None, 0.002]),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntRequest:
    """The command line of `hunt`. ``resume``: the folder of a hunt to continue, or its id."""

    scenario: str
    client: str
    system: str
    variant: str
    overrides: tuple[str, ...]
    seed: int | None
    budget_s: float | None
    rounds: int | None
    corpus: Path | None
    known: tuple[str, ...]
    reference: str
    resume: str | None
    offline: bool
    runtime: str
    master: str | None

    def options(self) -> RoundOptions:
        """Where and how the rounds run."""
        return RoundOptions(
            runtime=self.runtime,
            offline=self.offline,
            master=self.master,
            brief=self.master is None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntQuestion:
    """The question of `hunt`, written down before the first round.

    Attributes:
        data: the scenario that everything is changed from.
        before: the entries of the corpus that are played first.
        corpus_names, corpus_features: the names of all its entries at that time, and what they
            showed.
        kinds: kinds of fault that could be injected on the machine at that time.
        options: side and client -> sets of options that the client took at that time.
        is_calm: it is not a scenario of the user.
        reference: the client and version that what is found is played with, too; empty = none.
        search_s: seconds for the searches for the smallest scenarios.
    """

    command: str
    seed: int
    data: Document
    before: list[CorpusEntry] = field(default_factory=list)
    corpus_names: list[str] = field(default_factory=list)
    corpus_features: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    options: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)
    is_calm: bool = False
    reference: str = ""
    search_s: float = 0.0


def hunt(
    context: CommandContext,
    request: HuntRequest,
    *,
    root: RunDir | None = None,
    session: WarmSession | None = None,
) -> tuple[RunDir, Hunt, Path]:
    """Hunt until the budget is used up; the folder, what was found, and the corpus.

    Args:
        root: the folder for a hunt that is not continued; None = a new one in the folder of runs.
        session: judges the rounds; None = one of its own.

    Raises:
        BrokerstormError: it could not be started or was interrupted; the corpus so far is kept.
    """
    if request.resume is None:
        root, asked = _prepared(context, request, root)
    else:
        root, asked = begun(context.run_dir, request.resume, KIND, HuntQuestion)
    more = f" --corpus {shlex.quote(str(request.corpus))}" if request.corpus else ""
    with playing(root, f"brokerstorm hunt --resume {root.run_id} --budget 30m{more}"):
        try:
            return _play(context, request, root, asked, session)
        except BrokerstormError as error:
            if request.resume is None:  # a folder that was there before is not removed
                close_run_folder(root, error)
            raise


# ----- before anything is started -----------------------------------------------------------------


def _prepared(
    context: CommandContext, request: HuntRequest, root: RunDir | None = None
) -> tuple[RunDir, HuntQuestion]:
    """Everything that is decided before anything is started.

    Raises:
        BrokerstormError: it could not be started, and it has no folder.
    """
    notes: list[str] = []
    request = _with_releases(request, notes.append)
    data = _first(context, request)
    _refuse_short(request, data)
    seed = drawn(request.seed)
    root = root.create() if root else new_run(context.run_dir, str(data["name"]))
    options = request.options()
    try:
        if not request.scenario:
            data = _quick(context, options, root, data, seed)
        resolved = _resolved(root, options, data, seed)
        # Refuses a version that does not exist, before brokers are started.
        warnings = preflight(resolved, context.run_dir).require().warnings
        notes += [f"warning: {text}" for text in warnings]
        kinds = _kinds(context, options, root, data, seed)
        client_options = _options(context, options, root, data, seed)
        reference = _reference(request.reference, data)
        if reference:
            asked_too, _ = _with_reference(reference, data)
            try:
                resolved = _resolved(root, options, asked_too, seed)
                preflight(resolved, context.run_dir, ask_indexes=False).require()
            except BrokerstormError as error:
                if request.reference:
                    raise
                why = _why(root, error)
                notes.append(f"no reference client: {reference} cannot be used: {why}")
                reference = ""
        corpus = Corpus()
        if request.corpus:
            require_folder(request.corpus)
            prepare = partial(_prepare_entry, request, options, root)
            most = _most_entries(request, data)
            corpus = read_corpus(request.corpus, data, prepare, most=most, seed=seed)
            if len(corpus.entries) < len(corpus.names):
                notes.append(
                    f"{len(corpus.entries)} of the {len(corpus.names):,} scenarios of the corpus "
                    "are played first; the seed draws them"
                )
    except BrokerstormError as error:
        close_run_folder(root, error)
        raise
    with closing(context.progress()) as progress:
        for line in [*notes, *(f"left out of the corpus: {line}" for line in corpus.left_out)]:
            progress.note(line)
    asked = HuntQuestion(
        command=context.repeat_command("hunt", request, seed=seed),
        seed=seed,
        data=data,
        before=corpus.entries,
        corpus_names=corpus.names,
        corpus_features=corpus.features,
        kinds=kinds,
        options=client_options,
        known=list(request.known),
        is_calm=not request.scenario,
        reference=reference,
        search_s=(request.budget_s or 0.0) * _SEARCH_SHARE,
    )
    keep_asked(root, KIND, asked)
    return root, asked


def require_huntable(context: CommandContext, request: HuntRequest) -> None:
    """Check what a hunt checks before it asks package indexes or starts anything.

    Raises:
        BrokerstormError: the scenario or a client does not exist, a client is for another system,
            or the budget is shorter than one round.
    """
    data = _first(context, request)
    _refuse_short(request, data)
    _reference(request.reference, data)


def _with_releases(request: HuntRequest, tell: Callable[[str], None]) -> HuntRequest:
    """Return the request with the versions that ``latest`` and ``>=2.14`` select today, so that the
    command that repeats the hunt names them.

    Args:
        tell: gets a line if a package index does not answer and an older list is used.

    Raises:
        BrokerstormError: the client or the release does not exist, or the package index does not
            answer and no earlier list is there.
    """
    releases = Releases(cache_folder() / "releases", offline=request.offline, tell=tell)

    def released(client: str, option: str) -> str:
        _, _, asked = client.partition("@")
        if not is_open(asked):
            return client
        worker, _ = _worker_of(client, option)
        assert worker is not None
        try:
            chosen = choose_clients(releases, worker, asked)
        except BrokerstormError as error:
            raise type(error)(f"{option} {client}: {error}", hint=error.hint) from error
        return f"{worker.library}@{chosen[-1].version}"

    return replace(
        request,
        client=released(request.client, "--client"),
        reference=released(request.reference, "--reference"),
    )


def start_of(system: str) -> str:
    """Return the scenario whose load a hunt without a scenario of the user begins with."""
    return f"{system}-smoke"


def _first(context: CommandContext, request: HuntRequest) -> Document:
    """The scenario as it is played first: the user's, or a calm one of the system.

    Raises:
        BrokerstormError: there is no such scenario, client or system.
    """
    worker, version = _worker_of(request.client)
    system = request.system or (worker.system if worker else "")
    if worker and system and system not in worker.systems:
        raise UsageError(
            f"--client {worker.library} is for {', '.join(worker.systems)}, and --system is {system}"
        )
    if not request.scenario and not system:
        raise UsageError(
            "which scenario or client?",
            hint="`brokerstorm hunt --client kafka-clients --budget 30m`",
        )
    target = read_target(
        context.run_dir,
        request.scenario or start_of(system),
        cls="",
        variant=request.variant,
        overrides=request.overrides,
    )
    if worker and target.scenario.system not in worker.systems:
        raise UsageError(
            f"--client {worker.library} is for {', '.join(worker.systems)}, and "
            f"{request.scenario} is on {target.scenario.system}"
        )
    data = pinned_data(target)
    data["name"] = f"hunt-{worker.library if worker else target.scenario.name}"
    data["about"] = f"a hunt that began with {target.scenario.name}"
    load = data["load"]
    if not request.scenario:
        data["faults"] = []
        data["limits"] = {**data.get("limits", {}), **_LIMITS}
        load.update(duration=ROUND_S, warm_up=0)  # rates and latencies are not what is looked for
        if quick := SYSTEMS[system].quick_config:
            cluster = data.setdefault("cluster", {})
            cluster["config"] = {**cluster.get("config", {}), **quick}
    _write_clients(data, target.scenario)
    if not isinstance(load.get("rate"), int | float):
        load["rate"] = min(_RATE_PER_S, (load.get("rate") or {}).get("at_most") or _RATE_PER_S)
    # The machine need not keep the rate of each changed scenario.
    data["require"] = {**data.get("require", {}), "rate_ratio": 0.0}
    _use(data, worker, version)
    return data


def _write_clients(data: Document, scenario: Scenario) -> None:
    """Write the client of each producer and consumer where the file leaves it to the default."""
    for side in _VALUES:
        for name, spec in getattr(scenario.load, side).items():
            data["load"][side][name]["client"] = spec.client


def _prepare_entry(
    request: HuntRequest, options: RoundOptions, root: RunDir, entry: CorpusEntry
) -> None:
    """Let an entry of a corpus use the client that is asked for.

    Raises:
        UsageError: it cannot be played, as it was stored or with this client.
    """
    try:
        _resolved(root, options, entry.scenario, entry.seed)
        if not any(entry.scenario["load"].get(side) for side in _VALUES):
            raise UsageError("has neither producers nor consumers")
        _write_clients(entry.scenario, _read(root, entry.scenario))
        _use(entry.scenario, *_worker_of(request.client))
        _resolved(root, options, entry.scenario, entry.seed)
    except BrokerstormError as error:
        raise UsageError(_why(root, error)) from error


def _why(root: RunDir, error: BrokerstormError) -> str:
    """Return why a scenario cannot be used, in one line, without the name of its file: the file is
    one of the hunt and is gone soon."""
    candidate = re.escape(str(root.root / CANDIDATE))
    return " ".join(re.sub(rf"{candidate}(:\d+)?: ", "", str(error)).split())


def _most_entries(request: HuntRequest, data: Document) -> int | None:
    """Return how many entries of a corpus are played before the hunt changes scenarios; None
    = all."""
    if request.budget_s is None:
        return request.rounds
    return max(1, int(_CORPUS_SHARE * request.budget_s / (_ROUND_TAKES * cost(data)[0])))


def _refuse_short(request: HuntRequest, data: Document) -> None:
    """Raises: UsageError: the budget is shorter than one round."""
    round_s = cost(data)[0]
    if request.budget_s is not None and request.budget_s < round_s:
        raise UsageError(
            f"a budget of {request.budget_s:g} s is shorter than one round, which takes "
            f"{round_s:g} s and the time to start and to judge",
            hint="for example 10m",
        )


def _worker_of(client: str, option: str = "--client") -> tuple[WorkerSpec | None, str]:
    """The worker and version of ``NAME@VERSION``, as an option names it.

    Raises:
        UsageError: there is no such client.
    """
    if not client:
        return None, ""
    name, _, version = client.partition("@")
    libraries = known_workers()
    if name not in libraries:
        raise UsageError(f"{option} {client}: no such client", hint=did_you_mean(name, libraries))
    return load_worker(name), version


def _use(data: Document, worker: WorkerSpec | None, version: str) -> None:
    """Let every producer and consumer use one client, with settings that lose nothing and let
    several consumers share a topic, and without values that its worker does not have; without one,
    the scenario stays as it is."""
    if worker is None:
        return
    shared = {key: value.format(ms=_REDELIVERY_MS) for key, value in worker.contract.shared.items()}
    supports = worker.on_system(str(data.get("system", DEFAULT.name))).supports
    for side, role in _ROLES.items():
        for spec in data["load"].get(side, {}).values():
            if role not in worker.roles:
                continue
            if spec["client"] != worker.library:
                several = shared if spec.get("count", 1) > 1 else {}
                spec["options"] = dict(worker.contract.durable if side == "producers" else several)
                for key in _VALUES[side]:
                    if spec.get(key) not in (None, *supports.get(key, ())):
                        del spec[key]
                if spec.get("calls") != "batch":
                    spec.pop("batch", None)  # the size of the batches that it does not send
            spec.update(client=worker.library, client_version=version or worker.default_version)


def _reference(asked: str, data: Document) -> str:
    """Return ``NAME@VERSION`` of the reference client, empty for none: the one that is asked for,
    or the first other client of the system, its default client before all others.

    Raises:
        UsageError: the one that is asked for is not there, or is the client that is hunted.
    """
    if asked == NO_REFERENCE:
        return ""
    system = str(data.get("system", DEFAULT.name))
    used = {
        (spec["client"], spec["client_version"])
        for side in _VALUES
        for spec in data["load"].get(side, {}).values()
    }
    if asked:
        worker, version = _worker_of(asked, "--reference")
        assert worker is not None
        version = version or worker.default_version
        if system not in worker.systems:
            raise UsageError(
                f"--reference {worker.library} is for {', '.join(worker.systems)}, and the hunt is "
                f"on {system}"
            )
        if used == {(worker.library, version)}:
            raise UsageError(
                f"--reference {worker.library}@{version} is the client of the hunt",
                hint="name another client or version, or none",
            )
        return f"{worker.library}@{version}"
    others = [name for name in known_workers() if name not in {client for client, _ in used}]
    for name in sorted(others, key=lambda name: (name != SYSTEMS[system].client, name)):
        worker = load_worker(name)
        if system in worker.systems and {"producer", "consumer"} <= {*worker.roles}:
            return f"{name}@{worker.default_version}"
    return ""


def _with_reference(reference: str, data: Document) -> tuple[Document, str]:
    """Return a scenario with the reference client, and the change in words."""
    worker, version = _worker_of(reference)
    assert worker is not None
    changed = copy.deepcopy(data)
    _use(changed, worker, version)
    return changed, f"with {worker.library} {version}"


def _kinds(
    context: CommandContext, options: RoundOptions, root: RunDir, data: Document, seed: int
) -> list[str]:
    """The kinds of fault that this cluster and this machine can have."""
    (timeline,) = _resolved(root, options, data, seed).timelines

    def is_possible(step: FaultStep) -> bool:
        try:
            resolved = _resolved(root, options, {**data, "faults": [step]}, seed)
            if resolved.needs & _COSTLY:
                return False
            preflight(resolved, context.run_dir, ask_indexes=False, ask_clients=False).require()
        except BrokerstormError:
            return False
        return True

    return [
        name
        for name in faults.drawable(timeline.inventory, timeline.load_s)
        if _possible_step(name, timeline.inventory, data, is_possible)
    ]


# ----- the rounds ---------------------------------------------------------------------------------


def _play(
    context: CommandContext,
    request: HuntRequest,
    root: RunDir,
    asked: HuntQuestion,
    session: WarmSession | None,
) -> tuple[RunDir, Hunt, Path]:
    options = request.options()
    # Named by the user each time: the folder of a hunt may come from somebody else.
    corpus = request.corpus or root.root / CORPUS
    require_folder(corpus)

    def plan(data: Document, seed: int) -> Plan:
        (found,) = _resolved(root, options, data, seed).plans
        return found

    def repeat(name: str, seed: int) -> str:
        scenario = str(RunDir(root.root / name).scenario.absolute())
        asked = {"scenario": scenario, "seed": seed, "runtime": options.runtime}
        return context.repeat("run", asked)

    def search(found: Discovery, on_better: Callable[[], None]) -> Search:
        return Search(
            shape_of(_read(root, found.entry.scenario), found.entry.scenario),
            plan,
            Wanted(found.what[0]),
            found.entry.seed,
            asked.command,
            tell=tell,
            on_better=on_better,
        )

    inventories: dict[str, Inventory] = {}

    def inventory(data: Document) -> Inventory:
        key = key_of(data)
        if key not in inventories:
            inventories[key] = _resolved(root, options, data, asked.seed).timelines[0].inventory
        return inventories[key]

    with reading(root):  # the folder of a hunt that is continued may come from somebody else
        # The cluster is started with what any of the faults needs.
        plans = []

        def is_planned(step: FaultStep) -> bool:
            try:
                plans.append(plan({**asked.data, "faults": [step]}, asked.seed))
            except BrokerstormError:
                return False
            return True

        for name in asked.kinds:
            _possible_step(name, inventory(asked.data), asked.data, is_planned)
        if asked.reference:
            plans.append(plan(_with_reference(asked.reference, asked.data)[0], asked.seed))
        first = plan(asked.data, asked.seed)
        choices = Choices(
            kinds=asked.kinds,
            inventory=inventory,
            values=_values(asked.data),
            options={
                (side, client): sets
                for key, sets in asked.options.items()
                for side, _, client in [key.partition(" ")]
            },
        )
        for entry in asked.before:
            _prepare_entry(request, options, root, entry)
    resolved = Resolved(plans=[first, *plans], options=options, seed=asked.seed)
    with CampaignRunner(context, resolved, root, asked.command, session=session) as campaign:
        budget = Budget(request.budget_s)
        began = time.monotonic()

        def tell(text: str) -> None:
            campaign.progress.note(f"{text} · {time.monotonic() - began:.0f} s{budget.left_text}")

        hunting = Hunt(
            first=asked.data,
            seed=asked.seed,
            plan=plan,
            choices=choices,
            repeat=repeat,
            before=asked.before,
            corpus_names=frozenset(asked.corpus_names),
            corpus_features=frozenset(asked.corpus_features),
            known=frozenset(asked.known),
            is_calm=asked.is_calm,
            rounds_at_most=_most_rounds(root, request.rounds),
            reference=partial(_with_reference, asked.reference) if asked.reference else None,
            search=search,
            search_s=asked.search_s,
            tell=tell,
            on_entry=partial(write_entry, corpus),
            on_nothing_new=partial(_remove_capture, root),
            on_found=partial(write_found, root, command=asked.command),
        )
        Rounds(root, campaign, budget=budget, tell=tell).run(hunting.rounds())
        for each in hunting.found:
            if why_not := bundle_found(root, each):
                campaign.progress.note(why_not)
    write_json(root.root / RESULT, document(root, hunting, corpus, asked.command))
    return root, hunting, corpus


def _most_rounds(root: RunDir, asked: int | None) -> int | None:
    """Return the limit of rounds. Rounds that were played before count, and none of them is left
    out, or what they had found would be missing."""
    return None if asked is None else max(asked, len(kept(root, RoundOutcome)))


def _remove_capture(root: RunDir, name: str) -> None:
    """Remove the captured rows of a round: a hunt of a night plays hundreds. What was judged of
    it stays. The folder of a hunt may come from somebody else: a link is not followed."""
    if (root.root / name).is_symlink():
        return
    for each in CAPTURE:
        shutil.rmtree(root.root / name / each, ignore_errors=True)


def _possible_step(
    name: str, inventory: Inventory, data: Document, is_possible: Callable[[FaultStep], bool]
) -> FaultStep | None:
    """Return the first possible one of a few steps of a kind, the same each time, to see what the
    kind needs; None if all of them are impossible."""
    for number in range(_STEPS):
        rng = random.Random(f"{name} {number}")
        try:
            step = faults.draw_step(name, inventory, rng, load_seconds(data))
        except StepProblem:  # none of its drawn steps fits into the load
            continue
        if is_possible(step):
            return step
    return None


def _values(data: Document) -> dict[tuple[str, str], Mapping[str, Sequence[Any]]]:
    """For each client of a scenario, the keys that its worker supports several values of."""
    found: dict[tuple[str, str], Mapping[str, Sequence[Any]]] = {}
    for side, keys in _VALUES.items():
        for worker in _workers(data, side):
            supports = worker.supports
            several = [key for key in keys if len(supports.get(key, [])) > 1]
            further = {
                key: values
                for key, (ability, values) in _FURTHER_VALUES[side].items()
                if ability is None or ability[1] in supports.get(ability[0], [])
            }
            listed = {str(key): _without_default(side, key, supports[key]) for key in several}
            found[side, worker.library] = {**listed, **further}
    return found


def _without_default(side: str, key: str, values: Sequence[str]) -> list[str | None]:
    """Return the values of a key of a client; None instead of the one that it has if it is left
    out. A consumer that settles nothing soon gets nothing more, so that value is not drawn."""
    spec = ProducerSpec if side == "producers" else ConsumerSpec
    default = spec.model_fields[key].default
    drawn = [value for value in values if (key, value) != ("settle", "none")]
    return [None if value == default else value for value in drawn]


def _options(
    context: CommandContext, options: RoundOptions, root: RunDir, data: Document, seed: int
) -> dict[str, list[dict[str, str]]]:
    """For each side and client of a scenario, the sets of options that its worker lists and that
    its client takes."""
    found: dict[str, list[dict[str, str]]] = {}
    for side, role in _ROLES.items():
        for worker in _workers(data, side):
            for each in worker.variations.get(role, []):
                changed = copy.deepcopy(data)
                for spec in changed["load"].get(side, {}).values():
                    if spec["client"] == worker.library:
                        spec["options"] = with_options(spec.get("options", {}), each)
                try:
                    resolved = _resolved(root, options, changed, seed)
                    preflight(resolved, context.run_dir, ask_indexes=False).require()
                except BrokerstormError:
                    continue
                found.setdefault(f"{side} {worker.library}", []).append(each)
    return found


def _quick(
    context: CommandContext, options: RoundOptions, root: RunDir, data: Document, seed: int
) -> Document:
    """Return a scenario with the short timeouts that its workers list, so that a call that never
    ends shows within a round; the scenario itself if a client does not take them."""
    changed = copy.deepcopy(data)
    for side, role in _ROLES.items():
        quick = {worker.library: worker.quick.get(role, {}) for worker in _workers(data, side)}
        for spec in changed["load"].get(side, {}).values():
            spec["options"] = {**spec.get("options", {}), **quick[spec["client"]]}
    try:
        resolved = _resolved(root, options, changed, seed)
        preflight(resolved, context.run_dir, ask_indexes=False).require()
    except BrokerstormError:
        return data
    return changed


def _workers(data: Document, side: str) -> list[WorkerSpec]:
    """Return the workers of one side of a scenario, each once."""
    system = str(data.get("system", DEFAULT.name))
    clients = dict.fromkeys(spec["client"] for spec in data["load"].get(side, {}).values())
    return [load_worker(client, data.get("workers", ()), system=system) for client in clients]


def _resolved(root: RunDir, options: RoundOptions, data: Document, seed: int) -> Resolved:
    """A scenario as it would be read from a file, and checked as `plan` checks it.

    Raises:
        BrokerstormError: `plan` refuses it.
    """
    resolved = resolve_scenario(_read(root, data), options, seed=seed, rounds=1)
    for plan, timeline in zip(resolved.plans, resolved.timelines, strict=True):
        refuse_impossible(timeline, cluster_of(plan), resolved.checked_runtime, plan.broker_config)
    return resolved


def _read(root: RunDir, data: Document) -> Scenario:
    """Return the checked scenario of a candidate; its file stays until the next one.

    Raises:
        BrokerstormError: it is none.
    """
    path = root.root / CANDIDATE
    path.unlink(missing_ok=True)  # it may be a link of somebody else's
    path.write_text(yaml.dump(data, Dumper=_DUMPER))  # the readable form takes ten times as long
    return read_scenario(str(path))


def document(root: RunDir, hunting: Hunt, corpus: Path, command: str) -> Document:
    """Return the result of a hunt as data, for ``--json`` and for the night that it is part of."""
    return {
        "exit_code": int(hunting.exit_code),
        "command": command,
        "folder": str(root.root),
        "corpus": str(corpus),
        "rounds": hunting.played,
        "judged": hunting.judged,
        "entries": hunting.corpus_entries,
        "new_entries": hunting.new_entries,
        "features": len(hunting.seen),
        "new_features": len(hunting.new_features),
        "found": [_found_document(root, each) for each in hunting.found],
    }


def _found_document(root: RunDir, found: Discovery) -> Document:
    smallest, bundle = smallest_file(root, found), bundle_file(root, found)
    return {
        "number": found.number,
        "what": list(found.what),
        "is_violation": found.is_violation,
        "rounds": found.rounds,
        "shown": found.shown,
        "reference_judged": found.reference_judged,
        "reference_shown": found.reference_shown,
        "known_bugs": list(known_bugs(found)),
        "file": str(found_file(root, found)),
        "smallest": str(smallest) if smallest.exists() else "",
        "bundle": str(bundle) if bundle.exists() else "",
        "seed": found.entry.seed,
        "changes": list(found.entry.changes),
    }
