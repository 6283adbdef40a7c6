"""Consumers as applications have them: who commits, where a group begins, options that say what is
so."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.contracts.plan import ConsumerPlan
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.run.worker_specs import Endpoints, client_spec
from harness.rundir import RunDir
from harness.scenario.file import load_scenario
from harness.workers import known_workers
from workers.python_kit.worker_kit import interruptions
from workers.python_kit.worker_kit.protocol import Control


def consumer_of(tmp_path: Path, consumer: str) -> ConsumerPlan:
    file = tmp_path / "application.yaml"
    file.write_text(f"name: x\nload: {{consumers: {{c: {{{consumer}}}}}}}\n")
    return build_plan(load_scenario(file, clients=known_workers), seed=1).consumers[0]


@pytest.mark.parametrize(
    ("client", "options"),
    [
        ("kafka-clients", "auto.offset.reset: earliest, enable.auto.commit: false"),
        ("confluent-kafka", "enable.auto.commit: 'False'"),
        ("kafka-python", "enable_auto_commit: false"),
        ("sarama", "Consumer.Offsets.Initial: oldest"),
    ],
)
def test_an_option_that_says_what_is_so_anyway_is_accepted(
    tmp_path: Path, client: str, options: str
) -> None:
    assert consumer_of(tmp_path, f"client: {client}, options: {{{options}}}").client == client


@pytest.mark.parametrize(
    ("consumer", "options"),
    [
        (
            "client: kafka-clients, commit: auto, commit_every: 2s",
            {"enable.auto.commit": "true", "auto.commit.interval.ms": "2000"},
        ),
        ("start: latest", {"auto.offset.reset": "latest"}),
        ("client: kafka-python, start: latest", {"auto_offset_reset": "latest"}),
        ("client: sarama, start: latest", {"Consumer.Offsets.Initial": "newest"}),
    ],
)
def test_keys_of_a_consumer_become_options_of_its_client(
    tmp_path: Path, consumer: str, options: dict[str, str]
) -> None:
    plan = consumer_of(tmp_path, consumer)
    assert plan.options == options
    assert plan.promise.start == ("latest" if "latest" in consumer else "earliest")


@pytest.mark.parametrize(
    ("consumer", "problem"),
    [
        (
            "options: {enable.auto.commit: true}",
            "is set by brokerstorm itself: write `commit: auto` and `commit_every` of the consumer",
        ),
        (
            "options: {auto.offset.reset: latest}",
            "set by brokerstorm itself: write `start` of the consumer",
        ),
        (
            "client: kafka-python, commit: auto",
            "commit: is not supported by the kafka-python worker: its client does not say which "
            "positions it commits by itself, got 'auto'; supported: explicit",
        ),
        ("start: none", "start: has no meaning in a run: its groups are new"),
        ("client: kafka-clients, commit: auto, settle: ack", "commit: needs settle: auto"),
        (
            "client: sarama, pauses: {every: 5s, for: 1s}",
            "pauses: is not supported by the sarama worker: it pauses no partition",
        ),
        (
            "client: kafka-python, seeks: {every: 5s, back: 10}",
            "seeks: is not supported by the kafka-python worker: it seeks no position",
        ),
        (
            "client: sarama, reader: true",
            "reader: is not supported by the sarama worker: it reads in a group",
        ),
        ("reader: true, count: 2", "count: must be 1 with reader: true"),
        ("reader: true}, d: {", "group: must be a name of its own with reader: true"),
        ("client: sarama, pattern: orders", "pattern: is not supported by the sarama worker"),
        ("pattern: bills-.*", "pattern: matches no topic"),
        ("pattern: 'orders['", "pattern: is not a regular expression"),
        ("pattern: orders, topics: [orders]", "pattern: cannot be combined with topics"),
        ("pattern: .*", "pattern: "),
        ("pauses: {every: 2s, for: 2s}", "pauses.for: must be less than every (2 s)"),
        ("pauses: {every: 60s, for: 20s}", "pauses.for: must be less than limits.stall (15 s)"),
        (
            "client: kafka-clients, settle: ack, seeks: {every: 5s, back: 1}",
            "seeks: needs settle: auto",
        ),
    ],
)
def test_what_could_not_be_judged_is_refused_with_a_sentence(
    tmp_path: Path, consumer: str, problem: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        consumer_of(tmp_path, consumer)
    assert problem in str(caught.value)


def test_a_worker_is_told_when_its_application_pauses_and_seeks(tmp_path: Path) -> None:
    keys = "pauses: {every: 5s, for: 2s}, seeks: {every: 10s, back: 500}"
    file = tmp_path / "application.yaml"
    file.write_text(f"name: x\nload: {{consumers: {{c: {{{keys}}}, plain: {{}}}}}}\n")
    plan = build_plan(load_scenario(file, clients=known_workers), seed=1)
    told, plain = (
        client_spec(plan, RunDir(tmp_path), consumer, Endpoints("b:1")).consumer
        for consumer in plan.consumers
    )
    assert told is not None
    assert plain is not None
    assert told.model_dump()["pauses"] == {"every_s": 5.0, "for_s": 2.0}
    assert told.model_dump()["seeks"] == {"every_s": 10.0, "back": 500}
    assert (told.follows_load, plain.follows_load) == (True, False)


def test_pauses_and_seeks_begin_after_their_period_and_end_with_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"s": 0.0}
    monkeypatch.setattr(interruptions.time, "monotonic_ns", lambda: round((100 + now["s"]) * 1e9))
    control = Control()
    part = {"pauses": {"every_s": 5.0, "for_s": 2.0}, "seeks": {"every_s": 4.0, "back": 7}}
    found = interruptions.Interruptions(part, control)

    def at(seconds: float) -> tuple[bool, int]:
        now["s"] = seconds
        return found.is_paused(), found.messages_back()

    assert at(6) == (False, 0)  # no `start` yet
    control.handle(f"start {100 * 10**9}")
    assert [at(s) for s in (1, 4.5, 5.5, 7.5, 8.5, 11)] == [
        (False, 0), (False, 7), (True, 0), (False, 0), (False, 7), (True, 0)
    ]  # fmt: skip
    control.handle("stop-load")
    assert at(13) == (False, 0)


@pytest.mark.parametrize(
    ("consumer", "partitions", "problem"),
    [
        ("seeks: {every: 5s, back: 10}", 2, "seeks: needs one topic with partitions: 1"),
        ("seeks: {every: 5s, back: 10}, count: 2", 1, "count: must be 1 with seeks"),
        ("seeks: {every: 5s, back: 10}, receive: listener", 1, "receive: must be loop with seeks"),
        (
            "seeks: {every: 5s, back: 10}}, d: {client: pulsar-client",
            1,
            "group: must be a name of its own",
        ),
        ("seeks: {every: 5s, back: 10}, reader: true", 1, "seeks: cannot be combined with reader"),
        ("seeks: {every: 5s, back: 10}, settle: cumulative", 1, ""),
    ],
)
def test_a_seek_on_pulsar_is_of_the_only_member_in_the_only_partition(
    tmp_path: Path, consumer: str, partitions: int, problem: str
) -> None:
    file = tmp_path / "application.yaml"
    consumers = f"{{c: {{client: pulsar-client, {consumer}}}}}"
    file.write_text(
        f"name: x\nsystem: pulsar\ntopics: {{orders: {{partitions: {partitions}}}}}\n"
        f"load: {{producers: {{p: {{client: pulsar-client}}}}, consumers: {consumers}}}\n"
    )
    if not problem:
        spec = load_scenario(file, clients=known_workers).load.consumers["c"]
        assert spec.seeks is not None
        return
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file, clients=known_workers)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("system", "told"),
    [("kafka", "orders-.*"), ("pulsar", "persistent://public/bs-{tag}/orders-.*")],
)
def test_a_pattern_is_of_addresses_and_chooses_the_topics_that_it_matches(
    tmp_path: Path, system: str, told: str
) -> None:
    file = tmp_path / "application.yaml"
    topics = "topics: {orders-a: {}, orders-b: {}, my-orders-c: {}}"
    name = "kafka-clients" if system == "kafka" else "pulsar-client-java"
    consumer = f"{{client: {name}, pattern: ^orders-.*}}"
    load = f"load: {{producers: {{p: {{client: {name}}}}}, consumers: {{c: {consumer}}}}}"
    file.write_text(f"name: x\nsystem: {system}\n{topics}\n{load}\n")
    plan = build_plan(load_scenario(file, clients=known_workers), seed=1)
    assert plan.consumers[0].topics == ["orders-a", "orders-b"]
    part = client_spec(plan, RunDir(tmp_path), plan.consumers[0], Endpoints("b:1")).consumer
    assert part is not None
    assert part.pattern == told.replace("{tag}", f"{plan.run_tag:08x}")


@pytest.mark.parametrize(
    ("producer", "problem"),
    [
        (
            "client: pulsar-client-java, deliver_after: 20s",
            "deliver_after: must be less than limits.stall (15 s)",
        ),
        (
            "client: pulsar-client, deliver_after: 2s",
            "deliver_after: is not supported by the pulsar-client worker",
        ),
        (
            "client: pulsar-client-java, deliver_after: 2s, transactions: {messages: 5}",
            "deliver_after: cannot be combined with transactions",
        ),
    ],
)
def test_a_delay_that_could_not_be_judged_is_refused(
    tmp_path: Path, producer: str, problem: str
) -> None:
    file = tmp_path / "application.yaml"
    file.write_text(f"name: x\nsystem: pulsar\nload: {{producers: {{p: {{{producer}}}}}}}\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file, clients=known_workers)
    assert problem in str(caught.value)


@pytest.mark.parametrize("client", ["pulsar-client", "pulsar-client-java"])
def test_a_reader_of_pulsar_has_no_subscription_that_settles(tmp_path: Path, client: str) -> None:
    file = tmp_path / "application.yaml"
    file.write_text(
        "name: x\nsystem: pulsar\n"
        f"load: {{consumers: {{c: {{client: {client}, reader: true, group: own}}}}}}\n"
    )
    plan = build_plan(load_scenario(file, clients=known_workers), seed=1)
    reader = plan.consumers[0]
    assert (reader.reader, reader.settle, reader.promise.order) == (True, "none", "stream")
    spec = client_spec(plan, RunDir(tmp_path), reader, Endpoints(""))
    assert spec.consumer is not None
    assert spec.consumer.reader
