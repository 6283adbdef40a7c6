"""Suite files: cells of a matrix, versions, and one line for everything that is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import jsonschema
import pytest
import yaml

from experiments.nights.choice import Shard, choose, narrowed
from experiments.nights.file import SCHEMA_FILE, SuiteFile, bundled_suites, load_suite, new_suite
from experiments.nights.matrix import Axes, Cell, Facts, HuntCell, expand
from experiments.versions import Chosen, Releases
from experiments.versions import choose as choose_version
from harness.errors import EnvironmentNotReady, UsageError

SCENARIO = Facts(
    system="kafka", version="4.1.2", cluster="", pairs={}, variants=(), round_s=10.0,
    clients={
        "confluent-kafka": ("load.producers.shop", "load.consumers.billing"), "sarama": ("load.producers.s",),
    },
)  # fmt: skip
BUG = replace(SCENARIO, pairs={"one": ("old", "new"), "two": ("older", "newer")})
RELEASES = ["2.14.0", "2.14.2", "2.15.1", "2.15.2rc1", "2.9.0", "3.0.0", "3.1.0-SNAPSHOT"]


def facts(name: str, overrides: tuple[str, ...]) -> Facts:
    if Path(name).stem not in ("smoke", "quick", "bug", "nats-2.10"):
        raise UsageError(f"no such scenario: {name!r}")
    if "load.rat=5" in overrides:
        raise UsageError("--set load.rat=5: load.rat: unknown key")
    return BUG if name == "bug" else SCENARIO


def versions(name: str, asked: str) -> list[Chosen]:
    if asked == "9.9":
        raise UsageError(f"{name} has no release 9.9", hint="the closest ones are 3.0.0")
    return (
        choose_version(asked, "2.15.1", RELEASES)
        if asked[0] in "l>"
        else [Chosen(asked, asked, asked)]
    )


AXES = Axes(
    facts,
    versions,
    versions,
    lambda library: "smoke",
    ("confluent-kafka", "sarama", "kafka-python"),
    ("kafka", "pulsar"),
    20.0,
)
#: Before the one matrix of a suite.
HEAD = "name: m\ncells:\n- "
Write = Callable[[str], SuiteFile]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(text: str) -> SuiteFile:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_suite(path)

    return write


def cells(file: SuiteFile) -> list[Cell]:
    return expand(file, AXES)


def test_the_name_of_a_cell_keeps_the_dots_of_its_scenario(written: Write) -> None:
    assert [cell.id for cell in cells(written(HEAD + "{scenarios: [nats-2.10.22]}"))] == [
        "nats-2.10.22"
    ]


def test_a_matrix_is_every_combination_that_is_not_excluded(written: Write) -> None:
    found = cells(
        written("""
name: mine
cells:
  - scenarios: [smoke, quick]
    clients: {confluent-kafka: [default, latest], sarama: [1.40.0]}
    settings: {plain: {}, small: {load.payload: 60}}
    runtimes: [process]
    exclude:
      - {scenario: quick, client: sarama}
      - {settings: small, client_version: latest}
""")
    )
    assert [cell.id for cell in found] == [
        "smoke confluent-kafka@default plain process",
        "smoke confluent-kafka@latest plain process",
        "smoke sarama@1.40.0 plain process",
        "smoke confluent-kafka@default small process",
        "smoke sarama@1.40.0 small process",
        "quick confluent-kafka@default plain process",
        "quick confluent-kafka@latest plain process",
        "quick confluent-kafka@default small process",
    ]
    assert found[1].overrides == (
        'load.producers.shop.client_version="3.0.0"',
        'load.consumers.billing.client_version="3.0.0"',
    )
    assert found[3].overrides == ("load.payload=60",)


def test_a_hunt_is_a_cell_for_each_version_of_its_client(written: Write) -> None:
    file = written("""
name: mine
hunts:
  - {client: "sarama@>=2.14", budget: 45m, known: [stall]}
  - {scenario: quick, budget: 10m, corpus: corpus/quick}
""")
    found = cells(file)
    assert [(cell.id, cell.scenario, cell.client_version) for cell in found] == [
        ("hunt sarama@>=2.14 2.14", "smoke", "2.14.2"),
        ("hunt sarama@>=2.14 2.15", "smoke", "2.15.1"),
        ("hunt sarama@>=2.14 3.0", "smoke", "3.0.0"),
        ("hunt quick", "quick", ""),
    ]
    calm, own = found[0].hunt, found[3].hunt
    assert calm == HuntCell(budget_s=2700.0, known=("stall",), is_calm=True)
    assert own == HuntCell(budget_s=600.0, corpus=str(file.path.parent / "corpus" / "quick"))
    assert found[0].guess_s == 2720.0


def test_bugs_keep_their_versions_and_name_their_pair(written: Write) -> None:
    one = cells(written(HEAD + "{bugs: [bug]}"))
    assert [(cell.id, cell.pair, cell.variants, cell.tries) for cell in one] == [
        ("bug one", "one", ("old", "new"), 3)
    ]
    every = cells(written(HEAD + "{bugs: [bug], pairs: all, rounds: 5}"))
    assert [(cell.pair, cell.tries) for cell in every] == [("one", 5), ("two", 5)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("latest", [("latest", "3.0.0")]),
        ("latest-minor", [("latest-minor", "2.15.1")]),
        (">=2.14", [(">=2.14 2.14", "2.14.2"), (">=2.14 2.15", "2.15.1"), (">=2.14 3.0", "3.0.0")]),
    ],
)
def test_open_versions_are_releases_and_keep_their_name_over_the_nights(
    asked: str, expected: list[tuple[str, str]]
) -> None:
    assert [
        (each.asked, each.version) for each in choose_version(asked, "2.15.1", RELEASES)
    ] == expected


def test_of_several_clients_in_one_repository_only_the_default_one_is_meant() -> None:
    known = ["qpid-client 6.4.0", "andes 7.0.0", "qpid-client 6.3.4"]
    assert choose_version("latest", "qpid-client 6.3.0", known)[0].version == "qpid-client 6.4.0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: m\ncells: []", "needs cells or hunts"),
        ("name: m\nhunts:\n- {budget: 1m}", "mine.yaml:3: hunts[0]: needs client or scenario"),
        (
            "name: m\nhunts:\n- {client: sarma, budget: 1m}",
            "hunts[0].client: sarma is unknown; did you mean sarama",
        ),
        (
            "name: m\nhunts:\n- {client: sarama, budget: 1m, known: [stal]}",
            "hunts[0].known: stal is not a class; did you mean stall",
        ),
        (
            "name: m\nhunts:\n- {client: sarama, budget: 1m, corpus: ../theirs}",
            "hunts[0].corpus: must be a folder below the one of this file",
        ),
        (
            "name: m\nhunts:\n- {client: sarama, budget: 1m}\n- {client: sarama, budget: 2m}",
            "hunts[1]: hunt sarama is there twice",
        ),
        (
            "name: m\nhunts:\n- {client: sarama, budget: 1m, reference: kafka-pythn}",
            "hunts[0].reference: kafka-pythn is unknown; did you mean kafka-python",
        ),
        (
            "name: m\nhunts:\n- {client: sarama, budget: 1m, corpus: .}",
            "hunts[0].corpus: must be a folder below the one of this file",
        ),
        (HEAD + "{}", "mine.yaml:3: cells[0]: is an empty matrix: it names neither scenarios"),
        (HEAD + "{clients: {sarama: [latest]}}", "mine.yaml:3: cells[0]: is an empty matrix"),
        (HEAD + "scenario: [smoke]", "cells[0].scenario: unknown key, got ['smoke']; did"),
        (HEAD + "scenarios:\n  - smok", "yaml:4: cells[0].scenarios[0]: no such scenario: 'smok'"),
        (HEAD + "{scenarios: [bug]}", "mine.yaml:3: cells[0].scenarios[0]: bug is a known bug"),
        (HEAD + "{bugs: [smoke]}", "cells[0].bugs[0]: smoke is a scenario and no known bug"),
        (
            HEAD + "scenarios: [smoke]\n  settings:\n    odd: {load.rat: 5}",
            "yaml:5: cells[0].settings.odd: --set load.rat=5: load.rat: unknown key",
        ),
        (
            HEAD + "scenarios: [smoke]\n  clients:\n    sarama: ['9.9']",
            "mine.yaml:5: cells[0].clients.sarama[0]: sarama has no release 9.9",
        ),
        (
            HEAD + "{scenarios: [smoke], clients: {sarma: [latest]}}",
            "mine.yaml:3: cells[0].clients.sarma: is unknown; did you mean sarama?",
        ),
        (
            HEAD + "{scenarios: [smoke], clients: {kafka-python: [latest]}}",
            "cells[0].clients.kafka-python: is used by no scenario of these cells",
        ),
        (
            HEAD + "{scenarios: [smoke], exclude: [{scenario: s*}]}",
            "mine.yaml:3: cells[0]: its exclusions leave no cell",
        ),
        (HEAD + "{scenarios: [smoke, smoke]}", "mine.yaml:3: cells[0]: cell smoke is there twice"),
        ("name: m\nbudget: soon\ncells:\n- {scenarios: [smoke]}", "mine.yaml:2: budget: must be a duration"),
        ("name: m\nkeep: {red: 5}\ncells:\n- {scenarios: [smoke]}", "yaml:2: keep.red: must be an age"),
        (HEAD + "{scenarios: [smoke], exclude: [{}]}", "an exclusion needs at least one key"),
    ],
)  # fmt: skip
def test_everything_wrong_is_one_line_with_its_place(text: str, said: str, written: Write) -> None:
    with pytest.raises(UsageError) as error:
        cells(written(text))
    assert said in str(error.value)


def a_cell(name: str, **changes: object) -> Cell:
    return replace(Cell(id=name, scenario=name), **changes)  # type: ignore[arg-type]


def test_what_fits_the_budget_is_chosen_by_priority_and_run_by_cluster() -> None:
    given = [
        a_cell("a", group="one"),
        a_cell("b", group="two"),
        a_cell("c", group="one"),
        a_cell("d", group="two", priority=5),
        a_cell("long", group="one", priority=9, guess_s=500.0),
    ]
    found = choose(given, 100.0, lambda cell: cell.guess_s or 30.0)
    assert [cell.id for cell in found.cells] == ["d", "a", "b"]
    assert [cell.id for cell in found.left_out] == ["c", "long"]
    whole = choose(given, None, lambda cell: 30.0)
    assert [cell.id for cell in whole.cells] == ["long", "d", "a", "c", "b"]


def test_a_budget_that_fits_nothing_is_refused() -> None:
    with pytest.raises(
        UsageError, match="a budget of 10 s fits none of 1 cells: one takes 30 s or more"
    ):
        choose([a_cell("a")], 10.0, lambda cell: 30.0)


def test_shards_are_every_cell_once_and_a_new_release_moves_none(written: Write) -> None:
    text = (
        HEAD
        + "{scenarios: [smoke, quick], clients: {sarama: ['>=2.14'], confluent-kafka: [latest]}}"
    )
    found = cells(written(text))
    shares = [[cell.id for cell in narrowed(found, (), Shard(n, 3))] for n in (1, 2, 3)]
    assert sorted(chain(*shares)) == sorted(cell.id for cell in found)
    newer = replace(
        AXES, client=lambda name, asked: choose_version(asked, "2.15.1", [*RELEASES, "3.4.0"])
    )
    after = [
        [cell.id for cell in narrowed(expand(written(text), newer), (), Shard(n, 3))]
        for n in (1, 2, 3)
    ]
    assert all(set(now) - set(later) == set() for now, later in zip(shares, after, strict=True))


def test_only_takes_parts_of_names_and_patterns() -> None:
    given = [a_cell("smoke sarama@latest"), a_cell("smoke"), a_cell("quick")]
    assert [cell.id for cell in narrowed(given, ("sarama",), None)] == ["smoke sarama@latest"]
    assert [cell.id for cell in narrowed(given, ("q*", "smoke"), None)] == [
        cell.id for cell in given
    ]
    with pytest.raises(UsageError, match="no cell fits --only storm"):
        narrowed(given, ("storm",), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5/4", "must be from 1 to 4"),
        ("0/2", "must be from 1 to 2"),
        ("two", "not N/M"),
        ("1/", "not N/M"),
    ],
)
def test_a_shard_is_number_of_machines(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Shard.parse(text)


def test_seeds_rotate_by_night_and_are_shared_by_the_cells_of_a_scenario() -> None:
    old, new = (
        a_cell("smoke a", scenario="smoke", rounds=3),
        a_cell("smoke b", scenario="smoke", rounds=3),
    )
    assert old.fresh_seeds(7) == new.fresh_seeds(7)
    assert len({*old.fresh_seeds(7), *old.fresh_seeds(8)}) == 6
    assert a_cell("c", seeds=(4, 5)).fresh_seeds(7) == [4, 5]


def test_releases_are_asked_for_once_an_hour_and_an_old_list_serves_without_an_index(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    told: list[str] = []

    def ask() -> list[str]:
        asked.append("x")
        return ["1.0.0"]

    def fail() -> list[str]:
        raise EnvironmentNotReady("no network")

    assert Releases(tmp_path, tell=told.append).releases_of("sarama", ask) == ["1.0.0"]
    assert Releases(tmp_path, tell=told.append).releases_of("sarama", fail) == ["1.0.0"]
    assert (asked, told) == (["x"], [])
    (tmp_path / "sarama.json").write_text(
        json.dumps({"asked_s": time.time() - 7200, "versions": ["0.9.0"]})
    )
    assert Releases(tmp_path, tell=told.append).releases_of("sarama", fail) == ["0.9.0"]
    assert told == ["versions of sarama are those of 2 h ago: no network"]
    with pytest.raises(EnvironmentNotReady, match="the versions of pika are not known: no network"):
        Releases(tmp_path, tell=told.append).releases_of("pika", fail)


def test_a_thousand_cells_ask_for_each_scenario_once(written: Write) -> None:
    read: list[tuple[str, ...]] = []

    def counted(name: str, overrides: tuple[str, ...]) -> Facts:
        read.append((name, *overrides))
        return facts(name, overrides)

    many = ", ".join(f"1.{n}.0" for n in range(500))
    text = HEAD + f"{{scenarios: [smoke, quick], clients: {{sarama: [{many}]}}}}"
    assert len(expand(written(text), replace(AXES, facts=counted))) == 1000
    assert set(read) == {("smoke",), ("quick",)}


@pytest.mark.parametrize("name", [*bundled_suites(), "new"])
def test_ready_suites_and_the_template_fit_the_published_schema(name: str, tmp_path: Path) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    text = (
        new_suite(tmp_path / "mine.yaml") if name == "new" else bundled_suites()[name].read_text()
    )
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))
    assert text.startswith("# yaml-language-server: $schema=")
    (tmp_path / "mine.yaml").write_text(text)
    assert load_suite(tmp_path / "mine.yaml").suite.cells
