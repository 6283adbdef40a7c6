"""Plans: dense lanes, buckets that keep together what one task must see, exact rates, deadlines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts.plan import Plan
from harness.contracts.rows import LaneGroup
from harness.errors import ScenarioError
from harness.plan.buckets import with_buckets
from harness.plan.build import build_plan, build_plans, with_tag
from harness.plan.hours import topic_retained_s
from harness.plan.rates import at_rate
from harness.run.worker_specs import Endpoints, audit_specs, client_spec, coordinated
from harness.rundir import RunDir
from harness.scenario.bundled import bundled_scenarios
from harness.scenario.file import load_scenario, variants
from harness.scenario.model import Scenario
from harness.systems import SYSTEMS


def scenario(**keys: Any) -> Scenario:
    return Scenario.model_validate({"name": "mine", **keys})


@pytest.mark.parametrize(
    ("load_s", "config", "kept_s"),
    [
        (7200, {}, 3600),
        (7200, {"retention.ms": "900000"}, 900),
        (7200, {"retention.ms": "-1"}, 3600),
        (7199, {"retention.ms": "900000"}, None),  # as the topic says; nothing of ours is set
    ],
)
def test_a_load_of_hours_keeps_what_a_topic_asks_for(
    load_s: int, config: dict[str, str], kept_s: float | None
) -> None:
    plan = build_plan(
        scenario(topics={"orders": {"config": config}}, load={"duration": load_s}), seed=1
    )
    assert [topic_retained_s(plan, topic) for topic in plan.topics] == [kept_s]


def test_a_long_log_has_longer_to_be_read() -> None:
    def audit_s(**keys: Any) -> float:
        load = {"duration": 1800, "warm_up": 0, "rate": 50_000}
        return build_plan(scenario(load=load, **keys), seed=1).limits["audit"]

    assert audit_s() == 180 + 90_000_000 / 20_000
    assert audit_s(limits={"audit": "3m"}) == 180


def test_same_input_same_bytes() -> None:
    for name in bundled_scenarios():
        first, second = (
            [plan.model_dump_json() for plan in build_plans(load_scenario(name), seed=7)]
            for _ in range(2)
        )
        assert first == second


def test_streams_that_a_topic_may_grow_to_have_their_ids_from_the_start(tmp_path: Path) -> None:
    topics = {"a": {"partitions": 2, "grows_to": 4}, "b": {"partitions": 1}}
    plan = build_plan(scenario(topics=topics), seed=1)
    assert plan.streams() == ["a-0", "a-1", "a-2", "a-3", "b-0"]
    assert [topic.partitions for topic in plan.topics] == [2, 1]
    parts = [spec.audit for spec in audit_specs(plan, RunDir(tmp_path), Endpoints("", ""))]
    assert sorted(stream for part in parts if part for stream in part.later or ()) == ["a-2", "a-3"]


def test_a_plan_survives_its_file() -> None:
    plan = build_plan(load_scenario("kafka-smoke"), seed=1)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_lane_ids_are_dense_over_topics_and_modes() -> None:
    plan = build_plan(load_scenario("kafka-smoke"), seed=1)
    lanes = [
        lane for group in plan.lane_groups for lane in range(group.first, group.first + group.count)
    ]
    assert lanes == list(range(len(lanes)))
    assert [(g.topic, g.mode, g.count) for g in plan.lane_groups] == [
        ("orders", "partition", 6),
        ("clicks", "key", 200),
        ("clicks", "routed", 1),
    ]
    assert [producer.groups for producer in plan.producers] == [[0], [1], [2]]
    assert [producer.instance for producer in plan.producers] == [1, 2, 3]
    assert [consumer.session for consumer in plan.consumers] == [1, 2]
    assert plan.streams()[:7] == [*(f"orders-{p}" for p in range(6)), "clicks-0"]


def test_partitions_spread_evenly_over_buckets() -> None:
    plan = build_plan(scenario(), seed=1)
    (group,) = plan.lane_groups
    assert plan.buckets == 12  # one partition each is more even than 12 over 8
    assert sorted(group.buckets) == list(range(12))


def test_many_partitions_share_the_fewest_even_buckets() -> None:
    plan = build_plan(scenario(topics={"a": {"partitions": 48}}), seed=1)
    assert plan.buckets == 8
    assert set(Counter(plan.lane_groups[0].buckets).values()) == {6}


def test_buckets_grow_with_the_rows() -> None:
    plan = build_plan(
        scenario(
            topics={"a": {"partitions": 100}}, load={"rate": 50_000, "duration": 2000, "warm_up": 0}
        ),
        seed=1,
    )
    assert plan.buckets == 20
    assert set(Counter(plan.lane_groups[0].buckets).values()) == {5}


def test_a_keyed_or_routed_topic_stays_whole_whoever_else_writes_to_it() -> None:
    plan = build_plan(
        scenario(
            topics={"a": {"partitions": 4}, "b": {"partitions": 4}},
            load={"producers": {"p": {}, "k": {"lanes": "key", "topics": ["a"]}}},
        ),
        seed=1,
    )
    buckets = {(g.topic, g.mode): g.buckets for g in plan.lane_groups}
    assert len(set(buckets["a", "partition"] + buckets["a", "key"])) == 1
    assert len(set(buckets["b", "partition"])) == 4
    assert {plan.stream_bucket(f"a-{p}") for p in range(4)} == set(buckets["a", "key"])


@pytest.mark.long
@given(
    partitions=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    mode=st.sampled_from(["partition", "key", "routed"]),
    seconds=st.integers(1, 20_000),
)
def test_every_lane_has_a_bucket_and_every_bucket_a_lane(
    partitions: list[int], mode: str, seconds: int
) -> None:
    plan = build_plan(
        scenario(
            topics={f"t{i}": {"partitions": count} for i, count in enumerate(partitions)},
            load={"duration": seconds, "producers": {"p": {"lanes": mode}}},
        ),
        seed=1,
    )
    used = {g.bucket(lane) for g in plan.lane_groups for lane in range(g.first, g.first + g.count)}
    assert used == set(range(plan.buckets))
    for group in plan.lane_groups:
        for partition in range(partitions[int(group.topic[1:])]):
            lane = group.first + (partition if mode == "partition" else 0)
            assert plan.stream_bucket(f"{group.topic}-{partition}") == group.bucket(lane)


def piped(**pipeline: Any) -> Plan:
    return build_plan(
        scenario(
            topics={
                "orders": {"partitions": 8},
                "invoices": {"partitions": 3},
                "letters": {"partitions": 5},
                "other": {"partitions": 5},
            },
            load={
                "rate": 1000,
                "producers": {"shop": {"topics": ["orders"]}, "else": {"topics": ["other"]}},
                "consumers": {"audit": {}},
                "pipelines": {
                    "billing": {"from": "orders", "to": "invoices", "count": 2, **pipeline},
                    "post": {"from": "invoices", "to": "letters"},
                },
            },
        ),
        seed=1,
    )


def test_what_is_read_and_what_is_made_of_it_lie_in_one_bucket() -> None:
    plan = piped()
    for source, to, count in (("orders", "invoices", 3), ("invoices", "letters", 5)):
        for partition in range(next(t.partitions for t in plan.topics if t.name == source)):
            made = plan.stream_bucket(f"{to}-{partition % count}")
            assert plan.stream_bucket(f"{source}-{partition}") == made
    assert len({plan.stream_bucket(f"orders-{p}") for p in range(8)}) == 3
    assert {plan.stream_bucket(f"letters-{p}") for p in (3, 4)}.isdisjoint(
        {plan.stream_bucket(f"orders-{p}") for p in range(8)}
    )


@pytest.mark.parametrize("topic", ["orders", "invoices"])
def test_a_whole_topic_takes_with_it_what_pipelines_make_of_it(topic: str) -> None:
    groups = [
        LaneGroup("orders", "partition", 0, 4, []),
        LaneGroup("invoices", "partition", 4, 4, []),
        LaneGroup(topic, "routed", 8, 1, []),
    ]
    count, found = with_buckets(groups, 0, [("orders", "invoices")])
    assert count == 1
    assert {bucket for group in found for bucket in group.buckets} == {0}


def test_members_of_a_pipeline_are_the_last_producers_and_consumers() -> None:
    plan = piped(transactions={"messages": 5}, consumer_options={"fetch.wait.max.ms": 10})
    members = ["pipeline-billing-1", "pipeline-billing-2", "pipeline-post"]
    assert [member.name for member in plan.pipelines] == members
    assert [p.name for p in plan.producers] == ["producer-shop", "producer-else", *members]
    assert [c.name for c in plan.consumers] == ["consumer-audit", *members]
    assert [(m.instance, m.session, m.transactional) for m in plan.pipelines] == [
        (3, 2, True),
        (4, 3, True),
        (5, 4, False),
    ]
    assert [p.rate_per_s for p in at_rate(plan, 500).producers] == [250, 250, 0, 0, 0]
    assert [c.group for c in plan.consumers] == ["group", "billing", "billing", "post"]
    assert len(plan.clients) == 6


def test_a_member_is_one_process_with_the_spec_of_both_halves() -> None:
    plan = piped(transactions={"every": "100ms"}, consumer_options={"fetch.wait.max.ms": 10})
    later = plan.pipelines[1].model_copy(
        update={"name": "pipeline-billing-2.2", "instance": 9, "session": 9}
    )
    spec = client_spec(plan, RunDir(Path("r")), later, Endpoints("localhost:1"))
    assert (spec.role, spec.name) == ("pipeline", "pipeline-billing-2.2")
    assert spec.producer is not None
    assert spec.producer.transactions is not None
    assert spec.consumer is not None
    assert spec.pipeline is not None
    assert spec.producer.instance == spec.consumer.session == 9
    assert spec.producer.transactions.id == f"pipeline-billing-2-{plan.run_tag:08x}"
    assert [group.topic for group in spec.producer.lane_groups] == ["invoices"]
    assert spec.consumer.topics == ["orders"]
    assert spec.pipeline.consumer_options == {"fetch.wait.max.ms": "10"}
    assert coordinated(plan)["transactions:billing"] == [
        f"pipeline-billing-{member}-{plan.run_tag:08x}-0" for member in (1, 2)
    ]


@pytest.mark.long
@given(
    rate=st.integers(100, 2_000_000),
    specs=st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 5)), min_size=1, max_size=5),
)
def test_rates_sum_to_the_rate_exactly(rate: int, specs: list[tuple[float, int]]) -> None:
    producers = {
        f"p{i}": {"share": share, "count": count} for i, (share, count) in enumerate(specs)
    }
    try:
        plan = build_plan(scenario(load={"rate": rate, "producers": producers}), seed=1)
    except ScenarioError:
        assert rate * 0.1 / (5 * 50) < 1  # the only reason: a producer would get nothing
        return
    assert sum(p.rate_per_s for p in plan.producers) == rate == plan.rate_per_s
    total = sum(share for share, _ in specs)
    expected = [rate * share / total / count for share, count in specs for _ in range(count)]
    for producer, wanted in zip(plan.producers, expected, strict=True):
        assert abs(producer.rate_per_s - wanted) <= 1


def test_a_producer_without_a_message_a_second_is_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"3 msg/s shared by 4 producers leaves one with less than 1"
    ):
        build_plan(scenario(load={"rate": 3, "producers": {"p": {"count": 4}}}), seed=1)


def test_unlimited_is_rate_zero() -> None:
    plan = build_plan(scenario(load={"unlimited": True}), seed=1)
    assert plan.rate_per_s == 0
    assert [p.rate_per_s for p in plan.producers] == [0]


@pytest.mark.parametrize(
    ("client", "options", "seconds"),
    [
        ("confluent-kafka", {}, 310),
        ("confluent-kafka", {"message.timeout.ms": 5000}, 15),
        ("confluent-kafka", {"delivery.timeout.ms": 7000}, 17),
        # never gives up by itself
        ("confluent-kafka", {"message.timeout.ms": 0}, 60 + 60 + 60 + 10),
        ("kafka-python", {}, 130),
        ("kafka-python", {"delivery_timeout_ms": 30_000}, 40),
    ],
)
def test_a_send_hangs_after_the_clients_own_limit(
    client: str, options: dict[str, Any], seconds: float
) -> None:
    plan = build_plan(
        scenario(load={"producers": {"p": {"client": client, "options": options}}}), seed=1
    )
    assert plan.producers[0].call_deadline_s == seconds


@pytest.mark.parametrize(
    ("client", "options", "limits", "promised"),
    [
        ("confluent-kafka", {}, {}, True),
        ("confluent-kafka", {"message.timeout.ms": 0}, {}, False),
        # each attempt is limited, and a send waits for the batches before it
        ("kafka-go", {}, {}, False),
        ("sarama", {}, {}, False),
        ("kafkajs", {}, {"call": 3}, True),
    ],
)
def test_whether_an_answer_is_promised_by_the_deadline(
    client: str, options: dict[str, Any], limits: dict[str, Any], promised: bool
) -> None:
    made = scenario(
        load={"producers": {"p": {"client": client, "options": options}}}, limits=limits
    )
    assert build_plan(made, seed=1).producers[0].limits_calls is promised


def test_limits_call_overrules() -> None:
    assert build_plan(scenario(limits={"call": 3}), seed=1).producers[0].call_deadline_s == 3


@pytest.mark.parametrize(("own_s", "deadline_s"), [(0, 15 + 10), (5, 5 + 10)])
def test_a_client_that_never_gives_up_can_be_given_a_limit(own_s: int, deadline_s: int) -> None:
    client = {"client": "confluent-kafka", "options": {"message.timeout.ms": own_s * 1000}}
    made = scenario(load={"producers": {"p": client}}, limits={"unbounded_call": 15})
    assert build_plan(made, seed=1).producers[0].call_deadline_s == deadline_s


def test_options_are_native_text() -> None:
    options = {
        "enable.idempotence": True,
        "linger.ms": 0.5,
        "acks": 1,
        "client.dns.lookup": "use_all_dns_ips",
    }
    plan = build_plan(
        scenario(
            load={"producers": {"p": {"options": options | {"enable.idempotence": False}}}},
            cluster={"config": {"auto.leader.rebalance.enable": True}},
        ),
        seed=1,
    )
    assert plan.producers[0].options == {
        "enable.idempotence": "false",
        "linger.ms": "0.5",
        "acks": "1",
        "client.dns.lookup": "use_all_dns_ips",
    }
    assert plan.broker_config == {"auto.leader.rebalance.enable": "true"}


def test_topics_keep_their_whole_log() -> None:
    plan = build_plan(scenario(topics={"a": {}, "b": {"replication": 1}}), seed=1)
    assert plan.topics[0].config == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "min.insync.replicas": "2",
    }
    assert plan.topics[1].config["min.insync.replicas"] == "1"


def test_rounds_interleave_variants_under_the_same_seeds() -> None:
    raw = {"rounds": 2, "variants": {"a": {"expect": "acked-lost"}, "b": {}}}
    plans = build_plans(scenario(**raw), seed=10)
    assert [(p.variant, p.seed, p.expect) for p in plans] == [
        ("a", 10, "acked-lost"),
        ("b", 10, "clean"),
        ("a", 11, "acked-lost"),
        ("b", 11, "clean"),
    ]
    assert len({p.run_tag for p in plans}) == 4


def test_versions() -> None:
    assert build_plan(scenario(), seed=1).version == SYSTEMS["kafka"].version
    assert build_plan(scenario(cluster={"version": "3.9.1"}), seed=1).version == "3.9.1"


def test_bundled_variants_differ_only_in_settings() -> None:
    """A demonstration is fair only if both sides meet the same load and the same faults."""
    for name in bundled_scenarios():
        plans = [build_plan(s, seed=3) for _, s, _ in variants(load_scenario(name))]
        for plan in plans[1:]:
            assert (plan.faults, plan.rate_per_s, plan.load_s, plan.lane_groups) == (
                plans[0].faults,
                plans[0].rate_per_s,
                plans[0].load_s,
                plans[0].lane_groups,
            )


@pytest.mark.parametrize("system", ["kafka", "nats", "pulsar", "qpid"])
def test_a_plan_under_another_tag_is_the_one_that_would_have_been_built_with_it(
    system: str,
) -> None:
    built = build_plan(scenario(system=system), seed=7, run_tag=1)
    other = build_plan(scenario(system=system), seed=7, run_tag=0xABCD)
    assert with_tag(built, 0xABCD) == other
    assert other.namespace in other.topics[0].address
