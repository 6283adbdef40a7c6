"""The input of a hunt: versions of clients, corpora, folders of other runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli import main
from experiments.experiment import RoundRequest
from experiments.hunt.corpus import CorpusEntry, name_of, read_corpus, require_folder, write_entry
from experiments.hunt.hunting import (
    HuntRequest,
    _most_entries,
    _possible_step,
    _why,
    _with_reference,
    _with_releases,
)
from experiments.hunt.search import Discovery, Hunt
from experiments.judging import RoundOutcome
from experiments.shrink.reductions import pinned, shape_of
from experiments.shrink.search import Search, Wanted
from harness.errors import UsageError
from harness.rundir import RunDir
from tests.made_up import answered
from tests.unit.test_hunt import (
    CHOICES,
    INVENTORY,
    NOTHING_ELSE,
    SCENARIO,
    Rounds,
    any_plan,
    kinds_of,
    read,
)

RELEASES = {"sarama": ["1.43.3", "1.61.1", "1.60.0"], "franz-go": ["1.22.3", "2.0.0"]}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package index with the releases of two clients."""
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "experiments.versions.released_clients", lambda worker: RELEASES[worker.library]
    )


@pytest.mark.usefixtures("index")
def test_open_versions_are_those_of_today() -> None:
    given: dict[str, Any] = {
        **NOTHING_ELSE,
        "client": "sarama@latest",
        "reference": "franz-go@latest-minor",
        "offline": False,
    }
    asked = _with_releases(HuntRequest(**given), print)
    assert (asked.client, asked.reference) == ("sarama@1.61.1", "franz-go@1.22.3")


@pytest.mark.usefixtures("index")
def test_a_version_that_no_release_fits_is_refused_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run-dir", str(tmp_path / "runs"), "hunt", "--budget", "1m"]
    assert main([*words, "--client", "sarama@>=2"]) == 2
    assert "--client sarama@>=2: no release fits >=2: the newest is 1.61.1" in (
        capsys.readouterr().err
    )


def test_a_kind_that_takes_longer_than_the_load_is_left_out() -> None:
    load = {"load": {"duration": 0.1}}
    assert _possible_step("kill", INVENTORY, load, lambda step: True) is None


def test_a_reference_client_that_sends_no_batches_gets_no_size_of_them() -> None:
    shop = {"client": "sarama", "client_version": "1.43.3", "calls": "batch", "batch": 50}
    data = {"load": {"producers": {"shop": shop}, "consumers": {}}}
    changed, _ = _with_reference("confluent-kafka@2.16.1", data)
    assert not {"calls", "batch"} & {*changed["load"]["producers"]["shop"]}


# ----- corpora ------------------------------------------------------------------------------------


def entry_at(rate: int, **more: Any) -> CorpusEntry:
    """An entry whose scenario has this rate."""
    scenario = {**SCENARIO, "load": {**SCENARIO["load"], "rate": rate}}
    return CorpusEntry(**{"scenario": scenario, "seed": 1, "features": (f"rate {rate}",), **more})


def test_a_large_corpus_leaves_time_for_new_scenarios(tmp_path: Path) -> None:
    """The seed draws the entries that are played; the features and names of all are known."""
    for rate in range(100, 108):
        write_entry(tmp_path, entry_at(rate))
    prepared: list[CorpusEntry] = []

    def drawn(seed: int) -> list[str]:
        prepared.clear()
        corpus = read_corpus(tmp_path, SCENARIO, prepared.append, most=3, seed=seed)
        assert corpus.entries == prepared
        assert len(corpus.names) == len(corpus.features) == 8
        return [each.name for each in corpus.entries]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(drawn(1)) == 3
    load = {"load": {"duration": 10, "warm_up": 2, "rate": 100}}
    assert _most_entries(HuntRequest(**{**NOTHING_ELSE, "budget_s": 480.0}), load) == 10
    assert _most_entries(HuntRequest(**{**NOTHING_ELSE, "rounds": 3}), load) == 3


def test_entries_that_are_not_played_count_as_known() -> None:
    hunting = Rounds(features=kinds_of).hunt(
        corpus_names=frozenset({"other", name_of(SCENARIO)}),
        corpus_features=frozenset({"fault pause"}),
    )
    assert "fault pause" in hunting.seen
    assert "fault pause" not in hunting.new_features
    assert hunting.new_entries == len(hunting.entries) - 1
    assert hunting.corpus_entries == len(hunting.entries) + 1


def test_a_copy_and_a_seed_that_no_command_takes_are_left_out(tmp_path: Path) -> None:
    entry = entry_at(100)
    write_entry(tmp_path, entry)
    (copied,) = tmp_path.iterdir()
    (tmp_path / "\n\x1b[31mz.yaml").write_text(copied.read_text())
    write_entry(tmp_path, entry_at(200, seed=-5))
    write_entry(tmp_path, entry_at(300, seed=2**63))
    corpus = read_corpus(tmp_path, SCENARIO, lambda entry: None)
    assert len(corpus.entries) == 1
    assert sum("has the same scenario as" in line for line in corpus.left_out) == 1
    assert sum("seed: must be from 0 to" in line for line in corpus.left_out) == 2
    assert "\n" not in "".join(corpus.left_out)


def test_a_corpus_is_played_where_its_programs_are_in_another_folder(tmp_path: Path) -> None:
    """A corpus is kept in a repository, and checked out elsewhere."""
    there, here = (
        {
            **SCENARIO,
            "workers": [f"/{place}/workers"],
            "applications": {"billing": {"run": ["./it"], "start_in": f"/{place}"}},
        }
        for place in ("there", "here")
    )
    entry = CorpusEntry(scenario=there, seed=1, features=["new"])
    write_entry(tmp_path, entry)
    assert "/there" not in next(tmp_path.iterdir()).read_text()
    corpus = read_corpus(tmp_path, here, lambda entry: None)
    assert [each.scenario for each in corpus.entries] == [here], corpus.left_out
    assert corpus.names == [entry.name]


@pytest.mark.parametrize("damaged", [[1], {"billing": 1}, 3])
def test_damaged_applications_of_an_entry_are_left_out(tmp_path: Path, damaged: object) -> None:
    scenario = {**SCENARIO, "applications": damaged}
    write_entry(tmp_path, CorpusEntry(scenario=scenario, seed=1, features=["new"]))
    (line,) = read_corpus(tmp_path, SCENARIO, lambda entry: None).left_out
    assert "has applications that the scenario of this hunt does not have" in line


def test_a_corpus_that_cannot_be_written_is_refused_before_the_first_round(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        require_folder(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be read and written: Not a directory"):
        require_folder(tmp_path / "file" / "corpus")
    require_folder(tmp_path / "new" / "corpus")


def test_a_message_does_not_name_a_file_that_is_gone(tmp_path: Path) -> None:
    root = RunDir(tmp_path)
    problem = UsageError(f"{tmp_path}/candidate.yaml:17: load.rate: must be positive")
    assert _why(root, problem) == "load.rate: must be positive"


# ----- hunts that were killed ---------------------------------------------------------------------


@pytest.mark.long
def test_a_hunt_that_was_cut_after_any_round_continues_in_the_same_way(tmp_path: Path) -> None:
    """Also while it repeats a round, plays the reference client, or searches."""
    other = {**SCENARIO["load"], "producers": {"app": {"client": "franz-go"}}}
    first = {**pinned(read(SCENARIO, tmp_path)), "name": "hunt"}
    first["load"]["duration"], first["faults"] = 12.0, []

    def search(found: Discovery, on_better: Callable[[], None]) -> Search:
        shape = shape_of(read(found.entry.scenario, tmp_path), found.entry.scenario)
        return Search(shape, any_plan, Wanted(found.what[0]), 1, on_better=on_better)

    def played(stop: int, outcomes: list[RoundOutcome]) -> list[RoundOutcome]:
        """Continue from these outcomes until so many rounds are played."""
        rounds = Rounds(
            features=lambda data: [f"load {data['load'].get('rate')}"],
            violates=lambda data: "kill" in str(data.get("faults")) and data["load"] is not other,
        )
        hunting = Hunt(
            first=first,
            seed=7,
            plan=any_plan,
            choices=CHOICES,
            rounds_at_most=stop,
            is_calm=True,
            reference=lambda data: ({**data, "load": other}, "with franz-go 1.22.3"),
            search=search,
            search_s=20.0,
        )
        found = list(outcomes)

        def play(request: RoundRequest) -> RoundOutcome:
            number = len(rounds.played)
            outcome = replace(rounds(request), key=request.key)
            if number < len(outcomes):
                assert outcomes[number].key == request.key, request.name
                return outcomes[number]
            found.append(outcome)
            return outcome

        answered(hunting.rounds(), play)
        return found

    whole = played(30, [])
    assert len({outcome.key for outcome in whole}) > 15
    for stop in range(1, 30, 4):
        assert [each.key for each in played(30, whole[:stop])] == [each.key for each in whole]
