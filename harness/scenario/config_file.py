"""Broker settings that are in a file of the brokers: ``cluster: {config_file: broker.conf}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.nested_conf import read_nested
from harness.properties import read_properties
from harness.rundir import path_below
from harness.scenario.model import Option, Scenario
from harness.systems import SYSTEMS
from harness.validation import is_one_line

#: Form of a system's settings file (`System.config_form`) -> what reads it.
READERS: Final[Mapping[str, Callable[[Path], dict[str, str]]]] = {
    "properties": read_properties,
    "nested": read_nested,
}
AT: Final = ("cluster", "config_file")


def with_config_file(scenario: Scenario, reserved: Collection[str]) -> tuple[Scenario, list[str]]:
    """The scenario with the settings of its brokers' file under ``cluster.config``, and a note on
    what was left aside. Settings under ``cluster.config`` take precedence over the file.

    Args:
        reserved: settings that the runtime decides.

    Raises:
        UsageError: the file cannot be read, or brokers of this system have none that is read here.
    """
    name = scenario.cluster.config_file
    if not name:
        return scenario, []
    found, left = config_of(scenario, name, reserved)
    cluster = scenario.cluster.model_copy(update={"config": {**found, **scenario.cluster.config}})
    note = f"{'.'.join(AT)}: left aside, a run sets it itself: {', '.join(left)}"
    return scenario.model_copy(update={"cluster": cluster}), [note] if left else []


def config_of(
    scenario: Scenario, name: str, reserved: Collection[str]
) -> tuple[dict[str, Option], list[str]]:
    """The settings of a file that are set, and the names of those that are left aside. Raises as
    `with_config_file`."""
    system = SYSTEMS[scenario.system]
    read = READERS.get(system.config_form)
    if read is None:
        raise UsageError(f"brokers of {system.name} have no file of settings that is read here")
    found = read(path_below(scenario.folder, name))
    aside = re.compile(system.config_left_aside or r"(?!)")
    left = [
        key
        for key, value in found.items()
        if key in reserved
        or key in system.broker_config
        or aside.match(key)
        or not is_one_line(f"{key}={value}")
    ]
    return {key: value for key, value in found.items() if key not in left}, left
