"""The loop of the confluent-kafka producer on the real client, which needs no broker for that."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from workers.python_kit.worker_kit.layouts import LOAD

MESSAGES = 5_000
PART = {
    "lane_groups": [{"topic": "orders", "mode": "partition", "first": 0, "count": 12}],
    "instance": 1,
    "payload_bytes": 150,
    "when_full": "wait",
    "rate_per_s": 50_000.0,
    "warm_up_s": 0.0,
    "load_s": 10.0,
}


@pytest.fixture
def role(worker_module: Callable[[str, str], ModuleType], tmp_path: Path) -> Any:
    worker = worker_module("confluent_kafka", "producer")
    names = SimpleNamespace(id=lambda kind, text: 1)
    report = SimpleNamespace(error=lambda kind, text: None)
    streams = {f"orders-{i}": i for i in range(12)}
    spec = SimpleNamespace(part=PART, run_tag=1, folder=tmp_path, streams=streams)
    session = SimpleNamespace(
        spec=spec, names=names, report=report, control=SimpleNamespace(stop_load=False)
    )
    settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    return worker.ProducerRole(session, Producer(settings), worker.Outcomes({}))


def test_a_burst_of_delivery_reports_does_not_hold_up_what_is_due(role: Any) -> None:
    role.offer(0, MESSAGES, LOAD)
    role.producer.purge()  # reports of all of them at once, as when a broker comes back
    role.serve_by_ns = time.monotonic_ns() - 1
    role.serve(0)
    assert 0 < role.info < MESSAGES, "messages are due, and the reports behind the first can wait"
    role.serve_by_ns = time.monotonic_ns() + 600_000_000_000
    role.serve(0)
    assert role.info == MESSAGES, "none of them is forgotten"


def test_nothing_stays_of_a_full_queue_that_was_waited_for(role: Any) -> None:
    class Full(Producer):
        refused = 3

        def produce(self, *args: Any, **kwargs: Any) -> None:
            self.refused -= 1
            if self.refused >= 0:
                raise BufferError("Local: Queue full")
            super().produce(*args, **kwargs)

    role.producer = Full({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    gc.collect()
    role.offer(0, 1, LOAD)
    assert role.producer.refused < 0
    assert gc.collect() == 0, "the worker collects no cycles: they would keep a mapped segment each"


def test_the_thread_that_polls_ends_after_the_others_had_their_reports(role: Any) -> None:
    class Late(Producer):
        def flush(self, timeout: float = -1) -> int:
            self.purge()  # the reports of all messages, now and not before
            return super().flush(timeout)

    role.producer = Late({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    role.control.stopped, role.control.draining = False, True
    role.control.t0_ns, role.control.stop_load = 0, True  # what was to be sent is on its way
    role.control.deadline_ns = time.monotonic_ns() + 20_000_000_000
    other = role.for_thread(SimpleNamespace(thread=1, threads=2, segments=role.segments))
    other.offer(0, 10, LOAD)
    thread = threading.Thread(target=other._produce_or_fail, daemon=True)
    thread.start()
    role._settle(role.control.deadline_ns)
    assert (other.info, other.open_calls()) == (10, 0)
    thread.join(20)
    assert not thread.is_alive()


def test_a_client_that_declares_itself_dead_ends_no_worker(role: Any) -> None:
    said: list[tuple[str, ...]] = []
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost count", fatal=True)

    class Dead(Producer):
        """After its fatal error librdkafka raises it once out of poll, and refuses every
        message."""

        def poll(self, timeout: float = -1) -> int:
            raise KafkaException(fatal)

        def produce(self, *args: Any, **kwargs: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "Local: Fatal error", fatal=True))

    role.session.report.client_died = lambda *words: said.append(words)
    role.producer = Dead({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    role.serve(0)
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert said == [(name, f"{name}: lost count", "error")]
    role.offer(0, 10, LOAD)
    assert (role.attempted, role.fail, role.open_calls()) == (10, 10, 0)


def test_an_error_that_is_not_fatal_still_ends_it(role: Any) -> None:
    class Confused(Producer):
        def flush(self, timeout: float = -1) -> int:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no"))

    role.producer = Confused({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(KafkaException):
        role.flush(0.1)
