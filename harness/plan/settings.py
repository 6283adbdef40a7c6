"""What a client's settings promise, in neutral words, and how long one send may take.

A finding is a violation only against a promise. It follows from the client's options *and defaults* (they
differ between libraries and versions), the topic and the broker settings. Options and defaults are stated in
the client's worker.toml; one module a system says what they promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.plan import (
    promise_kafka,
    promise_pulsar,
    promise_qpid,
)
from harness.plan.model import ConsumerPromise
from harness.plan.promise import (
    ClientSettings,
    Consuming,
    Options,
    ProducerSettings,
    PromiseContext,
    ReadConsumer,
    ReadProducer,
)
from harness.workers import load_worker

__all__ = ["Consuming", "ProducerSettings", "PromiseContext", "consumer_promise", "producer_settings"]

#: By system.
_PRODUCERS: Final[Mapping[str, ReadProducer]] = {
    "kafka": promise_kafka.KafkaProducerSettings,
    "pulsar": promise_pulsar.PulsarProducerSettings,
    "qpid": promise_qpid.QpidProducerSettings,
}
_CONSUMERS: Final[Mapping[str, ReadConsumer]] = {
    "kafka": promise_kafka.read_consumer,
    "pulsar": promise_pulsar.read_consumer,
    "qpid": promise_qpid.read_consumer,
}


def producer_settings(
    client: str, version: str, options: Options, folders: Sequence[str] = ()
) -> ProducerSettings:
    """A producer's options, read as its library reads them.

    ``folders``: where workers are beside ours (`harness.workers.known_workers`).

    Raises:
        UsageError: no such client.
        ScenarioError: a value that the client refuses, or contradicting settings.
    """
    worker = load_worker(client, folders)
    return _PRODUCERS[worker.system](ClientSettings(worker, version, options, "producer"))


def consumer_promise(consuming: Consuming) -> ConsumerPromise:
    """The promise of a consumer.

    Raises:
        UsageError, ScenarioError: as `producer_settings`.
    """
    worker = load_worker(consuming.client, consuming.folders)
    settings = ClientSettings(worker, consuming.version, consuming.options, "consumer")
    producers = [
        ClientSettings(load_worker(client, consuming.folders), "", options, "producer")
        for client, options in consuming.producers
    ]
    return _CONSUMERS[worker.system](consuming, settings, producers)
