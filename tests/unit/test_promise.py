"""Promises of client settings: defaults of each library, aliases, the weakest topic."""

from __future__ import annotations

from typing import Any

import pytest

from harness.contracts.plan import PromisePlan, TopicPlan
from harness.errors import ScenarioError
from harness.plan.settings import (
    Consuming,
    PromiseContext,
    consumer_promise,
    producer_settings,
    transactional,
)
from harness.scenario.model import RequireSpec
from harness.workers import load_worker


def topic(name: str = "orders", *, replication: int = 3, **config: str) -> TopicPlan:
    settings = {"min.insync.replicas": "2"} | {
        key.replace("_", "."): value for key, value in config.items()
    }
    return TopicPlan(name=name, partitions=1, replication=replication, config=settings)


def promise(
    client: str,
    options: dict[str, str],
    *,
    topics: list[TopicPlan] | None = None,
    broker: dict[str, str] | None = None,
    **require: Any,
) -> PromisePlan:
    context = PromiseContext(topics or [topic()], broker or {})
    return producer_settings(client, "", options).promise(context, RequireSpec(**require))


@pytest.mark.parametrize(
    ("client", "options", "delivery", "order", "dedup"),
    [
        ("confluent-kafka", {}, "durable", False, False),
        ("confluent-kafka", {"acks": "all"}, "durable", False, False),
        ("confluent-kafka", {"acks": "-1"}, "durable", False, False),
        ("confluent-kafka", {"acks": "ALL"}, "durable", False, False),
        ("confluent-kafka", {"request.required.acks": "1"}, "leader", False, False),
        ("confluent-kafka", {"acks": "1"}, "leader", False, False),
        ("confluent-kafka", {"acks": "0"}, "none", False, False),
        ("confluent-kafka", {"enable.idempotence": "true"}, "durable", True, True),
        ("confluent-kafka", {"enable.idempotence": "1"}, "durable", True, True),
        ("confluent-kafka", {"max.in.flight": "1"}, "durable", True, False),
        ("confluent-kafka", {"max.in.flight.requests.per.connection": "1"}, "durable", True, False),
        ("confluent-kafka", {"retries": "0"}, "durable", True, True),
        ("confluent-kafka", {"message.send.max.retries": "0", "acks": "1"}, "leader", True, True),
        ("kafkajs", {"producer.idempotent": "true"}, "durable", False, True),
        ("kafkajs", {"producer.maxInFlightRequests": "1"}, "durable", False, False),
        ("kafka-python", {}, "durable", True, True),
        ("kafka-python", {"enable_idempotence": "false"}, "durable", False, False),
        # drops idempotence with a warning only
        ("kafka-python", {"acks": "1"}, "leader", False, False),
        ("kafka-python", {"retries": "0"}, "durable", True, True),
        ("kafka-python", {"max_in_flight_requests_per_connection": "6"}, "durable", False, False),
        (
            "kafka-python",
            {"acks": "1", "max_in_flight_requests_per_connection": "1"},
            "leader",
            True,
            False,
        ),
        ("franz-go", {}, "durable", True, True),
        ("kafka-go", {}, "none", False, False),
        ("kafka-go", {"Writer.RequiredAcks": "RequireAll"}, "durable", True, False),
        (
            "kafka-go",
            {"Writer.RequiredAcks": "one", "Writer.MaxAttempts": "1"},
            "leader",
            True,
            True,
        ),
        (
            "franz-go",
            {"DisableIdempotentWrite": "true", "RequiredAcks": "LeaderAck"},
            "leader",
            True,
            False,
        ),
        (
            "franz-go",
            {"DisableIdempotentWrite": "true", "RecordRetries": "0"},
            "durable",
            True,
            True,
        ),
        (
            "franz-go",
            {"DisableIdempotentWrite": "true", "MaxProduceRequestsInflightPerBroker": "5"},
            "durable",
            False,
            False,
        ),
    ],
)
def test_settings(
    client: str, options: dict[str, str], delivery: str, order: bool, dedup: bool
) -> None:
    made = promise(client, options)
    assert (made.delivery, made.order, made.dedup) == (delivery, order, dedup)
    assert all(made.because[key] for key in ("delivery", "order", "dedup"))


@pytest.mark.parametrize(
    "client",
    [
        "confluent-kafka",
        "kafka-clients",
        "kafka-python",
        "aiokafka",
        "sarama",
        "franz-go",
        "rust-rdkafka",
    ],
)
def test_a_producer_in_transactions_is_idempotent_whatever_its_defaults_are(client: str) -> None:
    made = promise(client, transactional(client, {}))
    assert (made.delivery, made.order, made.dedup) == ("durable", True, True)


@pytest.mark.parametrize(
    ("client", "option", "refused"),
    [
        ("kafka-python", "enable_idempotence", "false"),
        ("franz-go", "DisableIdempotentWrite", "true"),
        ("sarama", "Producer.Idempotent", "false"),
    ],
)
def test_transactions_of_a_producer_that_is_not_idempotent_are_refused(
    client: str, option: str, refused: str
) -> None:
    with pytest.raises(ScenarioError, match=f"{option}: must be .* with transactions"):
        transactional(client, {option: refused})


def test_because_names_the_setting_and_where_it_comes_from() -> None:
    assert promise("confluent-kafka", {"acks": "1"}).because["delivery"] == "acks=1"
    made = promise("confluent-kafka", {"acks": "-1"}).because
    assert made["delivery"] == "acks=-1, min.insync.replicas=2"
    assert (
        made["dedup"]
        == "enable.idempotence=false (default of confluent-kafka): a retry may store twice"
    )
    made = promise("kafka-python", {"acks": "1"}).because
    assert made["dedup"].startswith("idempotence dropped by kafka-python: acks=1")


@pytest.mark.parametrize(
    ("topics", "broker", "delivery"),
    [
        ([topic()], {}, "durable"),
        ([topic(min_insync_replicas="1")], {}, "leader"),
        ([topic(replication=1, min_insync_replicas="1")], {}, "leader"),
        ([topic(), topic("b", min_insync_replicas="1")], {}, "leader"),
        ([topic(unclean_leader_election_enable="true")], {}, "leader"),
        ([topic()], {"unclean.leader.election.enable": "true"}, "leader"),
        (
            [topic(unclean_leader_election_enable="false")],
            {"unclean.leader.election.enable": "true"},
            "durable",
        ),
    ],
)
def test_topic_and_broker_settings_weaken_delivery(
    topics: list[TopicPlan], broker: dict[str, str], delivery: str
) -> None:
    assert (
        promise("confluent-kafka", {"acks": "all"}, topics=topics, broker=broker).delivery
        == delivery
    )


@pytest.mark.parametrize(
    ("client", "version", "options", "delivery", "order", "dedup"),
    [
        ("kafka-clients", "", {}, "durable", True, True),
        ("kafka-clients", "3.0.0", {}, "durable", False, False),  # KAFKA-13598
        ("kafka-clients", "3.0.1", {}, "durable", True, True),
        ("kafka-clients", "3.1.0", {}, "durable", False, False),
        ("kafka-clients", "3.1.1", {}, "durable", True, True),
        ("kafka-clients", "2.8.2", {}, "leader", False, False),
        ("kafka-clients", "2.0.1", {}, "leader", True, True),  # retries=0 until 2.1 (KIP-91)
        ("kafka-clients", "3.9.0", {"acks": "1"}, "leader", False, False),
        ("kafka-python", "2.3.1", {}, "leader", False, False),
        ("kafka-python", "2.0.2", {}, "leader", True, True),
        ("sarama", "", {}, "leader", False, False),
        ("sarama", "v1.37.2", {"Producer.RequiredAcks": "WaitForAll"}, "durable", False, False),
        (
            "sarama",
            "",
            {"Producer.RequiredAcks": "NoResponse", "Net.MaxOpenRequests": "1"},
            "none",
            True,
            False,
        ),
        (
            "sarama",
            "v1.38.0",
            {
                "Producer.Idempotent": "true",
                "Producer.RequiredAcks": "-1",
                "Net.MaxOpenRequests": "1",
            },
            "durable",
            True,
            True,
        ),
    ],
)
def test_defaults_of_a_version(
    client: str, version: str, options: dict[str, str], delivery: str, order: bool, dedup: bool
) -> None:
    made = producer_settings(client, version, options).promise(
        PromiseContext([topic()], {}), RequireSpec()
    )
    assert (made.delivery, made.order, made.dedup) == (delivery, order, dedup)


def test_sarama_checks_its_own_defaults_too() -> None:
    with pytest.raises(
        ScenarioError, match=r"Producer\.RequiredAcks=1 \(default of sarama\) contradicts"
    ):
        producer_settings("sarama", "", {"Producer.Idempotent": "true"})


@pytest.mark.parametrize(
    ("name", "value"), [("RequiredAcks", "NoAck"), ("MaxProduceRequestsInflightPerBroker", "5")]
)
def test_franz_go_refuses_what_contradicts_its_idempotence(name: str, value: str) -> None:
    with pytest.raises(
        ScenarioError, match=f"{name}={value} contradicts DisableIdempotentWrite=false"
    ):
        producer_settings("franz-go", "", {name: value})


@pytest.mark.parametrize(
    ("client", "options", "seconds"),
    [
        ("kafka-clients", {"delivery.timeout.ms": "5000"}, 15),
        ("sarama", {"Producer.Retry.Max": "1", "Net.ReadTimeout": "2s"}, 2 * 2.1 + 10),
        ("kafka-go", {"Writer.MaxAttempts": "2", "Writer.WriteTimeout": "3s"}, 3 * (3 + 1) + 10),
        # idempotent: it ends nothing that was sent
        ("franz-go", {"RecordDeliveryTimeout": "5s"}, 110),
        ("franz-go", {"RecordDeliveryTimeout": "5s", "DisableIdempotentWrite": "true"}, 15),
        ("pulsar-client-java", {}, 40),
        ("pulsar-client-java", {"sendTimeoutMs": "0"}, 110),
        ("pulsar-client", {"send_timeout_millis": "1000"}, 11),
        ("qpid-jms-legacy", {}, 110),
    ],
)
def test_how_long_a_send_may_take(client: str, options: dict[str, str], seconds: float) -> None:
    assert producer_settings(client, "", options).call_deadline_s(100.0) == pytest.approx(seconds)


def test_pulsar_promises_order_and_only_with_deduplication_once() -> None:
    def made(**broker: str) -> PromisePlan:
        context = PromiseContext([topic()], broker)
        return producer_settings("pulsar-client-java", "", {}).promise(context, RequireSpec())

    plain, compared = made(), made(brokerDeduplicationEnabled="true")
    assert (plain.delivery, plain.order, plain.dedup) == ("durable", True, False)
    assert (compared.delivery, compared.order, compared.dedup) == ("durable", True, True)
    assert "brokerDeduplicationEnabled=false" in plain.because["dedup"]


def test_a_bookie_syncs_its_journal_unless_it_is_told_not_to() -> None:
    def made(**bookie: str) -> PromisePlan:
        context = PromiseContext(
            [topic()], {f"bookie.{key}": value for key, value in bookie.items()}
        )
        return producer_settings("pulsar-client-java", "", {}).promise(context, RequireSpec())

    assert made().synced is True
    unsynced = made(journalSyncData="false")
    assert unsynced.synced is False
    assert "might lose the unflushed data" in unsynced.because["synced"]


@pytest.mark.parametrize(
    ("client", "version", "options", "topology", "delivery"),
    [
        ("qpid-jms-legacy", "", {}, "", "durable"),
        ("qpid-jms-legacy", "andes 3.0.2", {}, "memory", "leader"),
        ("qpid-jms-legacy", "", {"transacted": "0"}, "", "none"),
        ("qpid-jms-legacy", "qpid-jms 1.12.1", {"transacted": "0"}, "", "durable"),
        ("qpid-jms-legacy", "", {"deliveryMode": "NON_PERSISTENT"}, "", "none"),
        ("pika", "", {}, "group", "durable"),
        ("pika", "", {"delivery_mode": "1"}, "", "none"),
    ],
)
def test_what_a_queue_keeps(
    client: str, version: str, options: dict[str, str], topology: str, delivery: str
) -> None:
    settings = producer_settings(client, version, options)
    assert (
        settings.promise(PromiseContext([topic()], {}, topology), RequireSpec()).delivery
        == delivery
    )


@pytest.mark.parametrize(
    ("client", "version", "options", "broker", "expected"),
    [
        ("confluent-kafka", "", {}, {}, ("group", "stream", 0.0, True, False)),
        ("pulsar-client-java", "", {}, {}, ("exclusive", "stream", 0.0, False, False)),
        (
            "pulsar-client-java",
            "",
            {
                "subscriptionType": "Key_Shared",
                "ackTimeoutMillis": "1500",
                "ackReceiptEnabled": "true",
            },
            {},
            ("key_shared", "key", 1.5, True, False),
        ),
        (
            "pulsar-client",
            "",
            {"consumer_type": "KeyShared", "batch_index_ack_enabled": "true"},
            {"acknowledgmentAtBatchIndexLevelEnabled": "true"},
            ("key_shared", "key", 0.0, False, True),
        ),
        (
            "pulsar-client",
            "",
            {"consumer_type": "Shared"},
            {},
            ("shared", "none", 0.0, False, False),
        ),
        (
            "pulsar-client-java",
            "",
            {"subscriptionMode": "NonDurable", "ackReceiptEnabled": "true"},
            {},
            ("exclusive", "stream", 0.0, False, False),  # nothing is kept of what a broker confirms
        ),
        (
            "pulsar-client-java",
            "2.11.4",
            {"subscriptionType": "Shared", "deadLetterPolicy.maxRedeliverCount": "3"},
            {},
            ("shared", "none", 30.0, False, False),
        ),
        (
            "pulsar-client-java",
            "3.0.0",
            {"subscriptionType": "Shared", "deadLetterPolicy.maxRedeliverCount": "3"},
            {},
            ("shared", "none", 0.0, False, False),
        ),
        ("qpid-jms-legacy", "", {}, {}, ("queue", "none", 0.0, False, False)),
        ("kafka-clients", "", {"group.type": "share"}, {}, ("shared", "none", 0.0, True, False)),
    ],
)
def test_what_a_consumer_is_promised(
    client: str,
    version: str,
    options: dict[str, str],
    broker: dict[str, str],
    expected: tuple[object, ...],
) -> None:
    settle = "auto" if client == "confluent-kafka" else "ack"
    made = consumer_promise(Consuming(client, version, options, broker, settle))
    found = (
        made.subscription,
        made.order,
        made.ack_timeout_s,
        made.acks_confirmed,
        made.batch_index_acks,
    )
    assert found == expected


_TTL = "ttlDurationDefaultInSeconds"


@pytest.mark.parametrize(
    ("broker", "may_drop"),
    [
        ({}, ""),
        (
            {
                "ttlDurationDefaultInSeconds": "0",
                "backlogQuotaDefaultRetentionPolicy": "producer_exception",
            },
            "",
        ),
        ({"ttlDurationDefaultInSeconds": "60"}, "ttlDurationDefaultInSeconds=60"),
        (
            {"backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction"},
            "backlogQuotaDefaultRetentionPolicy=consumer_backlog_eviction",
        ),
    ],
)
def test_which_settings_let_a_broker_drop_its_backlog(
    broker: dict[str, str], may_drop: str
) -> None:
    assert (
        consumer_promise(Consuming("pulsar-client-java", "", {}, broker, "ack")).may_drop
        == may_drop
    )


@pytest.mark.parametrize(
    ("broker", "limits"),
    [
        ({}, [(None, None)]),
        ({"backlogQuotaDefaultLimitBytes": "40000"}, [(None, 40_000)]),
        (
            {"backlogQuotaDefaultLimitBytes": "-1", "backlogQuotaDefaultLimitGB": "2"},
            [(None, 2 * 1024**3)],
        ),
        ({"backlogQuotaDefaultLimitSecond": "30", _TTL: "60"}, [(30.0, None), (60.0, None)]),
    ],
)
def test_the_limits_at_which_a_broker_of_pulsar_drops(
    broker: dict[str, str], limits: list[Any]
) -> None:
    broker = {"backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction", **broker}
    made = consumer_promise(Consuming("pulsar-client-java", "", {}, broker, "ack"))
    assert [(limit.after_s, limit.beyond_bytes) for limit in made.drops] == limits
    assert made.because["drops"] == made.may_drop  # which the finding shows


@pytest.mark.parametrize("options", [{}, {"group.type": "share"}])
def test_retention_of_a_topic_of_kafka_drops_what_is_older(options: dict[str, str]) -> None:
    topics = [topic(retention_ms="900000"), topic("kept", retention_ms="-1")]
    made = consumer_promise(
        Consuming("kafka-clients", "", options, {}, "ack" if options else "auto", topics=topics)
    )
    assert [(limit.after_s, limit.topic) for limit in made.drops] == [(900.0, topics[0].name)]
    assert made.because["drops"] == made.may_drop == "retention.ms=900000 on orders"


@pytest.mark.parametrize(
    ("client", "options", "broker", "delay_s", "most"),
    [
        ("pulsar-client-java", {}, {}, 60.0, 0),
        (
            "pulsar-client-java",
            {
                "negativeAckRedeliveryDelayMicros": "1500000",
                "deadLetterPolicy.maxRedeliverCount": "1",
            },
            {},
            1.5,
            2,
        ),
        ("pulsar-client", {"negative_ack_redelivery_delay_ms": "1000"}, {}, 1.0, 0),
        ("pulsar-client-go", {}, {}, None, None),
        ("nats.go", {"Consumer.MaxDeliver": "3"}, {}, 0.0, 3),
        ("nats.go", {}, {}, 0.0, 0),
        ("kafka-clients", {"group.type": "share"}, {}, 0.0, 5),
        (
            "kafka-clients",
            {"group.type": "share"},
            {"group.share.delivery.count.limit": "2"},
            0.0,
            2,
        ),
    ],
)
def test_when_and_how_often_a_refused_message_comes_again(
    client: str,
    options: dict[str, str],
    broker: dict[str, str],
    delay_s: float | None,
    most: int | None,
) -> None:
    made = consumer_promise(Consuming(client, "", options, broker, "ack"))
    assert (made.nack_delay_s, made.max_deliveries) == (delay_s, most)


@pytest.mark.parametrize(
    ("client", "options", "committed_only"),
    [
        ("confluent-kafka", {}, True),
        ("confluent-kafka", {"isolation.level": "read_uncommitted"}, False),
        ("kafka-clients", {}, False),
        ("kafka-clients", {"isolation.level": "read_committed"}, True),
        ("sarama", {"Consumer.IsolationLevel": "1"}, True),
        ("franz-go", {}, False),
        ("kafka-go", {"Reader.IsolationLevel": "ReadCommitted"}, True),
        ("franz-go", {"FetchIsolationLevel": "ReadCommitted"}, True),
        ("kafka-clients", {"group.type": "share", "isolation.level": "read_committed"}, False),
        ("kafka-clients", {"group.type": "share", "share.isolation.level": "read_committed"}, True),
    ],
)
def test_which_consumers_read_committed_data_only(
    client: str, options: dict[str, str], committed_only: bool
) -> None:
    made = consumer_promise(Consuming(client, "", options, {}, "auto"))
    assert made.committed_only == committed_only
    assert "isolation" in made.because["isolation"].lower()


@pytest.mark.parametrize(
    ("client", "options", "order"),
    [
        ("pulsar-client-java", {}, "none"),
        ("pulsar-client-java", {"batchingEnabled": "false"}, "key"),
        ("pulsar-client-java", {"batcherBuilder": "KEY_BASED"}, "key"),
        ("pulsar-client", {}, "key"),
        ("pulsar-client", {"batching_enabled": "true"}, "none"),
        ("pulsar-client", {"batching_enabled": "true", "batching_type": "KeyBased"}, "key"),
    ],
)
def test_a_batch_of_mixed_keys_keeps_no_order_of_keys(
    client: str, options: dict[str, str], order: str
) -> None:
    consuming = Consuming(
        "pulsar-client-java", "", {"subscriptionType": "Key_Shared"}, {}, "ack", [(client, options)]
    )
    assert consumer_promise(consuming).order == order


@pytest.mark.parametrize(
    ("options", "settle", "message"),
    [
        ({"subscriptionType": "Shard"}, "ack", "must be Exclusive, Failover, Shared or Key_Shared"),
        ({"subscriptionType": "Shared"}, "cumulative", "has no cumulative acknowledgement"),
        ({"ackTimeoutMillis": "soon"}, "ack", "must be a whole number"),
        ({"ackTimeoutMillis": str(10**400)}, "ack", "must be a whole number of 64 bits"),
    ],
)
def test_consumers_that_cannot_be(options: dict[str, str], settle: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        consumer_promise(Consuming("pulsar-client-java", "", options, {}, settle))


def test_a_group_that_commits_positions_settles_no_single_message() -> None:
    with pytest.raises(
        ScenarioError, match=r"settle: ack needs a share group; group\.type=consumer"
    ):
        consumer_promise(Consuming("kafka-clients", "", {}, {}, "ack"))


@pytest.mark.parametrize(
    ("options", "broker", "seconds"),
    [
        ({}, {}, 45.0),
        ({"share.session.timeout.ms": "60000"}, {}, 60.0),
        ({}, {"group.share.session.timeout.ms": "50000"}, 50.0),
    ],
)
def test_how_long_a_share_group_waits_for_a_dead_member(
    options: dict[str, str], broker: dict[str, str], seconds: float
) -> None:
    asked = Consuming("kafka-clients", "", {"group.type": "share", **options}, broker, "ack")
    assert consumer_promise(asked).member_timeout_s == seconds


def test_required_is_what_the_application_needs() -> None:
    usual = promise("kafka-python", {}).required
    assert usual == {"delivery": "durable", "order": None, "dedup": None, "keys": None}
    asked = {"delivery": "as-configured", "order": "lane", "dedup": "once", "keys": "shared"}
    needed = promise("kafka-python", {}, **asked).required
    assert needed == {"delivery": None, "order": True, "dedup": True, "keys": True}


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        ("confluent-kafka", {"acks": "2"}, "acks=2: Kafka takes all, -1, 1 or 0"),
        (
            "confluent-kafka",
            {"acks": "1", "enable.idempotence": "true"},
            "acks=1 contradicts enable.idempotence",
        ),
        ("confluent-kafka", {"retries": "0", "enable.idempotence": "t"}, "retries=0 contradicts"),
        (
            "confluent-kafka",
            {"max.in.flight": "6", "enable.idempotence": "true"},
            "max.in.flight=6 contradicts",
        ),
        ("confluent-kafka", {"retries": "few"}, "retries=few: must be a whole number"),
        ("kafka-python", {"acks": "0", "enable_idempotence": "true"}, "acks=0 contradicts"),
    ],
)
def test_settings_that_the_client_refuses(
    client: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        promise(client, options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"acks": "1", "enable.idempotence": "true"},
        {"retries": "0", "enable.idempotence": "true"},
        {"max.in.flight": "6", "enable.idempotence": "true"},
    ],
)
def test_confluent_refuses_what_we_say_it_refuses(options: dict[str, str]) -> None:
    from confluent_kafka import KafkaException, Producer

    with pytest.raises(KafkaException, match=r"when `enable\.idempotence` is true"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0} | options)


def test_kafka_python_defaults_are_the_librarys() -> None:
    from kafka import KafkaProducer

    defaults = KafkaProducer.DEFAULT_CONFIG
    assert defaults["enable_idempotence"] is True
    assert defaults["acks"] == -1
    promises = load_worker("kafka-python").promises
    for name in ("in_flight", "send_timeout"):
        facts = getattr(promises, name)
        assert str(defaults[facts.options[0]]) == facts.default
