"""Which workers there are and how they are launched."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from harness.errors import UsageError, WorkerError
from harness.systems import SYSTEMS
from harness.workers import (
    KIT,
    environments,
    launch,
    load_worker,
    readiness,
    worker_names,
)


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kit importable under the name that workers use."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(KIT))
    yield
    for name in set(sys.modules) - before:
        if name.startswith("worker_kit"):
            del sys.modules[name]


def worker_module(worker: str, name: str) -> ModuleType:
    path = load_worker(worker).folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{worker.replace('-', '_')}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_and_roles() -> None:
    assert {"confluent-kafka", "kafka-python"} <= set(worker_names("kafka"))
    assert "pulsar-client-java" in worker_names("pulsar")
    assert set(worker_names()) == {n for system in SYSTEMS for n in worker_names(system)}
    assert load_worker("confluent-kafka").roles == ["producer", "consumer", "pipeline", "audit"]
    assert load_worker("kafka-python").roles == ["producer", "consumer"]


def test_unknown_worker_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean kafka-python") as caught:
        load_worker("kafka-pyton")
    assert "confluent-kafka" in str(caught.value)


def test_installed_version_needs_no_environment() -> None:
    worker = load_worker("kafka-python")
    for version in ("", worker.default_version):
        argv, env = launch(worker, version, offline=True)
        assert argv == [sys.executable, str(worker.folder / "worker.py")]
        assert env["PYTHONPATH"] == str(KIT)


def test_other_version_offline_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    with pytest.raises(WorkerError, match=r"kafka-python 2\.1\.0 is not in the cache"):
        launch(load_worker("kafka-python"), "2.1.0", offline=True)


def test_a_version_is_not_a_path_or_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    for version in ("../x", "-r", "1.0 --index-url x", "latest"):
        with pytest.raises(UsageError, match="is not a version"):
            launch(load_worker("kafka-python"), version)


@pytest.mark.parametrize(
    "library", ["kafka-python", "franz-go", "rust-rdkafka", "kafka-clients", "kafkajs"]
)
def test_what_is_not_a_version_is_bad_input(library: str) -> None:
    """The machine is not at fault, so the exit code is 2, as for a version that is not released."""
    with pytest.raises(UsageError, match=f"^{library}: client_version '.x' is not a version"):
        readiness(load_worker(library), ".x")


def test_a_built_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    folder = environments.environment_folder(load_worker("kafka-python"), "2.1.0")
    folder.mkdir(parents=True)
    (folder / "complete").write_text("")
    argv, _ = launch(load_worker("kafka-python"), "2.1.0", offline=True)
    assert argv[0] == str(folder / "bin" / "python")


def test_pips_answer_becomes_one_line() -> None:
    stderr = (
        "ERROR: Could not find a version that satisfies the requirement kafka-python==99 "
        "(from versions: 2.8.0, 3.0.1)\n"
        "ERROR: No matching distribution found for kafka-python==99\n"
    )
    error = environments._pip_error("kafka-python", "99", stderr)
    assert str(error).startswith("kafka-python has no version 99 for Python 3.")
    assert error.hint == "the closest ones are 2.8.0, 3.0.1"
    assert "\n" not in str(error)


def test_versions_are_those_of_the_package_that_the_worker_installs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "Available versions: 1.2.0, 1.1.0\n", "")

    monkeypatch.setattr(environments.subprocess, "run", run)
    worker = load_worker("aiokafka")
    packages = ["lz4==4.3.3", "aiokafka[zstd]=={version}"]
    renamed = worker.model_copy(
        update={
            "library": "mine",
            "python": worker.python.model_copy(update={"packages": packages}),
        }
    )
    assert environments.released(renamed) == ["1.2.0", "1.1.0"]
    assert "aiokafka" in asked[0]


def test_a_pip_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 60.0)

    monkeypatch.setattr(environments.subprocess, "run", run)
    with pytest.raises(WorkerError) as caught:
        environments.released(load_worker("aiokafka"))
    assert str(caught.value) == "pip does not list the versions of aiokafka within 60 s"


@pytest.mark.usefixtures("kit")
def test_outcomes_of_confluent() -> None:
    from confluent_kafka import KafkaError

    table = worker_module("confluent-kafka", "outcomes").Outcomes
    fail, info = 2, 3
    wanted = {
        KafkaError._MSG_TIMED_OUT: info,
        KafkaError._TRANSPORT: info,
        KafkaError._PURGE_QUEUE: info,
        KafkaError._PURGE_INFLIGHT: info,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: info,
        KafkaError.NOT_ENOUGH_REPLICAS: info,
        KafkaError.REQUEST_TIMED_OUT: info,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: info,
        KafkaError.MSG_SIZE_TOO_LARGE: fail,
        KafkaError.TOPIC_AUTHORIZATION_FAILED: fail,
        KafkaError.INVALID_RECORD: fail,
    }
    assert {code: table({}).reported(KafkaError(code)) for code in wanted} == wanted
    assert table({"retries": "0"}).reported(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)) == fail
    assert table({"retries": "0"}).reported(KafkaError(KafkaError._TRANSPORT)) == info


@pytest.mark.usefixtures("kit")
def test_outcomes_of_kafka_python() -> None:
    from kafka import errors

    table = worker_module("kafka-python", "outcomes").Outcomes
    fail, info = 2, 3
    wanted = {
        errors.KafkaTimeoutError: info,
        errors.KafkaConnectionError: info,
        errors.RequestTimedOutError: info,
        errors.NotEnoughReplicasAfterAppendError: info,
        errors.NotEnoughReplicasError: info,
        errors.MessageSizeTooLargeError: fail,
        errors.TopicAuthorizationFailedError: fail,
        errors.InvalidRecordError: fail,
    }
    assert {error: table({}).reported(error("x")) for error in wanted} == wanted
    assert table({"retries": 0}).reported(errors.NotLeaderForPartitionError("x")) == fail


@pytest.mark.usefixtures("kit")
def test_text_options_become_kafka_pythons_values() -> None:
    from kafka import KafkaConsumer, KafkaProducer

    typed = worker_module("kafka-python", "options").typed
    options = {
        "acks": "all", "retries": "0", "linger_ms": "20", "enable_idempotence": "false", "client_id": "7",
        "compression_type": "gzip", "delivery_timeout_ms": "1.5", "sasl_plain_password": "123",
    }  # fmt: skip
    assert typed(options, KafkaProducer.DEFAULT_CONFIG) == {
        "acks": "all", "retries": 0, "linger_ms": 20, "enable_idempotence": False, "client_id": "7",
        "compression_type": "gzip", "delivery_timeout_ms": 1.5, "sasl_plain_password": "123",
    }  # fmt: skip
    assert typed({"client_id": "7"}, KafkaConsumer.DEFAULT_CONFIG) == {"client_id": "7"}


@pytest.mark.usefixtures("kit")
def test_outcomes_of_pulsar_client() -> None:
    import pulsar

    table = worker_module("pulsar-client", "outcomes")
    ok, fail, info = 1, 2, 3
    wanted = {
        "Ok": ok,
        "ProducerQueueIsFull": fail,
        "MessageTooBig": fail,
        "Timeout": info,
        "AlreadyClosed": info,
        "ConnectError": info,
        "UnknownError": info,
    }
    for name, outcome in wanted.items():
        result = getattr(pulsar.Result, name)
        assert table.result_name(result) == name
        assert table.outcome_of(name) == outcome
    assert table.result_name(pulsar.Timeout("late")) == "Timeout"


@pytest.mark.usefixtures("kit")
def test_text_options_go_to_the_call_of_pulsar_client_that_knows_them() -> None:
    import pulsar

    split = worker_module("pulsar-client", "options").split
    of_client, of_consumer = split(
        {
            "io_threads": "2",
            "consumer_type": "Key_Shared",
            "unacked_messages_timeout_ms": "10000",
            "batch_index_ack_enabled": "true",
            "batch_receive_policy": "max_num_message=10, max_num_bytes=-1, timeout_ms=100",
        },
        pulsar.Client.__init__,
        pulsar.Client.subscribe,
    )
    policy = of_consumer.pop("batch_receive_policy").policy()
    assert (policy.getMaxNumMessages(), policy.getTimeoutMs()) == (10, 100)
    assert of_client == {"io_threads": 2}
    assert of_consumer == {
        "consumer_type": pulsar.ConsumerType.KeyShared,
        "unacked_messages_timeout_ms": 10_000,
        "batch_index_ack_enabled": True,
    }


@pytest.mark.usefixtures("kit")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"send_timeout_ms": "1"}, "has no option 'send_timeout_ms'"),
        ({"schema": "x"}, "has no option 'schema'"),
        ({"batching_enabled": "maybe"}, "option batching_enabled=maybe"),
        ({"max_pending_messages": "many"}, "option max_pending_messages=many"),
        ({"compression_type": "RAR"}, "must be one of"),
    ],
)
def test_options_that_pulsar_client_lacks(options: dict[str, str], message: str) -> None:
    import pulsar

    split = worker_module("pulsar-client", "options").split
    with pytest.raises(Exception, match=message) as caught:
        split(options, pulsar.Client.__init__, pulsar.Client.create_producer)
    assert type(caught.value).__name__ == "WorkerFailure"
