"""Steps -> timeline: pure, seeded, inside the load; every mistake named by step and key."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faults
from faults.kinds import KINDS
from faults.kit.params import FaultSchedule
from faults.schedule import timeline
from faults.schedule.times import firing_times
from harness.clusters import describe_cluster
from harness.errors import ScenarioError
from harness.protocols.cluster import TopicSettings
from harness.protocols.network import ANSWERS, CLIENT_DETOURS

NODES = ["kafka-1", "kafka-2", "kafka-3"]
TOPICS = [TopicSettings("orders", 12, 3), TopicSettings("audit-7", 3, 3)]


def compiled(
    *steps: Any, seed: int = 7, load_s: float = 60.0, topics: Any = TOPICS
) -> faults.Timeline:
    named = {"group:billing": ["billing-1"]}
    return faults.compile(
        list(steps),
        faults.inventory_of(topics=topics, nodes=NODES, coordinated=named),
        seed=seed,
        load_s=load_s,
    )


def test_at_for_and_target() -> None:
    (firing,) = compiled(
        {"fault": "kill", "target": "leader-of:orders", "at": "10s", "for": "500ms"}
    ).firings
    assert (firing.id, firing.kind, firing.target, firing.t_s, firing.for_s) == (
        1,
        "kill",
        "leader-of:orders",
        10.0,
        0.5,
    )


def test_every_from_until() -> None:
    timeline = compiled(
        {"fault": "leader-move", "topic": "orders", "every": "5s", "from": "5s", "until": "40s"}
    )
    assert [firing.t_s for firing in timeline.firings] == [
        5.0,
        10.0,
        15.0,
        20.0,
        25.0,
        30.0,
        35.0,
        40.0,
    ]


def test_every_stops_early_enough_to_heal_under_load() -> None:
    timeline = compiled({"fault": "pause", "every": "10s", "for": "6s"}, load_s=40)
    assert [firing.t_s for firing in timeline.firings] == [10.0, 20.0, 30.0]
    timeline = compiled({"fault": "pause", "every": "10s", "for": "12s"}, load_s=40)
    assert [firing.t_s for firing in timeline.firings] == [10.0, 20.0]


def test_a_share_is_a_number_or_a_percentage() -> None:
    step = {"fault": "truncate", "topic": "orders", "at": 1}
    shares = [
        compiled({**step, "share": share}).firings[0].params.share for share in (0.4, "40%", "40 %")
    ]
    assert shares == [0.4, 0.4, 0.4]


def test_storm_gaps() -> None:
    step = {
        "fault": "leader-move",
        "topic": "orders",
        "at": 20,
        "storm": {"times": 3, "gap": ["20ms", "200ms"]},
    }
    times = [firing.t_s for firing in compiled(step).firings]
    assert times[0] == 20.0
    assert all(0.02 <= b - a <= 0.2 for a, b in itertools.pairwise(times))
    assert len(times) == 3


def test_ids_follow_time_and_ties_follow_the_file() -> None:
    timeline = compiled(
        {"fault": "kill", "at": 30},
        {"fault": "pause", "at": 5},
        {"fault": "leader-move", "topic": "orders", "at": 5},
    )
    assert [(f.id, f.kind, f.step) for f in timeline.firings] == [
        (1, "pause", 1),
        (2, "leader-move", 2),
        (3, "kill", 0),
    ]


def test_editing_one_step_leaves_the_others_alone() -> None:
    jittered = {"fault": "leader-move", "topic": "orders", "every": "5s", "jitter": "2s"}
    one = compiled({"fault": "kill", "at": 10}, jittered)
    other = compiled({"fault": "pause", "at": 12, "for": "1s"}, jittered)
    assert [(f.t_s, f.draw) for f in one.firings if f.step == 1] == [
        (f.t_s, f.draw) for f in other.firings if f.step == 1
    ]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"fault": "kil", "at": 1}, "faults[0].fault: unknown kind 'kil'; did you mean kill?"),
        ({"at": 1}, "faults[0].fault: is missing"),
        (
            {"fault": "kill", "at": 1, "traget": "all"},
            "faults[0].traget: unknown key; did you mean target?",
        ),
        (
            {"fault": "kill", "at": "60s"},
            "faults[0].at: would fire at 60 s, but the load ends at 60 s",
        ),
        ({"fault": "kill"}, "faults[0]: needs either `at` or `every`"),
        ({"fault": "kill", "at": 1, "every": 2}, "faults[0]: needs either `at` or `every`"),
        ({"fault": "kill", "at": 1, "until": 2}, "faults[0]: `until` goes with `every`"),
        (
            {"fault": "kill", "every": 1, "jitter": 1},
            "faults[0]: jitter (1 s) must be shorter than every (1 s)",
        ),
        (
            {"fault": "kill", "every": 1, "until": "2m"},
            "faults[0].until: 120 s is after the end of load",
        ),
        (
            {"fault": "kill", "every": "90s"},
            "faults[0].every: does not fire and end within the 60 s of load",
        ),
        (
            {"fault": "leader-move", "topic": "orders", "every": "1ms"},
            "faults[0].every: more than 10000 firings",
        ),
        (
            {"fault": "kill", "at": "10x"},
            "faults[0].at: must be a duration such as 10s, 250ms or 2m, got '10x'",
        ),
        ({"fault": "kill", "at": True}, "faults[0].at: must be a duration"),
        ({"fault": "kill", "at": -1}, "faults[0].at: must be greater than or equal to 0, got -1"),
        ({"fault": "kill", "at": 1, "for": 0}, "faults[0].for: must be greater than 0, got 0"),
        ({"fault": "kill", "at": 1, "target": "kafka-9"}, "faults[0].target: no node 'kafka-9'"),
        (
            {"fault": "kill", "at": 1, "target": "kafka-1, kafka-9"},
            "faults[0].target: no node 'kafka-9'",
        ),
        (
            {"fault": "pause", "at": 1, "target": "kafka-1,kafka-1"},
            "faults[0].target: has kafka-1 twice",
        ),
        (
            {"fault": "kill", "at": 1, "target": "leader-of:order"},
            "no topic 'order'; did you mean orders?",
        ),
        (
            {"fault": "kill", "at": 1, "target": "coordinator-of:billing"},
            "no coordinator of 'billing'; allowed: coordinator-of:group:NAME or",
        ),
        (
            {"fault": "kill", "at": 1, "target": "coordinator-of:group:biling"},
            "no broker coordinates 'group:biling'; did you mean group:billing?",
        ),
        (
            {"fault": "kill", "at": 1, "target": "leader-of:orders-12"},
            "topic orders has partitions 0 to 11, not 12",
        ),
        (
            {"fault": "kill", "at": 1, "target": "all"},
            "faults[0].target: 'all' takes every node away at once",
        ),
        (
            {"fault": "leader-move", "at": 1},
            "faults[0].topic: must be given, there are several topics: orders, audit-7",
        ),
        (
            {"fault": "leader-move", "topic": "ordres", "at": 1},
            "no topic 'ordres'; did you mean orders?",
        ),
        (
            {"fault": "leader-move", "topic": "orders", "partitions": 13, "at": 1},
            "faults[0].partitions: 13 is more than the 12 of orders",
        ),
        (
            {"fault": "leader-move", "topic": "orders", "moves": {12: "kafka-1"}, "at": 1},
            "faults[0].moves: orders has",
        ),
        (
            {
                "fault": "leader-move",
                "topic": "orders",
                "at": 59.9,
                "storm": {"times": 9, "gap": [1, 2]},
            },
            "faults[0].storm: would fire at",
        ),
        (
            {
                "fault": "leader-move",
                "topic": "orders",
                "at": 1,
                "storm": {"times": 3, "gap": [2, 1]},
            },
            "faults[0].storm: gap: the shortest comes first",
        ),
        (
            {"fault": "leader-move", "at": 1, "storm": {"times": 3}},
            "faults[0].storm.gap: is missing",
        ),
        (
            {"fault": "leader-move", "at": 1, "storm": {"times": 3, "gap": 1}},
            "faults[0].storm.gap: must be a list in brackets, got 1",
        ),
        (
            {"fault": "leader-move", "at": 1, "moves": {"x": "kafka-1"}},
            "faults[0].moves.x: must be a whole number",
        ),
        (
            {"fault": "kill", "at": 1, "together": "x"},
            "faults[0].together: must be true or false, got 'x'",
        ),
        (
            {"fault": "request-stall", "requests": "Produce", "at": 1},
            "faults[0].requests: must be a list in brackets, got 'Produce'",
        ),
        (
            {"fault": "request-stall", "requests": ["Produce"], "share": "200%", "at": 1},
            "faults[0].share: must be more than 0 and at most 1 (100%), got '200%'",
        ),
        (
            {"fault": "packet-loss", "share": "much", "at": 1},
            "faults[0].share: must be a share such as 10% or 0.1, got 'much'",
        ),
        (
            {"fault": "kill", "at": [1]},
            "faults[0].at: must be a duration such as 10s, 250ms or 2m, got [1]",
        ),
        (
            {"fault": "rolling-restart", "target": "kafka-1", "at": 1},
            "faults[0].target: must be all, client or client:NAME; use restart for one broker, got",
        ),
        (
            {"fault": "latency", "link": "application:", "at": 1},
            "faults[0].link: must be clients, producers, consumers, applications, peers, all or",
        ),
        (
            {"fault": "latency", "link": 3, "at": 1},
            "faults[0].link: must be 'clients', 'producers',",
        ),
        ("kill", "faults[0]: must be a mapping"),
    ],
)
def test_mistakes_name_step_and_key(step: Any, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        compiled(step)
    assert message in str(caught.value)
    assert "list faults" in caught.value.hint


def test_the_firings_of_all_steps_together_are_bounded() -> None:
    dense = {"fault": "leader-move", "topic": "orders", "every": "10ms"}
    with pytest.raises(ScenarioError, match=r"faults\[1\]: more than 10,000 firings in all"):
        compiled(dense, dense)


def test_a_cluster_is_asked_once_for_faults_that_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        timeline, "find_ability", lambda cluster, ability: asked.append(ability) or cluster
    )
    step = {"fault": "kill", "target": "kafka-1", "for": "1s"}
    several = compiled(
        *[{**step, "at": n} for n in range(5)], {**step, "at": 9, "target": "kafka-2"}
    )
    faults.refuse_unsupported(several, describe_cluster("kafka"))
    assert len(asked) == 2 * len(KINDS["kill"].abilities)


def test_the_step_is_counted_from_zero() -> None:
    with pytest.raises(ScenarioError, match=r"^faults\[2\]\.target: "):
        compiled(
            {"fault": "kill", "at": 1},
            {"fault": "kill", "at": 2},
            {"fault": "kill", "at": 3, "target": "x"},
        )


def test_one_replica_cannot_move() -> None:
    with pytest.raises(ScenarioError, match="one replica"):
        compiled({"fault": "leader-move", "at": 1}, topics=[TopicSettings("lone", 3, 1)])


def test_topic_names_that_end_in_a_number() -> None:
    steps = [
        {"fault": "kill", "at": t, "target": f"leader-of:{name}"}
        for t, name in [(1, "audit-7"), (9, "audit-7-2")]
    ]
    assert [f.target for f in compiled(*steps).firings] == [
        "leader-of:audit-7",
        "leader-of:audit-7-2",
    ]


def test_description() -> None:
    lines = faults.describe(
        compiled(
            {"fault": "kill", "target": "leader-of:orders", "at": 10, "for": 5},
            {"fault": "leader-move", "topic": "orders", "partitions": 4, "at": 2},
            {"fault": "restart", "at": 30, "down": 2, "together": True},
        )
    )
    assert lines == [
        "+ 2.0 s  leader-move orders 4 partitions",
        "+10.0 s  kill leader-of:orders for 5 s",
        "+30.0 s  restart random down 2 s (together with others, stop_within 30 s)",
    ]


SECONDS = st.floats(0.2, 20.0).map(lambda value: round(value, 3))


@st.composite
def schedules(draw: Any) -> dict[str, Any]:
    every = draw(SECONDS)
    step = {"every": every, "jitter": draw(st.floats(0, 0.99)) * every, "from": draw(SECONDS)}
    if draw(st.booleans()):
        step["storm"] = {
            "times": draw(st.integers(2, 5)),
            "gap": sorted([draw(SECONDS) / 100, draw(SECONDS) / 100]),
        }
    return step


@settings(deadline=None, max_examples=50)
@given(
    step=schedules(), seed=st.integers(0, 2**32), load_s=st.floats(1, 120), for_s=st.floats(0.1, 5)
)
def test_firings_lie_in_the_load_and_jitter_in_its_bounds(
    step: dict[str, Any], seed: int, load_s: float, for_s: float
) -> None:
    fault = {"fault": "pause", "for": for_s, **step}
    try:
        firings = compiled(fault, seed=seed, load_s=load_s).firings
    except ScenarioError as error:
        if "does not fire" in str(error) or "more than" in str(error):
            return
        raise
    assert firings == compiled(fault, seed=seed, load_s=load_s).firings
    assert [firing.id for firing in firings] == list(range(1, len(firings) + 1))
    assert all(0 <= firing.t_s < load_s for firing in firings)
    assert all(firing.t_s + for_s <= load_s for firing in firings)
    assert sorted(firing.t_s for firing in firings) == [firing.t_s for firing in firings]


@settings(deadline=None, max_examples=50)
@given(step=schedules(), seed=st.text(max_size=5))
def test_every_counts_from_the_first_and_never_drifts(step: dict[str, Any], seed: str) -> None:
    step.pop("storm", None)
    schedule = FaultSchedule.model_validate({**step, "until": 100.0})
    if step["from"] + 100 / step["every"] > 9000:
        return
    for number, t_s in enumerate(firing_times(schedule, seed, 101.0, 0.0)):
        late_s = t_s - (step["from"] + number * step["every"])
        assert -1e-6 <= late_s <= step["jitter"] + 1e-6


def test_another_seed_makes_other_choices() -> None:
    step = {"fault": "pause", "every": 5, "jitter": 2, "for": 1}
    assert compiled(step, seed=1).firings != compiled(step, seed=2).firings


def test_a_cluster_that_does_not_know_a_value_names_its_key() -> None:
    step = {
        "fault": "request-error",
        "target": "all",
        "at": 1,
        "requests": ["Produc"],
        "error": "NOT_COORDINATOR",
    }
    cluster = describe_cluster("kafka", needs=frozenset({CLIENT_DETOURS, ANSWERS}))
    with pytest.raises(ScenarioError, match=r"^faults\[0\].requests: no request 'Produc' of kafka"):
        faults.refuse_unsupported(compiled(step), cluster)
    with pytest.raises(ScenarioError, match=r"^faults\[0\].requests: has too few values, got \[\]"):
        compiled({**step, "requests": []})


@pytest.mark.parametrize(
    ("system", "step", "message"),
    [
        (
            "kafka",
            {"fault": "answer-reorder", "requests": ["Produce"]},
            "faults[0].fault: answer-reorder means nothing for answers of kafka",
        ),
        (
            "rabbitmq",
            {"fault": "close-by-broker"},
            "faults[0].requests: is missing, and its default SEND is not a request of rabbitmq; allo",
        ),
        (
            "nats",
            {"fault": "request-error", "requests": ["publish"], "error": "foo"},
            "faults[0].requests: no request 'publish' of nats; allowed: PUB",
        ),
        (
            "kafka",
            {"fault": "request-error", "requests": ["Produce"], "error": "foo"},
            "faults[0].error: answers of kafka cannot say 'foo'; allowed: UNKNOWN_SERVER_ERROR",
        ),
    ],
)
def test_what_no_cluster_of_the_system_can_do_names_no_way_to_start_one(
    system: str, step: dict[str, Any], message: str
) -> None:
    cluster = describe_cluster(system, needs=frozenset({CLIENT_DETOURS, ANSWERS}))
    with pytest.raises(ScenarioError) as caught:
        faults.refuse_unsupported(compiled({**step, "at": 1, "for": 1}), cluster)
    assert str(caught.value).startswith(message)
    assert caught.value.hint == "`brokerstorm list faults` shows every kind and its keys"
