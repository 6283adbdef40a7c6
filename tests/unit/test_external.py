"""Clusters that others started: who is asked, what our topics are called, and what the ledger
remembers."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException

from experiments.plans import choose_plans, read_scenario
from harness.clusters.external import cluster as external
from harness.clusters.external.made import MadeNames, made_on
from harness.connections.file import Connection, ConnectionFile, read_connection
from harness.connections.schema import connection_schema, new_connection
from harness.connections.security import Security
from harness.contracts.plan import ExternalPlan
from harness.errors import EnvironmentNotReady, UsageError
from harness.plan.build import with_tag
from harness.protocols.cluster import TopicSettings
from harness.run.worker_specs import Endpoints, audit_specs, client_spec
from harness.rundir import RunDir, read_json
from harness.seal.names import NameTable
from harness.systems import SYSTEMS
from harness.systems.kafka import KEEPS
from harness.systems.kafka.external_admin import ExternalKafkaAdmin
from harness.systems.kafka.questions import ASK_S, KafkaQuestions

FILE = {"system": "kafka", "yours": True, "cluster_id": "abc", "bootstrap": "127.0.0.1:1"}
AT_THEIRS = {"orders": "storm-00000007-orders"}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeNames:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    return MadeNames("abc", "run-1", tmp_path / "runs" / "run-1")


def connection(**changed: Any) -> Connection:
    return Connection(
        Path("staging.yaml"), ConnectionFile.model_validate({**FILE, **changed}), Security()
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"yours": False}, "yours is not true, so nothing is sent"),
        ({"cluster_id": ""}, "cluster_id is missing, so nothing is sent"),
        ({"cluster_id": "xyz"}, "cluster_id is xyz, and 127.0.0.1:1 is abc"),
    ],
)
def test_only_the_cluster_that_the_file_calls_yours(
    changed: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answers(external.ExternalSystem):
        asked = 0

        def find(self, connection: Connection) -> external.FoundCluster:
            self.asked += 1
            return external.FoundCluster("abc", "", ())

        def admin(
            self, connection: Connection, found: external.FoundCluster, made: MadeNames
        ) -> Any:
            raise AssertionError

        def examine(self, connection: Connection, nodes: Sequence[Any], admin: Any) -> Any:
            raise AssertionError

    answers = Answers()
    monkeypatch.setattr(external, "_external_of", lambda _name: answers)
    with pytest.raises(UsageError, match=reason):
        external.identified(connection(**changed))
    assert answers.asked == (reason.endswith("abc"))


def test_workers_are_told_the_names_at_the_brokers_and_the_capture_has_those_of_the_scenario() -> (
    None
):
    (plan, *_) = choose_plans(read_scenario("kafka-quick"), seed=1, rounds=1)
    elsewhere = ExternalPlan(file="staging.yaml", cluster_id="abc", prefix="storm", nodes={})
    plan = with_tag(plan.model_copy(update={"external": elsewhere}), 7)
    run, where = RunDir(Path("r")), Endpoints("127.0.0.1:1")
    specs = [
        *(client_spec(plan, run, each, where) for each in plan.clients),
        *audit_specs(plan, run, where),
    ]
    for spec in specs:
        assert list(spec.topics) == ["storm-00000007-orders"]
        assert spec.streams["storm-00000007-orders-0"] == 1
    assert specs[0].producer is not None
    assert specs[0].producer.lane_groups[0].topic == "storm-00000007-orders"
    names = NameTable(plan)
    assert names.add("stream", "storm-00000007-orders-0") == names.add("stream", "orders-0") == 1


class Kafka:
    """As much of a `KafkaAdmin` as creates and deletes topics."""

    def __init__(self, made: MadeNames, *there: str) -> None:
        self._made, self.there, self.deleted = made, list(there), list[str]()
        self.overruled: dict[str, str] = {}
        self.controller = self.answers = self.registered = self.close = lambda: None
        self.coordinator = lambda _kind, _name: None

    def topics(self) -> list[str]:
        return self.there

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        assert {topic.name for topic in topics} <= set(self._made.names["topic"])  # on disk before
        self.there += [topic.name for topic in topics]

    def delete_topics(self, names: Sequence[str]) -> None:
        self.deleted += names

    def settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        return {topic: {**KEEPS, **self.overruled} for topic in topics}

    def delete_groups(self, groups: Sequence[str]) -> None:
        self.deleted += groups


def shared(kafka: Kafka, made: MadeNames) -> ExternalKafkaAdmin:
    admin = ExternalKafkaAdmin(kafka, kafka, made)  # type: ignore[arg-type]
    admin.name_topics(AT_THEIRS, ["storm-00000007-app"])
    return admin


def test_what_is_made_is_in_the_ledger_before_and_out_of_it_after(made: MadeNames) -> None:
    kafka = Kafka(made, "theirs")
    admin = shared(kafka, made)
    admin.create_topics([TopicSettings("orders", 6, 3)])
    assert not list(made_on("abc"))  # its process lives
    admin.delete_made({kind: list(names) for kind, names in made.names.items()})
    made.close()
    assert kafka.deleted == ["storm-00000007-orders", "storm-00000007-app"]
    assert not list(made.path.parent.iterdir())


def test_a_policy_of_theirs_that_drops_messages_is_no_loss_of_theirs(made: MadeNames) -> None:
    kafka = Kafka(made)
    kafka.overruled = {"retention.ms": "3600000"}
    with pytest.raises(UsageError, match=r"retention\.ms=3600000: it may drop messages"):
        shared(kafka, made).create_topics([TopicSettings("orders", 6, 3)])
    assert made.names["topic"] == ["storm-00000007-orders"]  # still to be deleted


def test_a_topic_that_is_there_already_is_never_ours(made: MadeNames) -> None:
    kafka = Kafka(made, "storm-00000007-orders")
    with pytest.raises(UsageError, match="is there already"):
        shared(kafka, made).create_topics([TopicSettings("orders", 6, 3)])
    assert not made.names
    with pytest.raises(UsageError, match="not a topic of this run"):
        shared(kafka, made).delete_topics(["theirs"])


def test_what_a_killed_run_left_is_found_by_cluster(
    made: MadeNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.add("topic", ["storm-00000007-orders"])
    row = read_json(made.path)
    assert row["owner"]["pid"] == os.getpid()
    row["owner"]["started_s"] -= 1000  # another process that had this pid
    made.path.write_text(json.dumps(row))
    (left,) = made_on("abc")
    assert left.names == {"topic": ["storm-00000007-orders"]}
    assert not list(made_on("another"))


def test_no_connection_file_is_written_for_a_system_that_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(SYSTEMS["rabbitmq"]), "external", lambda system: None)
    with pytest.raises(UsageError, match="system: rabbitmq: --cluster cannot ask"):
        new_connection(tmp_path / "staging.yaml", "rabbitmq")


@pytest.mark.parametrize("system", [name for name, each in SYSTEMS.items() if each.external()])
def test_a_new_connection_file_can_be_read_and_says_nothing_yet(
    system: str, tmp_path: Path
) -> None:
    path = tmp_path / "staging.yaml"
    path.write_text(new_connection(path, system))
    found = read_connection(path).file
    assert (found.system, found.yours, found.cluster_id) == (system, False, "")
    keys = f"tls|auth|topics|nodes|  (mechanism|user|password|token|prefix|replication|{system}-1)"
    path.write_text(re.sub(rf"(?m)^# (?={keys})", "", path.read_text()))
    allowed = connection_schema()["properties"]
    of_some = {"admin_url", "admin_auth", "cookie", "drivers"}
    assert set(yaml.safe_load(path.read_text())) - of_some == set(allowed) - of_some


class LateBroker:
    """Refuses to describe topics a few times, as a broker that has not heard of them does."""

    def __init__(self, refusals: int, code: int) -> None:
        self.refusals, self.code = refusals, code

    def poll(self, _wait_s: float) -> int:
        return 0

    def describe_configs(self, resources: Sequence[Any], **_: Any) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        if self.refusals:
            self.refusals -= 1
            answer.set_exception(KafkaException(KafkaError(self.code)))
        else:
            answer.set_result({})
        return dict.fromkeys(resources, answer)


def test_settings_of_a_topic_that_was_just_made_are_asked_for_until_it_is_known() -> None:
    questions = KafkaQuestions("127.0.0.1:1", {})
    questions._client = LateBroker(2, KafkaError.UNKNOWN_TOPIC_OR_PART)  # type: ignore[assignment]
    assert questions.settings(["orders"]) == {"orders": {}}
    questions._client = LateBroker(1, KafkaError.TOPIC_AUTHORIZATION_FAILED)  # type: ignore[assignment]
    with pytest.raises(
        EnvironmentNotReady, match="settings of orders cannot be read: Broker: Topic"
    ) as told:
        questions.settings(["orders"])
    assert "allowed to describe" in told.value.hint


def test_a_closed_port_is_told_before_every_answer_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.systems.kafka.questions._AWAY_S", 0.5)
    begun = time.monotonic()
    with pytest.raises(EnvironmentNotReady, match="Connection refused"):
        KafkaQuestions("127.0.0.1:9", {}).identity()
    assert time.monotonic() - begun < ASK_S / 2


def test_a_client_that_cannot_be_made_is_told_with_the_key_to_look_at() -> None:
    with pytest.raises(
        EnvironmentNotReady, match=r"127.0.0.1:1: .*ssl\.ca\.location failed"
    ) as told:
        KafkaQuestions(
            "127.0.0.1:1", {"security.protocol": "SSL", "ssl.ca.location": "/nonexistent"}
        )
    assert told.value.hint.startswith("look at tls of the connection file")
