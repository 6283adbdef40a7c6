"""Outcomes of sends that did not go well: fail is certain, info is not."""

from __future__ import annotations

from harness.records import Outcome, TableId
from tests.live.kafka_workers import MARKS, every_producer
from tests.live.worker_rig import Rig, begin, dense, finish, whole_run

pytestmark = MARKS


@every_producer
def test_too_large_for_the_client_is_a_fail(rig: Rig, library: str) -> None:
    limit = {
        "confluent-kafka": "message.max.bytes",
        "kafka-python": "max_request_size",
        "kafka-clients": "max.request.size",
        "sarama": "Producer.MaxMessageBytes",
    }[library]
    topic = rig.topic()
    producer = whole_run(
        rig.producer(library, topic, rate=50, warm_up_s=0, load_s=0.5, payload=2000, options={limit: "1000"})
    )
    sends = producer.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.FAIL}
    assert producer.done_message["fail"] == len(sends)
    assert producer.errors_of(sends)
    assert len(rig.audit(topic).rows(TableId.LOG)) == 0


@every_producer
def test_refused_by_the_broker_is_a_fail(rig: Rig, library: str) -> None:
    topic = rig.topic(**{"max.message.bytes": "500"})
    producer = whole_run(rig.producer(library, topic, rate=50, warm_up_s=0, load_s=0.5, payload=1000))
    sends = producer.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.FAIL}
    assert len(rig.audit(topic).rows(TableId.LOG)) == 0
    assert sum(error["type"] == "error" for error in producer.errors) == len(producer.errors_of(sends))


@every_producer
def test_no_answer_in_time_is_info(rig: Rig, library: str) -> None:
    """Every broker frozen: nobody can know what became of a send."""
    options = {
        "confluent-kafka": {"message.timeout.ms": "2000", "socket.timeout.ms": "1500"},
        # its idempotent producer never sends again after this: a hang of the client, not of the worker
        "kafka-python": {
            "delivery_timeout_ms": "2000",
            "request_timeout_ms": "1500",
            "enable_idempotence": "false",
        },
        "kafka-clients": {"delivery.timeout.ms": "2000", "request.timeout.ms": "1500", "linger.ms": "5"},
        "sarama": {"Net.ReadTimeout": "1500ms", "Producer.Retry.Max": "0"},
    }[library]
    topic = rig.topic()
    producer = rig.producer(library, topic, rate=200, load_s=60, options=options)
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] > 100, 40)
    nodes = [node.name for node in rig.cluster.runtime.nodes]
    try:
        for node in nodes:
            rig.cluster.runtime.pause(node)
        producer.wait_stats(lambda stats: stats["info"] > 0, 40)
    finally:
        for node in nodes:
            rig.cluster.runtime.resume(node)
    rig.cluster.admin.wait_ready([topic], timeout_s=60, run_tag=1)
    finish(producer)
    sends = producer.rows(TableId.SENDS)
    lost = sends[sends["outcome"] == Outcome.INFO]
    assert len(lost) == producer.done_message["info"] > 0
    assert set(sends["outcome"].tolist()) == {Outcome.OK, Outcome.INFO}
    assert all("imed" in text or "imeout" in text for text in producer.errors_of(lost))
    first_info = next(e for e in producer.errors if not e["fatal"])
    assert first_info["name"] == first_info["text"].partition(":")[0]


def test_full_queue_of_confluent_waits_or_fails(rig: Rig) -> None:
    options = {"queue.buffering.max.messages": "50", "linger.ms": "20"}
    topic = rig.topic()
    waits = whole_run(rig.producer("confluent-kafka", topic, rate=0, warm_up_s=0, load_s=1, options=options))
    sends = waits.rows(TableId.SENDS)
    assert len(sends) == waits.done_message["attempted"], "a row of a message that was not offered"
    assert dense(sends)
    # the very last one may still have been waiting for room when the load was stopped
    assert set(sends["outcome"][:-1].tolist()) == {Outcome.OK}
    assert waits.done_message["blocked_ns"] > 0.3e9
    fails = whole_run(
        rig.producer(
            "confluent-kafka", topic, rate=5000, warm_up_s=0, load_s=1, when_full="fail", options=options
        )
    )
    sends = fails.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.OK, Outcome.FAIL}
    refused = sends[sends["outcome"] == Outcome.FAIL]
    assert [text.partition(":")[0] for text in fails.errors_of(refused)] == ["_QUEUE_FULL"]
    assert len(rig.audit(topic).rows(TableId.LOG)) == waits.done_message["ok"] + fails.done_message["ok"]
