"""Shrinking: what is left is what the class needs, whatever is luck, cut off or cannot be run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.findings import Result
from commands.shrink import _show
from experiments.experiment import RoundRequest, Strategy
from experiments.judging import RoundOutcome, outcome_of
from experiments.plans import read_scenario
from experiments.resolved import key_of
from experiments.shrink.ddmin import ddmin, single
from experiments.shrink.document import not_tried, smallest_text
from experiments.shrink.reductions import (
    BEFORE,
    KEPT,
    SIZES,
    Group,
    Reduction,
    Shape,
    _down,
    _seconds,
    cost,
    pinned,
    shape_of,
)
from experiments.shrink.search import Search, Wanted, only_class, why_nothing
from experiments.shrink.targets import pinned_data, read_target
from harness.contracts.plan import Plan
from harness.errors import UsageError
from harness.plan.applications import application_plans
from harness.rundir import RunDir, write_json
from tests.made_up import MadeUp, answered, judged, unusable
from tests.report_samples import failing, fault_rows, passing, unknown
from tests.report_samples.findings import lost_finding

PLAN: Any = SimpleNamespace(variant="", seed=7)
CLS = "acked-lost"
Data = Mapping[str, Any]


def storm() -> Shape:
    scenario = read_scenario("kafka-storm")
    return shape_of(scenario, pinned(scenario))


def shown(classes: Iterable[str], t_s: float | None = None, **outcome: Any) -> RoundOutcome:
    """A round that shows classes, their first witnesses at a time."""
    lost = lost_finding()
    when = () if t_s is None else (replace(lost.witnesses[0], t_s=t_s),)
    found = [replace(lost, cls=cls, witnesses=when) for cls in classes]
    return judged(failing(findings=found) if found else passing(), **outcome)


@dataclass
class Scripted:
    """Rounds: the class shows where ``needs`` says so, in ``rate`` of them; each takes its time."""

    needs: Callable[[Data], bool]
    rate: float = 1.0
    refuses: Callable[[Data], str] = lambda data: ""
    played: list[Data] = field(default_factory=list)
    luck: random.Random = field(default_factory=lambda: random.Random(5))
    first_s: float | None = None  # of load, when the class shows
    hit: RoundOutcome = field(init=False)
    clean: RoundOutcome = field(default_factory=lambda: shown([]), init=False)

    def __post_init__(self) -> None:
        self.hit = shown([CLS], self.first_s)

    def __call__(self, request: RoundRequest) -> RoundOutcome:
        data = cast("Any", request.plan).args[0]
        if why := self.refuses(data):
            return unusable(why)
        self.played.append(data)
        shows = self.needs(data) and self.luck.random() < self.rate
        return replace(self.hit if shows else self.clean, duration_s=cost(data)[0] + 20.0)

    def search(self, shape: Shape | None = None, *, cls: str = CLS, **more: Any) -> Search:
        return Search(shape or storm(), no_plan, Wanted(cls), 7, **more)

    def found(self, shape: Shape | None = None, **more: Any) -> Search:
        """The search after it."""
        search = self.search(shape, **more)
        answered(search.rounds(), self)
        return search


def no_plan(data: Data, seed: int) -> Plan:
    raise AssertionError("made-up rounds have none")


def freeze_with_acks_1(data: Data) -> bool:
    """Needs a freeze of a broker, an option, and a rate that is not too low."""
    shop = data["load"]["producers"]["shop"]
    has_freeze = any(step["fault"] == "pause" for step in data.get("faults", []))
    return has_freeze and "acks" in shop.get("options", {}) and int(data["load"]["rate"]) >= 500


def test_what_is_left_is_what_the_class_needs() -> None:
    search = Scripted(freeze_with_acks_1).found()
    assert search.shows
    assert search.is_whole
    found = search.smallest
    assert found["faults"] == [
        {"fault": "pause", "target": "leader-of:orders", "at": "1s", "for": "5s"}
    ]
    assert found["topics"]["orders"]["partitions"] == 1
    assert found["load"]["producers"]["shop"]["options"] == {"acks": "all"}
    assert found["load"]["consumers"] == {}
    assert (found["load"]["rate"], found["load"]["duration"], found["load"]["warm_up"]) == (
        782,
        "8s",
        "1s",
    )


def test_a_random_target_becomes_the_leader_of_the_only_partition_that_is_left() -> None:
    def needs(data: Data) -> bool:
        freezes = [step for step in data.get("faults", []) if step["fault"] == "pause"]
        is_luck = data["topics"]["orders"]["partitions"] < 3
        return any(step.get("target") == "leader-of:orders" or not is_luck for step in freezes)

    search = Scripted(needs).found()
    assert search.shows
    found = search.smallest
    assert found["topics"]["orders"]["partitions"] == 1
    assert [step.get("target") for step in found["faults"]] == ["leader-of:orders"]
    asked = [step.tried for step in search.steps.values() if "target" in step.tried]
    assert len(asked) == 1  # with all that is less load


def test_a_storm_that_does_not_say_when_it_ends_keeps_the_load_that_showed_the_class() -> None:
    """Unloads take as long as they take: 2 s behind the first one are too few, and 19 s too
    many."""
    scenario = read_scenario("pulsar-12779")
    shape = shape_of(scenario, pinned(scenario))

    def needs(data: Data) -> bool:
        return bool(data.get("faults")) and float(data["load"]["duration"].rstrip("s")) >= 9.2

    search = Scripted(needs, first_s=9.2).found(shape)
    assert search.shows
    assert search.smallest["load"]["duration"] == "11.2s"
    more = [step.tried for step in search.steps.values() if "after the last fault" in step.tried]
    assert len(more) == 1


def test_requirements_clients_and_versions_stay() -> None:
    search = Scripted(lambda data: True).found()
    assert search.smallest["require"] == search.shape.data["require"]
    assert search.smallest["load"]["producers"]["shop"]["client"] == "confluent-kafka"


def test_a_profile_is_read_from_where_the_scenario_is(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("0,10\n5,20\n")
    text = Path("scenarios/kafka-smoke.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(
        text.replace("load:\n", "load:\n  profile: {csv: day.csv}\n")
    )
    data = pinned(read_scenario(str(tmp_path / "mine.yaml")))
    assert data["load"]["profile"] == {"csv": str(tmp_path / "day.csv")}


def test_an_application_is_started_where_the_scenario_is(tmp_path: Path) -> None:
    """Candidates lie in another folder; the words of ``run`` may be paths."""
    folder = tmp_path / "it's {mine}"
    folder.mkdir()
    written = yaml.safe_load(Path("scenarios/app-python.yaml").read_text())
    own = written["applications"]["billing"]
    (folder / "mine.yaml").write_text(yaml.safe_dump(written))
    data = pinned(read_scenario(str(folder / "mine.yaml")))
    assert data["applications"]["billing"] == {**own, "start_in": str(folder)}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(data))
    again = read_scenario(str(tmp_path / "again.yaml"))
    assert pinned(again)["applications"] == data["applications"]
    (plan,) = application_plans(again)
    assert plan.folder == str(folder)


def test_a_number_that_may_be_0_goes_down_to_it() -> None:
    """The search never began, and its memory grew until the machine had none."""
    steps = [each for each in islice(_down(Group.STEPS, ("faults", 0, "to"), 4, 0), 100)]
    assert [value for _, value in steps] == [1, 0]


def test_the_load_does_not_become_longer() -> None:
    """Starts of instances may take a minute, and the load was extended by it."""
    fault = '{fault: scale, target: "client:billing", to: 4, at: 13s, for: 3s}'
    scenario = read_scenario("scenarios/app-python.yaml", (f"faults=[{fault}]",))
    shape = shape_of(scenario, pinned(scenario))
    assert _seconds(shape.without([])["load"]["duration"]) <= 28.1
    earlier = Reduction(Group.TIME, BEFORE, 1)
    assert _seconds(shape.without([earlier])["load"]["duration"]) <= 28.1 - 9


def test_an_application_keeps_its_settings() -> None:
    """Without a variable, with another promise or with inputs of another shape, it would show
    something else."""
    scenario = read_scenario(
        "scenarios/app-python.yaml", ("applications.billing.order=partition", "load.payload=200")
    )
    shape = shape_of(scenario, pinned(scenario))
    assert not [each for each in shape.reductions if "payload" in each.at]
    own = {each.at for each in shape.reductions if each.at[:1] == ("applications",)}
    assert own == {("applications", "billing"), ("applications", "billing", "instances")}


def test_what_does_not_show_the_class_is_not_searched() -> None:
    player = Scripted(lambda data: False)
    assert not player.found().shows
    assert len(player.played) == 3


@pytest.mark.long
def test_luck_leaves_a_part_in_and_takes_none_that_is_needed() -> None:
    """At 60 %, what was accepted showed the class twice: none of it can lack what the class
    needs."""
    wholes = 0
    for seed in range(20):
        search = Scripted(freeze_with_acks_1, rate=0.6, luck=random.Random(seed)).found()
        if search.shows:
            assert freeze_with_acks_1(search.smallest)
            wholes += 1
            assert len(search.smallest["faults"]) < 4
    assert wholes >= 16  # each question is answered wrongly in at most 10 %


def test_it_is_the_same_under_a_seed_and_asks_nothing_twice() -> None:
    first, again = Scripted(freeze_with_acks_1), Scripted(freeze_with_acks_1)
    told: list[str] = []
    one = first.found()
    again.found(tell=told.append)
    assert first.played == again.played
    keys = [key_of(data) for data in first.played]
    assert len(keys) == sum(map(len, one.played.values()))
    assert all(2 <= keys.count(key) <= 3 for key in keys)
    assert told[0].startswith("step 1 · as it is · shown in 2 of 2 rounds")


def test_the_end_of_the_budget_keeps_the_best_and_says_what_was_not_tried(tmp_path: Path) -> None:
    told: list[str] = []
    search = Scripted(freeze_with_acks_1).search(tell=told.append)
    played = MadeUp(tmp_path, Scripted(freeze_with_acks_1), budget_s=500.0)
    played.run(search.rounds())
    assert search.shows
    assert not search.is_whole
    assert played.now_s <= 500.0
    assert told[-1].startswith("the time is over: the next round takes about ")
    assert freeze_with_acks_1(search.smallest)
    assert not_tried(search) > 0
    assert "not tried" in smallest_text(search, command="brokerstorm shrink", day="today")


@pytest.mark.long
@pytest.mark.parametrize("after", [0, 5, 17])
def test_a_search_that_was_cut_off_goes_on_without_playing_a_round_twice(
    tmp_path: Path, after: int
) -> None:
    cut, rest, whole = (Scripted(freeze_with_acks_1) for _ in range(3))
    with pytest.raises(KeyboardInterrupt):
        MadeUp(tmp_path, cut, stops_after=after).run(cut.search().rounds())
    resumed, straight = rest.search(), whole.found()
    MadeUp(tmp_path, rest).run(resumed.rounds())
    assert resumed.smallest == straight.smallest
    assert resumed.steps == straight.steps
    assert cut.played + rest.played == whole.played


def test_a_search_that_ended_before_its_first_answer_says_how_it_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = cast("Any", SimpleNamespace(show=lambda document, text: text()))
    search, root = Scripted(lambda data: True).search(), RunDir(tmp_path / "20261129-shrink-x")
    assert _show(settings, search, root, tmp_path / "smallest.yaml") == 3
    told = capsys.readouterr()
    assert "shrink --resume 20261129-shrink-x` continues" in told.out + told.err


def test_what_plan_refuses_is_passed_over_without_a_round() -> None:
    def refuses(data: Data) -> str:
        return "" if data["load"].get("consumers") else "a group must read"

    player = Scripted(lambda data: True, refuses=refuses)
    search = player.found()
    assert all(data["load"].get("consumers") for data in player.played)
    assert "billing" in search.smallest["load"]["consumers"]
    text = smallest_text(search, command="brokerstorm shrink", day="today")
    assert "needed: without it cannot be run: a group must read" in text


def test_the_smallest_scenario_of_a_bug_keeps_its_fixed_version(tmp_path: Path) -> None:
    target = read_target(tmp_path, "kafka-python-3132", cls="", variant="", overrides=())
    assert target.fixed is not None
    data, fixed = pinned_data(target), pinned_data(replace(target, scenario=target.fixed))
    needs_first = Scripted(lambda data: "first" in data["load"].get("consumers", {}))
    search = needs_first.found(shape_of(target.scenario, data))
    text = smallest_text(
        search, command="brokerstorm shrink", day="today", fixed=fixed, bug=target.bug
    )
    path = tmp_path / "smallest.yaml"
    path.write_text(text)
    smallest = read_scenario(str(path))
    assert smallest.bug is not None
    assert smallest.bug.pairs["smallest-fixed"].fixed == "fixed"
    assert yaml.safe_load(text)["variants"]["fixed"] == {
        "override": {"load": {"consumers": {"first": {"client_version": "3.0.9"}}}}
    }


def test_several_classes_ask_which_and_one_is_taken() -> None:
    search = Scripted(lambda data: True).found(cls="")
    assert search.cls == CLS
    both = shown([CLS, "write-duplicate"]).run
    assert both is not None
    with pytest.raises(UsageError, match="several classes: acked-lost, write-duplicate"):
        only_class(both)


def test_a_round_that_is_unknown_without_an_effect_or_of_another_bug_shows_nothing(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path)
    write_json(run.manifest, {"workers": []})

    def why(result: Result, witness: str = "") -> str:
        wanted = Wanted(CLS, witness)
        found = outcome_of(PLAN, run, result, number=1, question=wanted).run
        assert found is not None
        return why_nothing(found, wanted, has_faults=True)

    assert why(failing()) == ""
    assert why(unknown()).startswith("unknown: ")
    idle = [replace(row, effective=False) for row in fault_rows()]
    assert why(failing(faults=idle)) == "no fault took effect"
    assert why(failing(), "batchMetadataIndex").startswith("nothing has the text of the bug")
    search = Scripted(lambda data: True).search()
    assert search._counts(judged(failing()), search.shape.data)
    assert not search._counts(judged(failing(faults=idle)), search.shape.data)


def test_the_file_is_a_scenario_that_expects_the_class_and_says_why(tmp_path: Path) -> None:
    search = Scripted(freeze_with_acks_1).found()
    text = smallest_text(
        search, command="brokerstorm shrink kafka-storm --seed 7", day="2026-11-22"
    )
    path = tmp_path / "smallest.yaml"
    path.write_text(text)
    assert read_scenario(str(path)).variants["smallest"].expect == CLS
    lines = text.splitlines()
    assert "#   faults[0]: {fault: kill, target: 'leader-of:orders', at: 8s, for: 5s}" in lines
    assert "#   a random faults[2].target: leader-of:orders does" in lines
    at = lines.index("  - {fault: pause, target: 'leader-of:orders', at: 1s, for: 5s}")
    assert lines[at - 1] == "  # needed: without it not shown in 3 rounds (error at most 10 %)"
    at = lines.index("  rate: 782")
    assert lines[at - 1].startswith("  # load.rate 196: not shown in 3 rounds")


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, 30)))
def test_the_result_shows_the_class_and_no_single_reduction_more_does(wanted: set[int]) -> None:
    shape = storm()
    needed = {shape.reductions[n] for n in wanted if n < len(shape.reductions)}

    def shows(data: Data) -> bool:
        return all(_is_there(shape, data, each) for each in needed)

    search = Scripted(shows).found(shape)
    assert search.shows
    assert search.is_whole
    assert shows(search.smallest)
    for each in shape.left(search.applied):
        more = shape.without(search.applied | {each})
        assert more == search.smallest or not shows(more)


def _is_there(shape: Shape, data: Data, each: Reduction) -> bool:
    """Whether a candidate has not got a reduction: only such are needed as can be told from the
    data."""
    if each.at[0] == "faults" or "duration" in each.at:
        kinds = [step["fault"] for step in data.get("faults", [])]
        return each.at[0] != "faults" or shape.data["faults"][each.at[1]]["fault"] in kinds
    value: Any = data
    for key in each.at:
        if key not in value:
            return False
        value = value[key]
    return not each.step or value not in shape.values[each.at][each.step - 1 :]


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "kafka-storm",
        "kafka-mix",
        "pulsar-key-shared",
        "pulsar-storm",
        "kafka-network",
        "qpid-storm",
    ],
)
def test_a_scenario_as_it_is_and_with_one_reduction_is_read_again(
    name: str, tmp_path: Path
) -> None:
    from experiments.shrink.words import file_text

    scenario = read_scenario(name)
    shape = shape_of(scenario, pinned(scenario))
    assert shape.without([]) == shape.data
    refused = 0
    for number, each in enumerate(shape.reductions):
        path = tmp_path / f"{number}.yaml"
        path.write_text(file_text(shape.without([each]), [], {}))
        assert yaml.safe_load(path.read_text())["name"] == name
        try:
            read_scenario(str(path))
        except UsageError:
            refused += 1
    assert refused <= len(shape.reductions) // 2


def test_what_is_a_size_and_what_stays_are_keys_of_the_model() -> None:
    for model, key in SIZES:
        assert key in model.model_fields
    for part, keys in KEPT.items():
        assert keys <= set(part.model_fields)


@pytest.mark.long
@given(st.lists(st.integers(), unique=True, max_size=12), st.data())
def test_ddmin_finds_the_only_set_that_is_needed(parts: list[int], data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.sampled_from(parts))) if parts else set()
    asked: list[list[int]] = []

    def suffices(kept: list[int]) -> Strategy[bool]:
        yield from ()
        asked.append(kept)
        return needed <= set(kept)

    for search in (ddmin, single):
        assert set(answered(search(parts, suffices), lambda request: RoundOutcome())) == needed
    if parts and not needed:
        assert asked[0] == []
