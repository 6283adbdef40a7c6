"""Options of a client that are in a file of the application: ``options: {file:
producer.properties}``."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from harness.errors import UsageError
from harness.properties import read_properties
from harness.rundir import path_below
from harness.scenario.checks import Client, Problem
from harness.scenario.merging import deep_merge
from harness.scenario.model import ConsumerSpec, Option, PipelineSpec, ProducerSpec, Scenario
from harness.scenario.payload import payload_schema
from harness.scenario.payload_schema import encoded_payload

FILE: Final = "file"
CONFIG_FILE: Final = "config_file"
SIDES: Final = ("producers", "consumers", "pipelines")
#: Options of clients for TLS and logins, whatever a worker states: secrets may be among them.
_SECURITY: Final = re.compile(r"^(ssl|sasl|security)\.")

AnyClient = ProducerSpec | ConsumerSpec | PipelineSpec


def with_option_files(
    scenario: Scenario, clients: Mapping[str, Client]
) -> tuple[Scenario, list[Problem], list[str]]:
    """The scenario with the values of its option files, what is wrong with them, and notes for
    people.

    Other options of the entry take precedence over the file.
    """
    problems: list[Problem] = []
    notes: list[str] = []
    load: dict[str, Any] = {side: dict(getattr(scenario.load, side)) for side in SIDES}
    for at in _places(scenario.model_dump()):
        _, side, name, key = at
        spec: AnyClient = load[side][name]
        try:
            options, left = _with_file(
                scenario.folder, getattr(spec, key), clients.get(spec.client)
            )
        except UsageError as error:
            problems.append(((*at, FILE), str(error)))
            continue
        load[side][name] = spec.model_copy(update={key: options})
        if left:
            notes.append(
                f"{'.'.join(at)}.{FILE}: left aside, a run sets it itself: {', '.join(left)}"
            )
    return (
        scenario.model_copy(update={"load": scenario.load.model_copy(update=load)}),
        problems,
        notes,
    )


def written_out(
    data: Mapping[str, Any],
    scenario: Scenario,
    clients: Mapping[str, Client],
    config_of: Callable[[str], Mapping[str, Option]],
) -> str:
    """A scenario file with the values of the files that it names for options and broker settings,
    so that it can be run elsewhere. Empty = it names no such file.

    Args:
        data: of the scenario file.
        config_of: the settings of a file of the brokers.

    Raises:
        UsageError: a file of a variant cannot be read.
    """
    made: dict[str, Any] = copy.deepcopy(dict(data))
    variants = (made.get("variants") or {}).values()
    overrides = [each["override"] for each in variants if each and each.get("override")]
    names_one = _encode_payloads(made, overrides, scenario.folder)
    for part in [made, *overrides]:
        for at in _places(part):
            _, side, name, key = at
            spec = part["load"][side][name]
            known = getattr(scenario.load, side).get(name)
            client = spec.get("client") or (known.client if known else "")
            spec[key], _ = _with_file(scenario.folder, spec[key], clients.get(client))
            names_one = True
        cluster = part.get("cluster")
        if isinstance(cluster, dict) and (name := cluster.pop(CONFIG_FILE, None)):
            cluster["config"] = {**config_of(str(name)), **(cluster.get("config") or {})}
            names_one = True
    text = "# The values of files that the scenario named are written out.\n"
    return text + yaml.safe_dump(made, sort_keys=False, allow_unicode=True) if names_one else ""


def _encode_payloads(
    made: dict[str, Any], overrides: Iterable[dict[str, Any]], folder: Path
) -> bool:
    """Encode bodies that name a schema file, in the data of a scenario and of its variants; whether
    there are any."""
    base = _payload(made)
    whole = [(part, deep_merge(base, own)) for part in overrides if (own := _payload(part))]
    if not any(_names_schema(each) for each in (base, *(payload for _, payload in whole))):
        return False
    below = _encoded(base, folder)
    # Not while they are read: a file can have one override for several variants (`*name`).
    if base is not None:
        made["load"]["payload"] = below
    for part, payload in whole:
        part["load"]["payload"] = _laid_over(below, _encoded(payload, folder))
    return True


def _names_schema(payload: Any) -> bool:
    """Whether a payload names a schema file, with keys that go together: `--set` may replace what
    the scenario file has."""
    try:
        return bool(payload_schema(payload))
    except ValueError:
        return False


def _encoded(payload: Any, folder: Path) -> Any:
    return encoded_payload(payload, folder) if _names_schema(payload) else payload


def _laid_over(below: Any, payload: Any) -> Any:
    """The payload of a variant as an override: keys that only the one below it has are null."""
    if not isinstance(below, Mapping) or not isinstance(payload, Mapping):
        return payload
    return {**{key: None for key in below if key not in payload}, **payload}


def _payload(part: Mapping[str, Any]) -> Any:
    load = part.get("load")
    return load.get("payload") if isinstance(load, Mapping) else None


def _places(data: Any) -> Iterator[tuple[str, str, str, str]]:
    """Where options name a file, in the data of a scenario or of a variant's override."""
    load = data.get("load") if isinstance(data, Mapping) else None
    if not isinstance(load, Mapping):
        return
    for side in SIDES:
        entries = load.get(side)
        for name, spec in entries.items() if isinstance(entries, Mapping) else ():
            for key in ("options", "consumer_options"):
                options = spec.get(key) if isinstance(spec, Mapping) else None
                if isinstance(options, Mapping) and FILE in options:
                    yield "load", side, name, key


def _with_file(
    folder: Path, options: Mapping[str, Option], worker: Client | None
) -> tuple[dict[str, Option], list[str]]:
    """The options with their file's, and the names that were left aside.

    Raises:
        UsageError: the file cannot be read.
    """
    found = read_properties(path_below(folder, str(options[FILE])))
    aside = {*worker.left_aside, *worker.security_options} if worker is not None else set()
    left = [name for name in found if name in aside or _SECURITY.match(name)]
    kept: dict[str, Option] = {name: value for name, value in found.items() if name not in left}
    own = {name: value for name, value in options.items() if name != FILE}
    return {**kept, **own}, left
