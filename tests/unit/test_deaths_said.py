"""Python workers tell that their client gave itself up: once, in its words, by a table for each
client."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from harness.records import Outcome

Load = Callable[[str, str], ModuleType]


class Report:
    def __init__(self) -> None:
        self.said: list[tuple[str, ...]] = []

    def client_died(self, *words: str) -> None:
        self.said.append(words)


def test_it_is_said_once(worker_module: Load, capsys: pytest.CaptureFixture[str]) -> None:
    report = worker_module("confluent_kafka", "worker_kit.protocol").Reporter()
    assert not report.died
    report.client_died("_FATAL", "_FATAL: lost count")
    report.client_died("_FATAL", "_FATAL: again", "fenced")
    assert report.died
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    said = {
        "type": "event",
        "kind": "client-died",
        "name": "_FATAL",
        "text": "_FATAL: lost count",
        "why": "error",
    }
    assert line == {**line, **said}


def confluent(module: ModuleType) -> list[Any]:
    from confluent_kafka import KafkaError

    return [
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"),
        KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "seq", fatal=True),
        KafkaError(KafkaError._FATAL, "Fatal error: Static consumer fenced by other consumer"),
        KafkaError(KafkaError._GAPLESS_GUARANTEE, "gap", fatal=True),
    ]


def kafka_python(module: ModuleType) -> list[Any]:
    from kafka import errors

    return [
        errors.KafkaTimeoutError("late"),
        errors.ClusterAuthorizationFailedError("no"),
        errors.FencedInstanceIdError("other"),
        errors.IllegalStateError("KafkaProducer already closed!"),
    ]


def pulsar(module: ModuleType) -> list[Any]:
    import pulsar

    return [pulsar.Result.Timeout, pulsar.Result.AlreadyClosed, pulsar.Result.ProducerFenced]


@pytest.mark.parametrize(
    ("worker", "errors", "whys"),
    [
        ("confluent_kafka", confluent, ["error", "fenced", "asked"]),
        ("kafka_python", kafka_python, ["error", "fenced", "error"]),
        ("pulsar_client", pulsar, ["error", "fenced"]),
    ],
)
def test_only_what_the_client_calls_final_is_a_death(
    worker_module: Load, worker: str, errors: Callable[[ModuleType], list[Any]], whys: list[str]
) -> None:
    outcomes, report = worker_module(worker, "outcomes"), Report()
    for error in errors(outcomes):
        outcomes.note_death(report, error)
    assert [why for _, _, why in report.said] == whys
    assert all(text.startswith(f"{name}: ") for name, text, _ in report.said)


def test_a_dead_pulsar_producer_queues_nothing(worker_module: Load) -> None:
    outcome_of = worker_module("pulsar_client", "outcomes").outcome_of
    assert outcome_of("ProducerFenced", in_call=True) == Outcome.FAIL
    assert outcome_of("ProducerFenced") == Outcome.INFO, "it was sent, and may have been stored"
    assert outcome_of("Timeout", in_call=True) == Outcome.INFO


def test_aiokafkas_sender_has_ended_when_a_call_is_refused_with_its_error(
    worker_module: Load,
) -> None:
    death = worker_module("aiokafka_client", "outcomes").death
    fenced, ended = (
        type("ProducerFenced", (Exception,), {}),
        RuntimeError("Unexpected error during batch delivery"),
    )
    assert (death(fenced(), refused=True), death(fenced(), refused=False)) == ("fenced", "")
    assert (death(ended, refused=True), death(ValueError("key"), refused=True)) == ("error", "")
