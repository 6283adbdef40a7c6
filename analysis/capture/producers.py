"""Lists the producers of a run: client, version, settings, and what these promise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.capture.lives import all_lives

_SHOWN = 3
_DELIVERY = {
    "durable": "an acknowledged message is on every in-sync replica",
    "leader": "an acknowledged message is on the leader only",
    "none": "an acknowledgement promises nothing",
    "unknown": "what an acknowledgement promises is not known",
}
_ORDER = {True: "order is kept", False: "order is not promised", None: "whether order is kept is not known"}
_DEDUP = {
    True: "nothing is stored twice",
    False: "duplicates are allowed",
    None: "whether duplicates are allowed is not known",
}


def producers_of(plan: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, str]:
    """``producer p-1`` -> what it is; producers that differ in nothing share an entry."""
    alike: dict[str, list[str]] = defaultdict(list)
    for producer in all_lives(plan.get("producers") or (), manifest.get("workers") or (), "instance"):
        alike[_described(producer, _ready_version(producer, manifest))].append(str(producer["name"]))
    return {_title(names): text for text, names in alike.items()}


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"producer {names[0]}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"producers {', '.join(names[:_SHOWN])}{more}"


def _ready_version(producer: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """The version that the client itself told, else the one that was asked for."""
    for worker in manifest.get("workers") or ():
        if worker.get("role") == "producer" and worker.get("instance") == producer["instance"]:
            return str(worker.get("client_version") or producer.get("client_version") or "")
    return str(producer.get("client_version") or "")


def _described(producer: Mapping[str, Any], version: str) -> str:
    client = " ".join(filter(None, (str(producer["client"]), version)))
    options = ", ".join(f"{name}={value}" for name, value in sorted((producer.get("options") or {}).items()))
    promise = producer["promise"]
    promises = [
        _DELIVERY.get(str(promise["delivery"]), str(promise["delivery"])),
        _ORDER[promise["order"]],
        _DEDUP[promise["dedup"]],
    ]
    return "; ".join(filter(None, (client, options, "promises: " + ", ".join(promises))))
