"""Turns a client's settings into a promise in neutral terms, and says how long one send may take.

A finding is a violation only against a promise. It follows from the client's options *and defaults*
(they differ between libraries and versions), the topic and the broker settings. Options and
defaults are stated in the client's worker.toml; its system (`System.promise`) says what they
promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts.plan import ConsumerPromise
from harness.errors import ScenarioError
from harness.plan.promise import (
    ClientSettings,
    Consuming,
    Options,
    ProducerSettings,
    PromiseContext,
    ReadConsumer,
    ReadProducer,
)
from harness.systems import system_of
from harness.workers import load_worker

__all__ = [
    "Consuming",
    "ProducerSettings",
    "PromiseContext",
    "consumer_promise",
    "producer_settings",
]


def _reading(system: str) -> tuple[ReadProducer, ReadConsumer]:
    """Return the two functions that read the settings of a system's clients."""
    promise = system_of(system).promise()
    return promise.read_producer, promise.read_consumer


def producer_settings(
    client: str, version: str, options: Options, folders: Sequence[str] = (), *, system: str = ""
) -> ProducerSettings:
    """A producer's options, read as its library reads them.

    ``folders``: folders of workers besides ours (`harness.workers.known_workers`). ``system``: the
    one that it sends to, where its worker has several; empty = its first.

    Raises:
        UsageError: no such client.
        ScenarioError: a value that the client refuses, or contradicting settings.
    """
    worker = load_worker(client, folders, system=system)
    read, _ = _reading(worker.system)
    return read(ClientSettings(worker, version, options, "producer"))


def codec_of(client: str, version: str, options: Options, folders: Sequence[str] = ()) -> str:
    """How a producer compresses, and what says so; empty = its worker.toml does not tell. Raises as
    `producer_settings`."""
    return ClientSettings(load_worker(client, folders), version, options, "producer").codec()


def transactional(client: str, options: Options, folders: Sequence[str] = ()) -> dict[str, str]:
    """The options of a producer that uses transactions: with what its client demands for them, and
    idempotent, whatever its default is.

    Where the client holds its other defaults against that, they are changed too, as its users have
    to.

    Raises:
        ScenarioError: an option says that the producer is not idempotent: most clients refuse to
            start.
    """
    worker = load_worker(client, folders)
    options = {**worker.transactional, **options}
    facts = getattr(worker.promises, "idempotence", None)
    if not facts or not facts.options:
        return dict(options)
    name = facts.options[0]
    needed, refused = ("false", "true") if facts.inverse else ("true", "false")
    if options.get(name, "").lower() == refused:
        raise ScenarioError(
            f"{name}: must be {needed} with transactions, got {options[name]}",
            hint=f"remove {name}: transactions make the producer idempotent",
        )
    if facts.checks_defaults:
        return {**worker.contract.durable, **options}
    return {name: needed, **options}


def consumer_promise(consuming: Consuming) -> ConsumerPromise:
    """The promise of a consumer.

    Raises:
        UsageError, ScenarioError: as `producer_settings`.
    """
    worker = load_worker(consuming.client, consuming.folders, system=consuming.system)
    settings = ClientSettings(worker, consuming.version, consuming.options, "consumer")
    producers = [
        ClientSettings(
            load_worker(client, consuming.folders, system=consuming.system),
            "",
            options,
            "producer",
        )
        for client, options in consuming.producers
    ]
    _, read = _reading(worker.system)
    return read(consuming, settings, producers)
