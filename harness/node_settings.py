"""Broker settings that differ by node, in one flat map: ``kafka-1/broker.rack`` is a setting of one
node.

A scenario writes ``broker.rack: {kafka-1: az-1, kafka-2: az-2}``. Plans and cluster files keep the
flat form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_OF: Final = "/"


def flattened(config: Any) -> Any:
    """``{setting: {node: value}}`` as ``{node/setting: value}``; anything else stays as it is.

    Raises:
        ValueError: a mapping that is empty, or holds something else than one value a node.
    """
    if not isinstance(config, Mapping):
        return config
    flat: dict[Any, Any] = {}
    for key, value in config.items():
        if not isinstance(value, Mapping):
            flat[key] = value
            continue
        if not value:
            raise ValueError(f"{key} must have a value, or one for each node: {{kafka-1: az-1}}")
        for node, own in value.items():
            if not isinstance(node, str) or not isinstance(own, str | int | float | bool):
                raise ValueError(
                    f"{key} of {node} must be text, a number, or true or false: {{kafka-1: az-1}}"
                )
            flat[f"{node}{_OF}{key}"] = own
    return flat


def setting_name(key: str) -> str:
    """The native name of a setting, without the node."""
    return key.rpartition(_OF)[2]


def by_node(config: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Node, native name and value of each setting that only one node has."""
    for key, value in config.items():
        node, _, name = key.rpartition(_OF)
        if node:
            yield node, name, value


def for_all(config: Mapping[str, str]) -> dict[str, str]:
    """The settings that every node has, unless it has its own."""
    return {key: value for key, value in config.items() if _OF not in key}


def of_node(config: Mapping[str, str], node: str) -> dict[str, str]:
    """The settings of one node by their native names: the ones of all nodes, and its own over
    them."""
    own = {name: value for owner, name, value in by_node(config) if owner == node}
    return {**for_all(config), **own}


def node_configs(config: Mapping[str, str]) -> list[dict[str, str]]:
    """The settings of a node without own ones, then the ones of each node that has some."""
    nodes = dict.fromkeys(node for node, *_ in by_node(config))
    return [for_all(config), *(of_node(config, node) for node in nodes)]


def settings_text(config: Mapping[str, str]) -> dict[str, str]:
    """Native name -> value as text for people; a setting by node as ``{kafka-1: az-1, kafka-2:
    az-2}``."""
    own: dict[str, list[str]] = {}
    for node, name, value in by_node(config):
        own.setdefault(name, []).append(f"{node}: {value}")
    return {**for_all(config), **{name: f"{{{', '.join(values)}}}" for name, values in own.items()}}
