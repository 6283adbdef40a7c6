"""Hunting: what is new is kept and changed, and what breaks a promise is played again."""

from __future__ import annotations

import copy
import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

import faults
from analysis.findings import Status
from analysis.report.documents import read_result
from bench.hunt_against_dice import ROOT, BugSearch, results, table
from cli import main
from experiments.experiment import RoundRequest
from experiments.hunt import discoveries
from experiments.hunt.changes import Choices, changed
from experiments.hunt.conduct import strange_conduct
from experiments.hunt.corpus import Corpus, CorpusEntry, name_of, read_corpus, write_entry
from experiments.hunt.discoveries import (
    bundle_found,
    found_file,
    known_bugs,
    smallest_file,
    write_found,
)
from experiments.hunt.features import features_of, masked, power_of_two
from experiments.hunt.hunting import (
    HuntRequest,
    _first,
    _most_rounds,
    _prepared,
    _read,
    _remove_capture,
    _values,
)
from experiments.hunt.search import REPEATS, Discovery, Hunt
from experiments.judging import RoundOutcome, judge_run
from experiments.plans import read_scenario
from experiments.resolved import node_roles
from experiments.shrink.reductions import pinned, shape_of
from experiments.shrink.search import Search, Wanted
from experiments.shrink.words import file_text
from harness.contracts.rows import Manifest, MetricRow, WorkerRow
from harness.errors import Interrupted, UsageError, WorkerError
from harness.rundir import RunDir, write_jsonl
from harness.scenario.file import variants
from harness.scenario.model import Scenario
from harness.systems import SYSTEMS
from harness.workers import known_workers, load_worker
from tests.lent import settings
from tests.made_up import answered, judged
from tests.planted.judged import judge_here
from tests.planted.tiny import History
from tests.report_samples import failing, fault_rows, passing
from tests.report_samples.findings import lost_finding

Data = Mapping[str, Any]
LOAD_S = 12.0
SCENARIO: dict[str, Any] = {
    "name": "hunt",
    "topics": {"orders": {"partitions": 3, "replication": 3}},
    "load": {
        "rate": 1000,
        "duration": LOAD_S,
        "producers": {"app": {"client": "confluent-kafka"}},
        "consumers": {"billing": {"client": "confluent-kafka", "group": "billing"}},
    },
    "faults": [],
}
INVENTORY = faults.inventory_of(
    topics=[
        cast("Any", SimpleNamespace(name="orders", partitions=3, replication=3, grows_to=0)),
    ],
    nodes=node_roles("kafka"),
    clients={"producer-app": "", "consumer-billing": ""},
)
CHOICES = Choices(
    kinds=["kill", "pause", "leader-move", "client-kill"],
    inventory=lambda data: INVENTORY,
    values={
        ("producers", "confluent-kafka"): {
            "results": ["checked", "resent"],
            "transactions": [None, {"messages": 20}],
        }
    },
    options={
        ("producers", "confluent-kafka"): [{"linger.ms": "0"}, {"acks": "all", "retries": "9"}]
    },
)


@dataclass
class Rounds:
    """Made-up rounds: each shows the features and the violations that its scenario has."""

    features: Callable[[Data], list[str]] = lambda data: ["class stall permitted"]
    violates: Callable[[Data], bool] = lambda data: False
    played: list[tuple[str, Data]] = field(default_factory=list)

    def __call__(self, request: RoundRequest) -> RoundOutcome:
        data = cast("Any", request.plan).args[0]
        self.played.append((request.key, data))
        result = failing(findings=[lost_finding()]) if self.violates(data) else passing()
        outcome = judged(result, features=self.features(data) if request.features else [])
        return replace(outcome, name=request.name, duration_s=1.0)

    def hunt(self, **more: Any) -> Hunt:
        """A hunt of these rounds, played to its end."""
        asked = {"first": SCENARIO, "seed": 7, "plan": any_plan, "choices": CHOICES}
        hunting = Hunt(**{**asked, "rounds_at_most": 40, **more})
        answered(hunting.rounds(), self)
        return hunting


def any_plan(data: Data, seed: int) -> Any:
    return SimpleNamespace(variant="", seed=seed)


def kinds_of(data: Data) -> list[str]:
    return sorted({f"fault {step['fault']}" for step in data["faults"]})


def kills(data: Data) -> bool:
    return "fault kill" in kinds_of(data)


def test_what_showed_something_new_is_kept_and_changed() -> None:
    rounds = Rounds(features=kinds_of)
    hunting = rounds.hunt()
    assert hunting.played == hunting.judged == 40
    kept = {feature for entry in hunting.entries for feature in entry.features}
    assert kept == {f"fault {kind}" for kind in CHOICES.kinds}
    parents = {entry.name for entry in hunting.entries}
    assert all(entry.parent in parents for entry in hunting.entries[1:])
    # Most rounds are made from something that had shown a fault.
    assert sum(bool(data["faults"]) for _, data in rounds.played) > 30


def test_rounds_that_showed_nothing_new_are_named() -> None:
    named: list[str] = []
    rounds = Rounds(features=kinds_of, violates=kills)
    hunting = rounds.hunt(on_nothing_new=named.append)
    seen: set[str] = set()
    nothing_new = []
    for number, (_, data) in enumerate(rounds.played, 1):
        new = set(kinds_of(data)) - seen
        seen |= new
        if number > 1 and not new and not kills(data):
            nothing_new.append(f"round-{number:04d}")
    assert named == nothing_new != []
    assert hunting.played == 40


def test_a_round_that_is_evidence_keeps_its_rows() -> None:
    """A line that was first seen in a round with a violation is found in a later round, in which
    nothing is new."""
    line = "log client this is a bug, please report"
    named: list[str] = []
    rounds = Rounds(features=lambda data: [line] if data["faults"] else [])
    rounds.violates = lambda data: len(rounds.played) == 2
    hunting = rounds.hunt(on_nothing_new=named.append)
    evidence = {name for found in hunting.found for name in found.rounds}
    assert [each.what for each in hunting.found] == [("acked-lost",), (line,)]
    assert not evidence & set(named)


def test_rounds_that_were_played_are_taken_in_whatever_the_limit_is(tmp_path: Path) -> None:
    root = RunDir(tmp_path)
    outcomes = [replace(judged(passing()), name=f"round-{n}", key="x") for n in range(3)]
    write_jsonl(root.root / "rounds.jsonl", map(asdict, outcomes))
    assert [_most_rounds(root, asked) for asked in (2, 5, None)] == [3, 5, None]


def test_a_small_round_is_judged_without_spark_and_its_page_is_not_drawn(tmp_path: Path) -> None:
    run = History().sent(3).log(0, 1, 2).deliver(0, 1, 2).write(tmp_path / "round-0001")
    no_spark: Any = None
    result = judge_run(settings(tmp_path), run, no_spark, brief=True)
    assert (read_result(run), result.reasons) == (result, judge_here(run).reasons)
    assert not run.report.exists()


def test_a_hunt_continues_when_a_client_refuses_its_options() -> None:
    asked: list[RoundRequest] = []

    def play(request: RoundRequest) -> RoundOutcome:
        asked.append(request)
        return replace(judged(passing()), name=request.name, duration_s=1.0)

    hunting = Hunt(first=SCENARIO, seed=7, plan=any_plan, choices=CHOICES, rounds_at_most=3)
    answered(hunting.rounds(), play)
    assert len(asked) == 3
    assert all(WorkerError in request.tolerates for request in asked)


def test_words_of_somebody_else_stay_in_a_comment() -> None:
    text = file_text({"name": "x"}, ["changed last: load\nworkers: [./theirs]\u2028name: y"], {})
    assert yaml.safe_load(text) == {"name": "x"}


def test_captured_rows_are_removed_in_the_folder_of_the_hunt_alone(tmp_path: Path) -> None:
    root, theirs = RunDir(tmp_path / "hunt"), tmp_path / "theirs"
    for folder in (root.root / "round-0001", theirs):
        (folder / "raw").mkdir(parents=True)
        (folder / "result.json").touch()
    (root.root / "round-0002").symlink_to(theirs)
    for name in ("round-0001", "round-0002"):
        _remove_capture(root, name)
    assert [*(root.root / "round-0001").iterdir()] == [root.root / "round-0001" / "result.json"]
    assert (theirs / "raw").is_dir()


def test_half_of_the_rounds_explore_and_all_have_several_faults() -> None:
    rounds = Rounds(features=kinds_of)
    hunting = rounds.hunt()
    scenarios = [data for _, data in rounds.played[1:]]
    assert all(1 < len(each["faults"]) < 7 for each in scenarios)
    first = hunting.entries[0]
    assert len(scenarios) / 3 < first.chosen < len(scenarios)
    loads = [each["load"] for each in scenarios[:10]]
    assert sum(load != SCENARIO["load"] for load in loads) > 5


def test_the_first_rounds_change_the_first_scenario() -> None:
    hunting = Rounds(features=lambda data: [name_of(data)]).hunt(rounds_at_most=30)
    first, *others = hunting.entries
    assert {each.parent for each in others[:9]} == {first.name}
    assert {each.parent for each in others[9:]} > {first.name}


def test_the_same_seed_and_outcomes_ask_for_the_same_rounds() -> None:
    first, second, other = (Rounds(features=kinds_of) for _ in range(3))
    first.hunt()
    second.hunt()
    other.hunt(seed=8)
    assert first.played == second.played
    assert first.played != other.played


def test_a_rare_feature_gets_more_rounds() -> None:
    """Of two entries, the one with the feature that few rounds had is the heavier one."""
    hunting = Rounds().hunt(rounds_at_most=1)
    common = CorpusEntry(scenario=SCENARIO, seed=1, features=("often",))
    rare = replace(common, features=("once",))
    hunting.seen.update({"often": 50, "once": 1})
    assert hunting._energy(rare) > 5 * hunting._energy(common)
    assert hunting._energy(replace(rare, chosen=1)) < hunting._energy(rare)


def test_a_violation_that_is_not_looked_for_attracts_no_rounds() -> None:
    hunting = Rounds().hunt(rounds_at_most=1)
    features = ("class hang violation", "split hang to the end")
    entry = CorpusEntry(scenario=SCENARIO, seed=1, features=features)
    hunting.seen.update((*features, "class hang permitted"))
    before = hunting._energy(entry)
    hunting.known = frozenset({"hang"})
    assert hunting._energy(entry) < before / 5
    assert hunting._energy(replace(entry, features=("class hang permitted",))) > before / 2


def test_many_lines_of_a_log_weigh_less_than_one_anomaly() -> None:
    hunting = Rounds().hunt(rounds_at_most=1)
    lines = tuple(f"log client line {number}" for number in range(50))
    entry = CorpusEntry(scenario=SCENARIO, seed=1, features=lines)
    hunting.seen.update({**dict.fromkeys(lines, 1), "class stall permitted": 1})
    assert hunting._energy(replace(entry, features=("class stall permitted",))) > 5 * (
        hunting._energy(entry)
    )


def test_what_was_tried_least_is_tried_next() -> None:
    """Every kind of fault and every set of options is played before most are played again."""
    rounds = Rounds(features=kinds_of)
    hunting = rounds.hunt(rounds_at_most=60)
    kinds = {key: n for key, n in hunting._tried.items() if key.startswith("fault ")}
    assert {*kinds} == {f"fault {kind}" for kind in CHOICES.kinds}
    assert max(kinds.values()) <= 2 * min(kinds.values())
    played = [data["load"]["producers"]["app"].get("options", {}) for _, data in rounds.played]
    assert any("linger.ms" in each for each in played)
    assert any("retries" in each for each in played)


def test_what_breaks_a_promise_is_played_again_and_told_once() -> None:
    told: list[int] = []
    rounds = Rounds(features=kinds_of, violates=kills)
    hunting = rounds.hunt(on_found=lambda found: told.append(found.shown))
    (found,) = hunting.found
    assert found.what == ("acked-lost",)
    assert (found.shown, len(found.rounds)) == (REPEATS, REPEATS)
    assert told == [1, 2, 3]
    again = [key for key, _ in rounds.played if key == f"{found.entry.name} {found.entry.seed}"]
    assert len(again) == REPEATS


def test_what_was_found_is_played_with_the_reference_client() -> None:
    """The reference client does not show it: its rounds count, their features do not."""
    other = {**SCENARIO["load"], "producers": {"app": {"client": "franz-go"}}}
    rounds = Rounds(
        features=lambda data: [*kinds_of(data), data["load"]["producers"]["app"]["client"]],
        violates=lambda data: kills(data) and data["load"] is not other,
    )
    hunting = rounds.hunt(reference=lambda data: ({**data, "load": other}, "with franz-go 1.22.3"))
    (found,) = hunting.found
    assert (found.reference_judged, found.reference_shown) == (REPEATS, 0)
    assert (hunting.played, hunting.judged) == (40, 40 - REPEATS)
    assert "franz-go" not in hunting.seen


def test_what_a_killed_hunt_left_of_a_bundle_is_removed(tmp_path: Path) -> None:
    root = RunDir(tmp_path).create()
    left = tmp_path / ".found-1.tar.gz.part-abc"
    left.write_bytes(b"half of it")
    entry = CorpusEntry(scenario=SCENARIO, seed=1, features=())
    one = Discovery(number=1, what=("acked-lost",), entry=entry, rounds=["round-0001"])
    assert bundle_found(root, one).startswith("no bundle of round-0001: ")
    assert not left.exists()


def test_a_hunt_that_is_stopped_while_it_packs_a_bundle_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: object) -> None:
        raise Interrupted("stopped by SIGINT", signal_number=signal.SIGINT)

    monkeypatch.setattr(discoveries, "make_bundle", stopped)
    entry = CorpusEntry(scenario=SCENARIO, seed=1, features=())
    one = Discovery(number=1, what=("acked-lost",), entry=entry, rounds=["round-0001"])
    with pytest.raises(Interrupted):
        bundle_found(RunDir(tmp_path).create(), one)


def test_what_was_found_is_made_smaller_in_a_part_of_the_time(tmp_path: Path) -> None:
    """A round takes a second: a search gets half of the time that is left for searches."""
    kinds = ("kill", "pause")
    faults = [{"fault": kind, "target": "kafka-1", "at": 2.0, "for": 2.0} for kind in kinds]
    first = {**pinned(read({**SCENARIO, "faults": faults}, tmp_path)), "name": "hunt"}
    first["load"]["duration"] = LOAD_S  # a number, as a hunt writes it
    rounds = Rounds(violates=lambda data: "fault pause" in kinds_of(data))

    def search(found: Discovery, on_better: Callable[[], None]) -> Search:
        shape = shape_of(read(found.entry.scenario, tmp_path), found.entry.scenario)
        return Search(shape, any_plan, Wanted(found.what[0]), 1, on_better=on_better)

    def found(search_s: float) -> tuple[Discovery, Search]:
        asked = {"first": first, "is_calm": True, "search": search, "search_s": search_s}
        (one,) = rounds.hunt(rounds_at_most=200, **asked).found
        assert one.search is not None
        return one, one.search

    one, whole = found(1000.0)
    assert whole.is_whole
    assert kinds_of(whole.smallest) == ["fault pause"]
    _, cut = found(8.0)
    assert sum(map(len, cut.played.values())) == 4
    write_found(RunDir(tmp_path), one, "brokerstorm hunt")
    assert len(read_scenario(str(smallest_file(RunDir(tmp_path), one))).faults) == 1


def test_what_only_one_client_shows_is_a_bug_for_repro(tmp_path: Path) -> None:
    """The file has both clients, and `repro` reads it."""
    entry = CorpusEntry(scenario=pinned(read(SCENARIO, tmp_path)), seed=3, features=())
    other = copy.deepcopy(entry.scenario)
    for side in ("producers", "consumers"):
        for spec in other["load"][side].values():
            spec["client"] = "franz-go"
    rounds = [f"round-000{number}" for number in (1, 2, 3)]
    one = Discovery(number=1, what=("acked-lost",), entry=entry, rounds=rounds, shown=3)
    one.reference, one.reference_judged = other, 3
    root = RunDir(tmp_path)
    write_found(root, one, "brokerstorm hunt")
    scenario = read_scenario(str(found_file(root, one)))
    clients = {
        name: (merged.load.producers["app"].client, expect)
        for name, merged, expect in variants(scenario)
    }
    assert clients == {
        "affected": ("confluent-kafka", "acked-lost"),
        "reference": ("franz-go", "clean"),
    }
    assert scenario.bug is not None
    one.reference_shown = 1
    write_found(root, one, "brokerstorm hunt")
    assert read_scenario(str(found_file(root, one))).bug is None


def test_known_bugs_of_a_client_and_a_class() -> None:
    load = {"producers": {"app": {"client": "sarama"}}}
    entry = CorpusEntry(scenario={"load": load}, seed=3, features=())
    one = Discovery(number=1, what=("producer-reorder",), entry=entry)
    assert "sarama-2619" in known_bugs(one)
    assert "sarama-2619" not in known_bugs(replace(one, what=("stall",)))


def read(data: Data, folder: Path) -> Scenario:
    """A scenario, through a file."""
    path = folder / "candidate.yaml"
    path.write_text(yaml.safe_dump(dict(data)))
    return read_scenario(str(path))


def test_a_class_that_is_known_is_not_looked_for() -> None:
    rounds = Rounds(features=kinds_of, violates=lambda data: True)
    assert not rounds.hunt(known=frozenset({"acked-lost"})).found


@pytest.mark.parametrize(
    "line",
    [
        "log client this is a bug, please report",
        "error errors.errorString: assertion failed: message out of sequence added to a batch",
    ],
)
def test_a_program_that_accuses_itself_is_found_without_a_violation(line: str) -> None:
    (found,) = Rounds(features=lambda data: [line] if data["faults"] else []).hunt().found
    assert found.what == (line,)
    assert not found.is_violation
    assert (len(found.rounds), found.shown) == (REPEATS, REPEATS)


def test_strange_conduct_is_found_and_played_with_the_reference_client() -> None:
    strange = "strange producer: close does not return"
    rounds = Rounds(features=lambda data: [strange] if data["faults"] else [])
    hunting = rounds.hunt(reference=lambda data: ({**data, "faults": []}, "with another client"))
    (found,) = hunting.found
    assert (found.what, found.shown) == ((strange,), REPEATS)
    assert (found.reference_judged, found.reference_shown) == (REPEATS, 0)
    assert hunting.exit_code == 0


def test_a_round_with_no_further_class_is_not_found_again() -> None:
    rounds = Rounds(features=kinds_of, violates=kills)
    assert len(rounds.hunt(rounds_at_most=60).found) == 1


def test_a_scenario_that_shows_a_class_by_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="shows acked-lost without a change") as caught:
        Rounds(violates=lambda data: True).hunt()
    assert caught.value.hint == "--known acked-lost ignores this class"


def test_what_a_calm_load_shows_is_found_and_then_ignored() -> None:
    hunting = Rounds(violates=lambda data: True).hunt(is_calm=True)
    (found,) = hunting.found
    assert (found.entry.scenario, found.shown) == (SCENARIO, REPEATS)
    assert "acked-lost" in hunting.known
    assert hunting.played == 40


def test_what_is_new_since_the_corpus_of_before() -> None:
    """An entry of before that shows nothing new stays in the corpus, and its features are known."""
    pause = {"fault": "pause", "target": "kafka-1", "at": 2.0, "for": 3.0}
    before = [
        CorpusEntry(scenario=each, seed=3, features=("fault pause", "fault of before"))
        for each in (SCENARIO, {**SCENARIO, "faults": [pause]})
    ]
    hunting = Rounds(features=kinds_of).hunt(before=before, rounds_at_most=20)
    assert "fault pause" in hunting.seen
    assert hunting.new_features == sorted({*hunting.seen} - {"fault pause"})
    assert hunting.corpus_entries == 2 + hunting.new_entries


def test_the_corpus_of_before_is_played_first() -> None:
    before = CorpusEntry(
        scenario={**SCENARIO, "faults": [{"fault": "kill", "at": 3.0}]}, seed=3, features=()
    )
    rounds = Rounds(features=kinds_of)
    rounds.hunt(before=[before], rounds_at_most=3)
    assert rounds.played[1] == (f"{before.name} 3", before.scenario)


# ----- changes ------------------------------------------------------------------------------------


def test_drawn_steps_fit_the_plan_and_end_within_the_load() -> None:
    rng = random.Random(1)
    kinds = faults.drawable(INVENTORY, LOAD_S)
    assert {"kill", "pause", "client-kill", "leader-move", "latency"} <= {*kinds}
    assert not {"truncate", "file-damage", "recreate-topic"} & {*kinds}
    for kind in kinds:
        for _ in range(20):
            step = faults.draw_step(kind, INVENTORY, rng, LOAD_S)
            (firing,) = faults.compile([step], INVENTORY, seed=1, load_s=LOAD_S).firings
            assert firing.t_s + (firing.for_s or 0.0) < LOAD_S


@pytest.mark.parametrize("system", SYSTEMS)
def test_faults_on_requests_are_drawn_for_each_system(system: str) -> None:
    """With requests that its clients send, all of them or a share, and errors that it has."""
    coordinated = {"group:billing": (), "transactions:app": ()}
    inventory = replace(INVENTORY, system=system, coordinated=coordinated)
    kinds = {*faults.drawable(inventory, LOAD_S)}
    assert {"answer-drop", "answer-delay", "answer-close", "request-error"} <= kinds
    steps = [
        faults.draw_step(kind, inventory, random.Random(seed), LOAD_S)
        for kind in ("answer-drop", "request-error")
        for seed in range(400)
    ]
    facts = SYSTEMS[system]
    requests = {name for step in steps for name in step["requests"]}
    assert requests == {*facts.client_requests} <= {*facts.request_kinds, *facts.answer_kinds}
    errors = {step["error"] for step in steps if "error" in step}
    assert errors <= {*facts.answer_errors} - {*facts.answer_permits}
    assert len({step["share"] for step in steps}) > 2
    assert {"all", "coordinator-of:group:billing"} <= {step["target"] for step in steps}


def test_requests_of_transactions_are_drawn_if_there_are_some() -> None:
    """Also for transactions that the same round begins to use."""

    def inventory(data: Data) -> Any:
        uses = "transactions" in data["load"]["producers"]["app"]
        return replace(INVENTORY, coordinated={"transactions:app": ()} if uses else {})

    choices = replace(CHOICES, kinds=["answer-drop"], inventory=inventory)
    found = [
        changed(SCENARIO, [], choices, random.Random(seed), explores=True) for seed in range(150)
    ]
    drawn = {
        ("transactions" in each.scenario["load"]["producers"]["app"], name)
        for each in found
        if each
        for step in each.scenario["faults"]
        for name in step["requests"]
    }
    assert (True, "EndTxn") in drawn
    assert (False, "EndTxn") not in drawn


def test_a_changed_step_differs_in_one_key_and_still_fits() -> None:
    rng, step = random.Random(1), {"fault": "pause", "target": "kafka-1", "at": 2.0, "for": 3.0}
    found = [faults.change_step(step, INVENTORY, rng, LOAD_S) for _ in range(40)]
    different = [
        {key for key in each if each[key] != step.get(key)} for each in found if each is not None
    ]
    assert {frozenset(keys) for keys in different} == {
        frozenset({key}) for key in ("at", "for", "target")
    }
    for each in found:
        if each is not None:
            faults.compile([each], INVENTORY, seed=1, load_s=LOAD_S)
    assert faults.change_step({"mix": {}}, INVENTORY, rng, LOAD_S) is None


def test_a_change_leaves_what_applications_read() -> None:
    """A program would skip messages of another shape, which would be called a broken promise."""
    billing = {"run": ["true"], "from": "orders", "to": {"http": True}}
    scenario = {**SCENARIO, "applications": {"billing": billing}}
    scenario["load"] = {**SCENARIO["load"], "payload": {"template": "{id}"}}
    for seed in range(50):
        made = changed(scenario, [], CHOICES, random.Random(seed), explores=True)
        assert made is not None
        assert made.scenario["load"]["payload"] == {"template": "{id}"}
        assert made.scenario["topics"] == SCENARIO["topics"]


def test_a_change_leaves_the_scenario_that_it_is_made_from() -> None:
    before = repr(SCENARIO)
    found = [changed(SCENARIO, [], CHOICES, random.Random(seed)) for seed in range(200)]
    assert repr(SCENARIO) == before
    words = {word.split()[0] for each in found if each for word in each[1]}
    assert {"with", "load.rate", "load.payload", "topics.orders.partitions"} <= words
    assert {"producers.app.count", "producers.app.lanes", "producers.app.results"} <= words
    assert {"producers.app.transactions", "producers.app.options"} <= words


def test_a_change_that_cannot_be_planned_is_left_out_and_the_others_stay() -> None:
    def fits(data: Data) -> bool:
        return "transactions" not in data["load"]["producers"]["app"]

    found = [
        changed(SCENARIO, [], CHOICES, random.Random(seed), explores=True, fits=fits)
        for seed in range(50)
    ]
    assert all(each and fits(each.scenario) for each in found)
    drawn = {name for each in found if each for name in each.drawn}
    assert any("transactions" in name for name in drawn)
    assert all(each and len(each.words) > 1 for each in found)


def test_a_round_that_explores_has_settings_that_a_defect_needs_together() -> None:
    """Three settings of one client: a round in fifty has them, and others keep the defaults."""
    values = {
        ("producers", "confluent-kafka"): {
            **{f"key-{number}": [None, 1] for number in range(8)},
            "threads": [None, 3, 16],
        }
    }
    options = {("producers", "confluent-kafka"): [{f"option-{n}": "1"} for n in range(10)]}
    choices = replace(CHOICES, values=values, options=options)
    loads = [
        found.scenario["load"]
        for seed in range(300)
        if (found := changed(SCENARIO, [], choices, random.Random(seed), explores=True))
    ]
    wanted = [
        load
        for load in loads
        if load["producers"]["app"].get("threads")
        and "option-3" in load["producers"]["app"].get("options", {})
        and isinstance(load.get("payload"), dict)
    ]
    assert len(wanted) >= len(loads) / 50
    sizes = {len(load["producers"]["app"].get("options", {})) for load in loads}
    assert {1, 2, 5, 6} <= sizes


def test_an_option_of_several_sets_changes_as_often_as_an_option_of_one() -> None:
    sets = [{"acks": "all"}, *({"linger.ms": text} for text in ("0", "5", "50", "500"))]
    choices = replace(CHOICES, options={("producers", "confluent-kafka"): sets})
    found = [
        changed(SCENARIO, [], choices, random.Random(seed), explores=True) for seed in range(300)
    ]
    options = [
        each.scenario["load"]["producers"]["app"].get("options", {}) for each in found if each
    ]
    shares = [sum(name in each for each in options) / len(found) for name in ("acks", "linger.ms")]
    assert shares == pytest.approx([0.4, 0.4], abs=0.08)


def test_a_value_that_one_client_cannot_have_is_left_out_for_this_client_alone() -> None:
    first = copy.deepcopy(SCENARIO)
    producers = first["load"]["producers"]
    producers["web"] = {**producers["app"]}
    values = {("producers", "confluent-kafka"): {"threads": [None, 3]}}

    def threads(data: Data) -> tuple[Any, Any]:
        clients = data["load"]["producers"]
        return clients["app"].get("threads"), clients["web"].get("threads")

    found = [
        changed(
            first,
            [],
            replace(CHOICES, values=values),
            random.Random(seed),
            explores=True,
            fits=lambda data: threads(data)[1] is None,
        )
        for seed in range(60)
    ]
    assert {threads(each.scenario) for each in found if each} == {(None, None), (3, None)}


def test_sizes_of_messages_are_checked_as_they_were_drawn(tmp_path: Path) -> None:
    data = pinned(read(SCENARIO, tmp_path))
    data["load"]["payload"] = {"sizes": {100: "90%", 20_000: "10%"}}
    assert _read(RunDir(tmp_path), data).load.payload == {"sizes": {100: "90%", 20_000: "10%"}}


def test_consumers_that_settle_nothing_are_not_drawn() -> None:
    """Queues stop to deliver when enough messages are not acknowledged."""
    load = {side: {"app": {"client": "amqp091-go"}} for side in ("producers", "consumers")}
    drawn = _values({"system": "rabbitmq", "load": load})["consumers", "amqp091-go"]["settle"]
    assert "ack" in drawn
    assert "none" not in drawn


def test_options_of_a_set_are_set_together_and_others_stay() -> None:
    before = copy.deepcopy(SCENARIO)
    before["load"]["producers"]["app"]["options"] = {"linger.ms": "40"}
    word_of_options = "producers.app.options"
    found = [changed(before, [], CHOICES, random.Random(seed)) for seed in range(600)]
    options = [
        each.scenario["load"]["producers"]["app"]["options"]
        for each in found
        if each and sum(word.startswith(word_of_options) for word in each.words) == 1
    ]
    assert {"linger.ms": "0"} in options
    assert {"linger.ms": "40", "acks": "all", "retries": "9"} in options


def test_times_of_faults_may_be_written_with_a_unit() -> None:
    steps = [{"fault": "kill", "at": "1s", "for": "2s"}, {"fault": "pause", "at": "2s"}]
    scenario = {**SCENARIO, "faults": steps, "load": {**SCENARIO["load"], "duration": "12s"}}
    found = [changed(scenario, [], CHOICES, random.Random(seed)) for seed in range(100)]
    words = {word for each in found if each for word in each[1]}
    assert {"without kill at 1 s", "without pause at 2 s"} <= words
    assert any(word.startswith("kill at 2.") for word in words)


# ----- features -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (1, "1"), (5, "4"), (1024, "1024"), (0.3, "0.25")]
)
def test_amounts_are_rounded_down_to_powers_of_two(amount: float, text: str) -> None:
    assert power_of_two(amount) == text


def test_lines_of_two_runs_are_one_feature() -> None:
    lines = [
        "%4|1700000000.123|FAIL|rdkafka#producer-1| 127.0.0.1:9092/1: Connect failed after 3ms",
        "%4|1700000099.456|FAIL|rdkafka#producer-2| 127.0.0.3:9093/3: Connect failed after 12ms",
    ]
    assert len({masked(line) for line in lines}) == 1
    assert "Connect failed after" in masked(lines[0])
    said = {f"{name}: fenced" for name in ("producer-shop", "producer-app")}
    assert {masked(text, ["producer-shop", "producer-app"]) for text in said} == {"*: fenced"}


def test_features_of_a_judged_round(tmp_path: Path) -> None:
    """Without logs and names: those are read from the files of a live run."""
    run = RunDir(tmp_path)
    run.sealed.mkdir()
    run.manifest.write_text("{}")
    one, other = fault_rows()[:2]
    together = [
        replace(
            one, kind="kill", t_s=1.0, until_s=5.0, effective=True, outage_s=3.0, recovery_s=0.1
        ),
        replace(other, kind="pause", t_s=4.0, until_s=6.0, effective=True),
    ]
    permitted = replace(lost_finding(), status=Status.PERMITTED)
    found = features_of(run, replace(passing(), findings=[permitted], faults=together))
    assert {
        "class acked-lost permitted",
        "at once kill + pause",
        "outage kill 2 s",
        "recovery kill 1 s",
    } <= {*found}
    assert found == sorted(found)


def sample(t_s: float, **more: Any) -> MetricRow:
    """A sample of a producer, so long after the start of the load."""
    return MetricRow(t_ns=EPOCH_NS + int(t_s * 1e9), worker="producer-app", **more)


EPOCH_NS = 1_000_000_000_000
QUIET_END = WorkerRow(name="producer-app", role="producer", done=True, exit_code=0)
#: CPU seconds of a process that uses a core.
BUSY = [0.4, 1.38, 2.37, 3.36, 4.35]


@pytest.mark.parametrize(
    ("worker", "samples", "found"),
    [
        (QUIET_END, [sample(i, cpu_s=0.1 * i, rss_bytes=40 << 20) for i in range(9)], ""),
        (QUIET_END, [sample(i, cpu_s=s, ok=70) for i, s in enumerate(BUSY)], "a core is used"),
        (QUIET_END, [sample(i, cpu_s=s, ok=i) for i, s in enumerate(BUSY)], ""),
        (QUIET_END, [sample(i - 9, cpu_s=s) for i, s in enumerate(BUSY)], ""),
        (QUIET_END, [sample(0, rss_bytes=1 << 26), sample(9, rss_bytes=1 << 30)], "memory grows"),
        (QUIET_END, [sample(0, descriptors=30), sample(9, descriptors=700)], "more than 256"),
        (QUIET_END, [sample(0, descriptors=30), sample(9, descriptors=None)], ""),
        (replace(QUIET_END, done=False, exit_code=-9), [], "close does not return"),
        (replace(QUIET_END, done=False, exit_code=-9, stuck=True), [], "close does not return"),
        (replace(QUIET_END, done=False, exit_code=-9, killed=True), [], ""),
        (replace(QUIET_END, done=False, exit_code=-9, hung=True), [], ""),
        (replace(QUIET_END, role="audit", done=False, exit_code=-9), [], ""),
    ],
)
def test_conduct_that_no_class_has(worker: WorkerRow, samples: list[MetricRow], found: str) -> None:
    features = [*strange_conduct(Manifest(epoch_ns=EPOCH_NS, workers=[worker]), samples)]
    assert [each.startswith(f"strange producer: {found}") for each in features] == [True] * bool(
        found
    ), features


# ----- options of clients -------------------------------------------------------------------------


@pytest.mark.parametrize("name", known_workers())
def test_options_that_a_hunt_sets_may_be_set(name: str) -> None:
    """None of them is set by the harness itself; the client is asked before a hunt."""
    for system in load_worker(name).systems:
        worker = load_worker(name, system=system)
        sets = [
            *worker.quick.values(),
            *(each for own in worker.variations.values() for each in own),
        ]
        assert not {option for each in sets for option in each} & {*worker.reserved}


# ----- corpus -------------------------------------------------------------------------------------


def test_a_corpus_is_read_as_it_was_written_and_damaged_files_are_left_out(tmp_path: Path) -> None:
    entry = CorpusEntry(
        scenario=SCENARIO, seed=5, features=("class stall permitted",), changes=["with kill"]
    )
    write_entry(tmp_path, entry)
    write_entry(tmp_path, entry)
    write_entry(tmp_path, replace(entry, scenario={**SCENARIO, "system": "nats"}))
    programs = {"applications": {"billing": {"run": ["./theirs"]}}}
    write_entry(tmp_path, replace(entry, scenario={**SCENARIO, **programs}))
    build = {"cluster": {"version": "dir:/theirs"}, "load": SCENARIO["load"] | {"rate": 5}}
    write_entry(tmp_path, replace(entry, scenario={**SCENARIO, **build}))
    (tmp_path / "damaged.yaml").write_text("schema_version: 1\nseed: [")
    (tmp_path / "old.yaml").write_text("schema_version: 7")
    (tmp_path / "other.yaml").write_text("schema_version: 1\nseed: 3\n")
    corpus = read_corpus(tmp_path, SCENARIO, lambda entry: None)
    entries, left_out = corpus.entries, corpus.left_out
    assert [(each.name, each.scenario, each.seed) for each in entries] == [
        (entry.name, SCENARIO, 5)
    ]
    assert len(left_out) == 6
    assert any("uses dir:/theirs, a build that the scenario of this hunt" in x for x in left_out)
    assert any("has applications that the scenario of this hunt does not" in x for x in left_out)
    for name, text in {
        "damaged.yaml": "YAML",
        "old.yaml": "schema_version is 7",
        "other.yaml": "scenario",
    }.items():
        assert any(name in line and text in line for line in left_out), (name, left_out)
    assert any("is for nats, and this hunt is on kafka" in line for line in left_out)


def test_a_link_in_a_corpus_is_replaced_and_not_followed(tmp_path: Path) -> None:
    entry = CorpusEntry(scenario=SCENARIO, seed=5, features=())
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / f"{entry.name}.yaml").symlink_to(theirs)
    write_entry(tmp_path / "corpus", entry)
    assert theirs.read_text() == "theirs"


def test_an_entry_that_is_played_with_a_newer_client_keeps_its_name() -> None:
    newer = copy.deepcopy(SCENARIO)
    newer["load"]["producers"]["app"]["client_version"] = "2.16.1"
    assert name_of(newer) == name_of(SCENARIO)
    newer["load"]["producers"]["app"]["client"] = "franz-go"
    assert name_of(newer) != name_of(SCENARIO)


def test_entries_that_are_no_scenarios_are_left_out(tmp_path: Path) -> None:
    settings: Any = SimpleNamespace(
        run_dir=tmp_path / "runs",
        repeat_command=lambda *_, **__: "",
        progress=lambda: Notes(told),
    )
    told: list[str] = []
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    no_client = {**SCENARIO, "load": {"duration": 5, "producers": {"app": {}}}}
    name = name_of(no_client)
    write_entry(corpus, CorpusEntry(scenario=no_client, seed=1, features=()))
    for number, scenario in enumerate(({}, {"load": 7}, {"name": "x", "load": {"producers": []}})):
        stored = {"schema_version": 1, "scenario": scenario, "seed": 1, "features": []}
        (corpus / f"{number}.yaml").write_text(yaml.safe_dump(stored))
    given = {"scenario": "kafka-smoke", "corpus": corpus, "budget_s": 600.0, "client": "sarama"}
    _, asked = _prepared(settings, HuntRequest(**{**NOTHING_ELSE, **given}))
    assert [each.scenario["load"]["producers"]["app"]["client"] for each in asked.before] == [
        "sarama"
    ], name
    assert [line.split(": ")[1] for line in told] == [
        str(corpus / f"{number}.yaml") for number in range(3)
    ]


@dataclass
class Notes:
    """A view that keeps its notes."""

    told: list[str]

    def note(self, text: str) -> None:
        self.told.append(text)

    def close(self) -> None:
        """Nothing to end."""


NOTHING_ELSE: dict[str, Any] = {
    **dict.fromkeys(("scenario", "client", "system", "variant", "reference"), ""),
    **dict.fromkeys(("seed", "budget_s", "rounds", "corpus", "resume", "master")),
    **{"overrides": (), "known": (), "offline": True, "runtime": "process"},
}


def test_a_corpus_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert read_corpus(tmp_path / "new", SCENARIO, lambda entry: None) == Corpus()


def test_consumers_share_a_topic_with_each_client(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(run_dir=tmp_path)
    data = _first(context, HuntRequest(**{**NOTHING_ELSE, "client": "pulsar-client-go"}))
    consumers = data["load"]["consumers"]
    assert consumers["stats"]["options"]["Consumer.Type"] == "Shared"
    assert consumers["billing"]["options"] == {}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--client", "kafka-clients"], "--budget or --rounds is required"),
        (["--budget", "1m"], "which scenario or client?"),
        (["kafka-smoke", "--budget", "2s"], "a budget of 2 s is shorter than one round"),
        (["--client", "kafka-client", "--budget", "1m"], "--client kafka-client: no such client"),
        (["kafka-smoke", "--known", "lost", "--budget", "1m"], "--known lost is not a class"),
        (
            ["--client", "sarama", "--system", "nats", "--budget", "1m"],
            "--client sarama is for kafka, and --system is nats",
        ),
        (
            ["kafka-smoke", "--client", "nats.go", "--budget", "1m"],
            "--client nats.go is for nats, and kafka-smoke is on kafka",
        ),
        (["--resume", "nothing", "--budget", "1m"], "no hunt 'nothing'"),
    ],
)
def test_what_cannot_be_hunted_is_refused(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--run-dir", str(tmp_path), "hunt", *words]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ----- against random faults ----------------------------------------------------------------------


def test_the_page_has_the_results_of_the_comparison_with_random_faults() -> None:
    found = results(ROOT / "bench" / "hunt_against_dice.jsonl")
    page = (ROOT / "docs" / "howto" / "hunt.md").read_text()
    assert "\n".join(table(found)) in page


def test_searches_with_different_budgets_have_rows_of_their_own() -> None:
    def search(arm: str, budget_s: float, rounds: int, hit_round: int | None) -> BugSearch:
        return BugSearch(
            bug="franz-go-777",
            arm=arm,
            seed=1,
            budget_s=budget_s,
            rounds=rounds,
            hit_round=hit_round,
            hit_s=hit_round and 10.0 * hit_round,
        )

    short = [search("hunt", 205.0, 9, None), search("dice", 205.0, 9, None)]
    long = [search("hunt", 600.0, 14, 14), search("dice", 600.0, 28, None)]
    lines = table([*short, *long])
    assert [line.split(" | ")[1:4] for line in lines[2:6]] == [
        ["205", "hunt", "0 of 1"],
        ["205", "random faults", "0 of 1"],
        ["600", "hunt", "1 of 1"],
        ["600", "random faults", "0 of 1"],
    ]
    assert "the hunt needed 0.5 times" in " ".join(" ".join(lines).split())
    assert "- Only the hunt found: `franz-go-777`." in lines
