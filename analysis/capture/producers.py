"""Lists the producers of a run: client, version, settings, and what these promise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from analysis.capture.lives import all_lives
from harness.contracts.plan import Plan, ProducerPlan
from harness.contracts.rows import Manifest

_SHOWN = 3
_DELIVERY = {
    "durable": "an acknowledged message is on every in-sync replica",
    "leader": "an acknowledged message is on the leader only",
    "none": "an acknowledgement promises nothing",
    "unknown": "what an acknowledgement promises is not known",
}
_ORDER = {
    True: "order is kept",
    False: "order is not promised",
    None: "whether order is kept is not known",
}
_DEDUP = {
    True: "nothing is stored twice",
    False: "duplicates are allowed",
    None: "whether duplicates are allowed is not known",
}


def producers_of(plan: Plan, manifest: Manifest) -> dict[str, str]:
    """``producer p-1`` -> what it is; producers that differ in nothing share an entry."""
    alike: dict[str, list[str]] = defaultdict(list)
    for producer in all_lives(plan.producers, manifest.workers):
        told = manifest.worker("producer", producer.instance).client_version
        alike[_described(producer, told or producer.client_version)].append(producer.name)
    return {_title(names): text for text, names in alike.items()}


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"producer {names[0]}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"producers {', '.join(names[:_SHOWN])}{more}"


def _described(producer: ProducerPlan, version: str) -> str:
    """``version``: that the client itself told, else the one that was asked for."""
    client = " ".join(filter(None, (producer.client, version)))
    options = ", ".join(f"{name}={value}" for name, value in sorted(producer.options.items()))
    promise = producer.promise
    promises = [_DELIVERY[promise.delivery], _ORDER[promise.order], _DEDUP[promise.dedup]]
    return "; ".join(filter(None, (client, options, "promises: " + ", ".join(promises))))
