"""From a suite to its cells: every combination that is not excluded, in the order of the file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from typing import Final, TypeVar

from analysis.classes import CLASSES
from experiments.hunt.search import NO_REFERENCE
from experiments.nights.file import SuiteFile
from experiments.nights.model import HuntSpec, MatrixSpec
from experiments.versions import DEFAULT, Chosen
from harness.errors import BrokerstormError, UsageError, did_you_mean
from harness.plan.estimate import ROUND_OVERHEAD_S
from harness.scenario.bundled import name_of
from harness.toolchains.own_builds import absolute, is_own

_T = TypeVar("_T")
MAX_CELLS: Final = 10_000
SEEDS: Final = 1_000_000
#: Rounds that the affected version of a bug is given to show it: most do in the first.
BUG_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The part of a scenario that a matrix needs.

    Attributes:
        cluster: what distinguishes its brokers from others: topology and settings, as text.
        clients: library -> keys of the scenario that name it (``load.producers.shop``).
        pairs: of a known bug, in the order of its file -> the variants it compares.
        variants: names; empty = one without a name.
        round_s: warm-up and load of a round of one variant, on average.
    """

    system: str
    version: str
    cluster: str
    clients: Mapping[str, tuple[str, ...]]
    pairs: Mapping[str, tuple[str, ...]]
    variants: tuple[str, ...]
    round_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntCell:
    """The part of a cell that only a hunt has.

    Attributes:
        corpus: folder; empty = one in the folder of runs.
        is_calm: it begins with a load without faults, and not with the user's scenario.
    """

    budget_s: float
    corpus: str = ""
    known: tuple[str, ...] = ()
    reference: str = ""
    is_calm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination; what is run is `run SCENARIO` or `repro SCENARIO --pair` with ``overrides``.

    Attributes:
        id: the same every night, whatever its versions resolve to.
        scenario: name or file.
        pair: of a bug; empty = a scenario.
        client, client_version: the library that is varied and what its version resolved to; empty =
            none.
        overrides: ``KEY=VALUE``, as of ``--set``.
        rounds: new seeds a night.
        tries: of a bug: rounds of the affected version that one seed begins, at most.
        seeds: instead of new ones.
        group: cells with the same one can share a cluster.
        shard: number by which cells are dealt to machines. A release that appears while one machine
            has planned and another has not adds cells and moves none.
        variants: as of `Facts`.
        guess_s: expected time of one round of one variant, without any history.
        hunt: it is a hunt.
    """

    id: str
    scenario: str
    pair: str = ""
    system: str = ""
    client: str = ""
    client_version: str = ""
    broker_version: str = ""
    settings: str = ""
    overrides: tuple[str, ...] = ()
    runtime: str = "auto"
    rounds: int = 1
    tries: int = 1
    seeds: tuple[int, ...] = ()
    priority: int = 0
    is_control: bool = False
    group: str = ""
    shard: int = 0
    variants: tuple[str, ...] = ()
    guess_s: float = 0.0
    hunt: HuntCell | None = None

    @property
    def slug(self) -> str:
        """A folder's name: readable, and never another cell's."""
        short = re.sub(r"[^A-Za-z0-9._]+", "-", self.id).strip("-.")[:80]
        return f"{short}-{hashlib.sha256(self.id.encode()).hexdigest()[:6]}"

    @property
    def history_cells(self) -> tuple[str, ...]:
        """The names that its rounds have in the history: one a variant where there are several."""
        return (
            tuple(f"{self.id}/{name}" for name in self.variants)
            if len(self.variants) > 1
            else (self.id,)
        )

    def fresh_seeds(self, night_seed: int) -> list[int]:
        """Seeds of a night. Cells of one scenario have the same ones: they meet the same faults."""
        if self.seeds:
            return list(self.seeds)
        name = name_of(self.scenario)  # where the file lies decides nothing
        texts = (f"{night_seed}/{name}/{number}" for number in range(self.rounds))
        return [
            int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % SEEDS for text in texts
        ]


@dataclass(frozen=True, slots=True)
class Axes:
    """The questions of a matrix to the rest of the code: scenarios, and the versions of today.

    Attributes:
        facts: scenario and overrides -> what it is; raises `UsageError`.
        client: library, asked version -> versions; raises `BrokerstormError`.
        broker: system, asked version -> versions; raises `BrokerstormError`.
        start: client library -> the scenario that a hunt of it begins with.
        clients: the libraries there are.
        systems: the systems there are.
        overhead_s: of a round besides its load: start, drain, audit, judging.
    """

    facts: Callable[[str, tuple[str, ...]], Facts]
    client: Callable[[str, str], list[Chosen]]
    broker: Callable[[str, str], list[Chosen]]
    start: Callable[[str], str]
    clients: tuple[str, ...]
    systems: tuple[str, ...]
    overhead_s: float = ROUND_OVERHEAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Combination:
    """One value of each axis of a matrix.

    Attributes:
        label, settings: name of the settings in the file, and the settings as overrides.
        pair: version pair of a known bug; empty for a scenario.
        library, client: the client and its version; both empty if the scenario decides.
    """

    scenario: str
    label: str
    settings: tuple[str, ...]
    pair: str
    library: str
    client: Chosen
    broker: Chosen
    runtime: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """A combination as it comes from the file, before exclusions.

    Attributes:
        names: by key of an exclusion, what its pattern may fit.
        written: the combination in the words of the file, and its place among those that they mean.
    """

    cell: Cell
    names: Mapping[str, tuple[str, ...]]
    written: tuple[str, ...]
    place: int


def expand(file: SuiteFile, axes: Axes) -> list[Cell]:
    """Every cell of a suite.

    Raises:
        UsageError: a scenario, bug, client or version that there is not, with its line; no cell at
            all, too many, or the same one twice.
        BrokerstormError: a package index that does not answer.
    """
    cells: dict[str, Cell] = {}
    ranks: dict[tuple[str, ...], int] = {}
    for number, spec in enumerate(file.suite.cells):
        if not (spec.scenarios or spec.bugs):
            raise file.error(
                ("cells", number), "is an empty matrix: it names neither scenarios nor bugs"
            )
        made = 0
        for cell in _of_matrix(file, number, spec, axes, ranks):
            made += 1
            if cell.id in cells:
                raise file.error(("cells", number), f"cell {cell.id} is there twice", hint=_TWICE)
            cells[cell.id] = cell
            if len(cells) > MAX_CELLS:
                raise file.error(("cells", number), f"more than {MAX_CELLS:,} cells")
        if not made:
            raise file.error(("cells", number), "its exclusions leave no cell")
    for number, hunted in enumerate(file.suite.hunts):
        for cell in _of_hunt(file, number, hunted, axes):
            if cell.id in cells:
                raise file.error(("hunts", number), f"{cell.id} is there twice", hint=_TWICE_HUNTED)
            cells[cell.id] = replace(cell, shard=len(cells))
    return list(cells.values())


_TWICE: Final = "join the two, or give one of them settings of its own"
_TWICE_HUNTED: Final = "join the two, or let one of them begin with a scenario of its own"


def _of_hunt(file: SuiteFile, number: int, spec: HuntSpec, axes: Axes) -> Iterator[Cell]:
    """Yield a cell for each version of the client of a hunt."""
    at = ("hunts", number)
    library, _, asked = spec.client.partition("@")
    if library and library not in axes.clients:
        did = did_you_mean(library, axes.clients)
        raise file.error((*at, "client"), f"{library} is unknown; {did}")
    reference = spec.reference.partition("@")[0]
    if reference and reference not in (*axes.clients, NO_REFERENCE):
        did = did_you_mean(reference, axes.clients)
        raise file.error((*at, "reference"), f"{reference} is unknown; {did}")
    corpus = (file.path.parent / spec.corpus).resolve() if spec.corpus else None
    if corpus and file.path.parent.resolve() not in corpus.parents:
        raise file.error((*at, "corpus"), "must be a folder below the one of this file")
    if unknown := next((cls for cls in spec.known if cls not in CLASSES), None):
        did = did_you_mean(unknown, CLASSES)
        raise file.error((*at, "known"), f"{unknown} is not a class; {did}")
    versions = [Chosen("", "")]
    if asked:
        where = (*at, "client")
        versions = _asked(file, where, partial(_resolved, file, axes.client, library, asked))
    scenario = file.scenario(spec.scenario) if spec.scenario else axes.start(library)
    facts = _asked(file, (*at, "scenario"), partial(axes.facts, scenario, ()))
    for version in versions:
        client = f"{library}@{version.asked}" if version.asked else library
        parts = ["hunt", client, name_of(scenario) if spec.scenario else ""]
        yield Cell(
            id=" ".join(part for part in parts if part),
            scenario=scenario,
            system=facts.system,
            client=library,
            client_version=version.version,
            broker_version=facts.version,
            priority=spec.priority,
            group=f"hunt {client}",
            guess_s=spec.budget + axes.overhead_s,
            hunt=HuntCell(
                budget_s=spec.budget,
                corpus=str(corpus or ""),
                known=tuple(spec.known),
                reference=spec.reference,
                is_calm=not spec.scenario,
            ),
        )


def _of_matrix(
    file: SuiteFile, number: int, spec: MatrixSpec, axes: Axes, ranks: dict[tuple[str, ...], int]
) -> Iterator[Cell]:
    """``ranks``: combinations as written -> their number, over the whole file."""
    at = ("cells", number)
    _refuse_unknown(file, at, spec, axes)
    used: set[str] = set()
    for kind, names in (("scenarios", spec.scenarios), ("bugs", spec.bugs)):
        for index, name in enumerate(names):
            for draft in _of_scenario(
                file, (*at, kind, index), spec, axes, name, kind == "bugs", used
            ):
                rank = ranks.setdefault((str(number), *draft.written), len(ranks))
                if not _is_excluded(spec, draft):
                    yield replace(draft.cell, shard=rank + draft.place)
    if unused := [library for library in spec.clients if library not in used]:
        raise file.error((*at, "clients", unused[0]), "is used by no scenario of these cells")


def _refuse_unknown(
    file: SuiteFile, at: tuple[str | int, ...], spec: MatrixSpec, axes: Axes
) -> None:
    for key, given, known in (
        ("clients", spec.clients, axes.clients),
        ("brokers", spec.brokers, axes.systems),
    ):
        for name in given:
            if name not in known:
                raise file.error((*at, key, name), f"is unknown; {did_you_mean(name, known)}")


def _of_scenario(
    file: SuiteFile,
    at: tuple[str | int, ...],
    spec: MatrixSpec,
    axes: Axes,
    name: str,
    is_bug: bool,
    used: set[str],
) -> Iterator[_Draft]:
    """The combinations of one scenario or bug, in the order of the file."""
    scenario = file.scenario(name)
    for label, values in (spec.settings or {"": {}}).items():
        _asked(file, at, partial(axes.facts, scenario, ()))
        where = (*at[:2], "settings", label) if values else at
        settings = tuple(f"{key}={json.dumps(value)}" for key, value in values.items())
        facts = _asked(file, where, partial(axes.facts, scenario, settings))
        if is_bug and not facts.pairs:
            raise file.error(
                at, f"{name} is a scenario and no known bug", hint="put it under scenarios"
            )
        if not is_bug and facts.pairs:
            raise file.error(at, f"{name} is a known bug", hint="put it under bugs")
        pairs = list(facts.pairs)[: None if spec.pairs == "all" else 1]
        clients = [("", Chosen("", ""))] if is_bug else _clients(file, at, spec, axes, facts)
        used |= {library for library in spec.clients if library in facts.clients}
        brokers = _brokers(file, at, spec, axes, facts)
        for pair, (library, client), broker, runtime in product(
            pairs or [""], clients, brokers, spec.runtimes
        ):
            combination = _Combination(
                scenario=scenario,
                label=label,
                settings=settings,
                pair=pair,
                library=library,
                client=client,
                broker=broker,
                runtime=runtime,
            )
            yield _draft(spec, axes, facts, combination)


def _draft(spec: MatrixSpec, axes: Axes, facts: Facts, one: _Combination) -> _Draft:
    library, client, broker, pair = one.library, one.client, one.broker, one.pair
    overrides = [*one.settings]
    if client.version:
        value = json.dumps(client.version)
        overrides += [f"{key}.client_version={value}" for key in facts.clients[library]]
    if broker.version:
        overrides.append(f"cluster.version={json.dumps(broker.version)}")
    name = name_of(one.scenario)
    version = broker.version or facts.version
    parts = [
        name,
        pair,
        library and f"{library}@{client.asked}",
        broker.asked and f"brokers@{broker.asked}",
        one.label,
        "" if one.runtime == "auto" else one.runtime,
    ]
    cell = Cell(
        id=" ".join(part for part in parts if part),
        scenario=one.scenario,
        pair=pair,
        system=facts.system,
        client=library,
        client_version=client.version,
        broker_version=version,
        settings=one.label,
        overrides=tuple(overrides),
        runtime=one.runtime,
        rounds=1 if pair else spec.rounds or 1,
        tries=(spec.rounds or BUG_TRIES) if pair else 1,
        seeds=tuple(spec.seeds),
        priority=spec.priority,
        is_control=spec.control,
        group=" ".join((facts.system, version, facts.cluster, one.runtime)),
        variants=facts.pairs.get(pair, facts.variants),
        guess_s=facts.round_s + axes.overhead_s,
    )
    names = {
        "scenario": (name, one.scenario),
        "client": (library,),
        "client_version": (client.asked, client.version),
        "broker": (broker.asked, version),
        "settings": (one.label,),
        "runtime": (one.runtime,),
    }
    written = (one.scenario, pair, library, client.written, broker.written, one.label, one.runtime)
    return _Draft(cell, names, written, client.place + broker.place)


def _is_excluded(spec: MatrixSpec, draft: _Draft) -> bool:
    return any(
        all(
            any(fnmatchcase(name, getattr(one, key)) for name in draft.names[key])
            for key in one.model_fields_set
        )
        for one in spec.exclude
    )


def _clients(
    file: SuiteFile, at: tuple[str | int, ...], spec: MatrixSpec, axes: Axes, facts: Facts
) -> list[tuple[str, Chosen]]:
    """(library, version) of each cell; one with neither for a scenario that uses none of the
    libraries."""
    found = []
    for library, versions in spec.clients.items():
        if library in facts.clients:
            for index, asked in enumerate(versions):
                where = (*at[:2], "clients", library, index)
                chosen = _asked(file, where, partial(_resolved, file, axes.client, library, asked))
                found += [(library, each) for each in chosen]
    return found or [("", Chosen("", ""))]


def _brokers(
    file: SuiteFile, at: tuple[str | int, ...], spec: MatrixSpec, axes: Axes, facts: Facts
) -> list[Chosen]:
    found = []
    for index, asked in enumerate(spec.brokers.get(facts.system, ())):
        where = (*at[:2], "brokers", facts.system, index)
        found += _asked(file, where, partial(_resolved, file, axes.broker, facts.system, asked))
    return found or [Chosen("", "")]


def _resolved(
    file: SuiteFile, resolve: Callable[[str, str], list[Chosen]], name: str, asked: str
) -> list[Chosen]:
    if asked == DEFAULT:
        return [Chosen(DEFAULT, "", DEFAULT)]
    # A build of one's own lies next to the file; its cell has the same name on every machine.
    found = resolve(name, absolute(asked, file.path.parent))
    return [replace(each, asked=asked, written=asked) for each in found] if is_own(asked) else found


def _asked(file: SuiteFile, at: tuple[str | int, ...], ask: Callable[[], _T]) -> _T:
    """The answer; what is wrong with a name or a version is reported with the line that has it."""
    try:
        return ask()
    except UsageError as error:
        raise file.error(at, str(error), hint=error.hint) from error
    except BrokerstormError as error:
        error.args = (str(file.error(at, str(error))),)
        raise
