"""What a client's settings promise, in neutral words, and how long one send may take.

A finding is a violation only against a promise. It follows from the client's options *and defaults* (they
differ between libraries and versions), the topic and the broker settings. One module a system knows its
clients' option names; to add a client, give its module a dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.errors import ScenarioError
from harness.plan import (
    promise_kafka,
    promise_pulsar,
    promise_qpid,
)
from harness.plan.model import ConsumerPromise
from harness.plan.promise import (
    Consuming,
    Ground,
    Options,
    ProducerSettings,
    ReadConsumer,
    ReadProducer,
)

__all__ = ["Consuming", "Ground", "ProducerSettings", "consumer_promise", "producer_settings"]

_PRODUCERS: Final[Mapping[str, ReadProducer]] = {
    **dict.fromkeys(promise_kafka.CLIENTS, promise_kafka.KafkaProducerSettings),
    **dict.fromkeys(promise_pulsar.CLIENTS, promise_pulsar.PulsarProducerSettings),
    **dict.fromkeys(promise_qpid.CLIENTS, promise_qpid.QpidProducerSettings),
}
_CONSUMERS: Final[Mapping[str, ReadConsumer]] = {
    **dict.fromkeys(promise_kafka.CLIENTS, promise_kafka.read_consumer),
    **dict.fromkeys(promise_pulsar.CLIENTS, promise_pulsar.read_consumer),
    **dict.fromkeys(promise_qpid.CLIENTS, promise_qpid.read_consumer),
}


def producer_settings(client: str, version: str, options: Options) -> ProducerSettings:
    """A producer's options, read as its library reads them.

    Raises:
        ScenarioError: no promise table for the client, a value it refuses, or contradicting settings.
    """
    return _PRODUCERS[_known(client)](client, version, options)


def consumer_promise(consuming: Consuming) -> ConsumerPromise:
    """The promise of a consumer.

    Raises:
        ScenarioError: as `producer_settings`.
    """
    return _CONSUMERS[_known(consuming.client)](consuming)


def _known(client: str) -> str:
    if client not in _PRODUCERS:
        raise ScenarioError(
            f"client {client!r} has no promise table",
            hint=f"known: {', '.join(_PRODUCERS)} (harness/plan/promise_*.py)",
        )
    return client
