"""Consumers as applications have them: who commits, where a group begins, options that say what is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.contracts.plan import ConsumerPlan
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.scenario.file import load_scenario
from harness.workers import known_workers


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
def test_an_option_that_says_what_is_so_anyway_is_accepted(tmp_path: Path, client: str, options: str) -> None:
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
        ("options: {auto.offset.reset: latest}", "set by brokerstorm itself: write `start` of the consumer"),
        (
            "client: kafka-python, commit: auto",
            "commit: is not supported by the kafka-python worker: its client does not say which positions it "
            "commits by itself, got 'auto'; supported: explicit",
        ),
        ("start: none", "start: has no meaning in a run: its groups are new"),
        ("client: kafka-clients, commit: auto, settle: ack", "commit: needs settle: auto"),
    ],
)
def test_what_could_not_be_judged_is_refused_with_a_sentence(
    tmp_path: Path, consumer: str, problem: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        consumer_of(tmp_path, consumer)
    assert problem in str(caught.value)
