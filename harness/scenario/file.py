"""A scenario file -> `Scenario`, every problem as one line that a user can act on.

    kafka.yaml:12: load.rat: unknown key; did you mean rate? allowed: duration, payload, ...

The YAML is read as a node tree first, so that each key keeps its line; `--set` values are laid over
it and keep their own place. Variants are deep merges over the same data, checked the same way.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import ValidationError

from harness.errors import ScenarioError, UsageError, did_you_mean
from harness.rundir import Document, path_below
from harness.scenario.bundled import bundled_bugs, bundled_scenarios, name_of
from harness.scenario.checks import Client, Problem, problems
from harness.scenario.config_file import AT as CONFIG_FILE
from harness.scenario.config_file import config_of, with_config_file
from harness.scenario.merging import deep_merge
from harness.scenario.model import Scenario
from harness.scenario.option_files import FILE, with_option_files, written_out
from harness.scenario.payload import SCHEMAS
from harness.scenario.payload_schema import AT as PAYLOAD
from harness.scenario.payload_schema import with_payload_schema
from harness.toolchains.own_builds import anchored
from harness.validation import Location, dotted, inner_type, problems_of, value_text
from harness.yaml_lines import SCHEMA_KEY, parse, read, value_of

#: Folders that a scenario names -> the workers there are (`harness.workers.known_workers`).
Clients = Callable[[Sequence[str]], Mapping[str, Client]]
#: Raises ScenarioError for a fault step that cannot be used (it calls `faults.compile`).
FaultCheck = Callable[[Scenario], object]
#: A scenario, the client (empty = its brokers) and a version of it, ``dir:PATH`` -> the same,
#: pinned to what is there now (`harness.toolchains.own_builds`). Raises UsageError.
Pin = Callable[[Scenario, str, str], str]
#: A scenario -> settings of its brokers that the runtime decides.
Reserved = Callable[[Scenario], Collection[str]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a scenario came from: enough to build its variants and to name lines in errors."""

    path: Path
    text: str
    data: Document
    places: dict[Location, str]
    overrides: tuple[tuple[Location, Any, str], ...] = ()
    clients: Clients | None = field(default=None, compare=False)
    classes: Collection[str] = ()
    check_faults: FaultCheck | None = field(default=None, compare=False)
    pin: Pin | None = field(default=None, compare=False)
    reserved: Reserved | None = field(default=None, compare=False)

    def place(self, location: Location) -> str:
        """``file:line`` (or ``--set ...``) of the nearest key that was written."""
        for length in range(len(location), -1, -1):
            if (found := self.places.get(location[:length])) is not None:
                return found
        return str(self.path)


def load_scenario(
    name_or_path: str | Path,
    *,
    overrides: Sequence[str] = (),
    clients: Clients | None = None,
    classes: Collection[str] = (),
    check_faults: FaultCheck | None = None,
    pin: Pin | None = None,
    reserved: Reserved | None = None,
) -> Scenario:
    """Read and check a scenario, its variants included.

    Args:
        name_or_path: a bundled scenario's name, or a file.
        overrides: ``key.path=value`` texts of ``--set``, laid over the file and over every variant;
            ``--for 8h`` is how long the load lasts.
        clients: what knows the workers; None = clients are not checked.
        classes: known anomaly classes, for ``expect``; empty = not checked.
        check_faults: raises `ScenarioError` for unusable fault steps.
        pin: what knows the builds of the user's; None = they stay as they were written.
        reserved: returns broker settings that the runtime decides. They are refused in
            ``cluster.config``, and named and left aside in ``cluster.config_file``. None = for a
            cluster that is not ours.

    Raises:
        ScenarioError: a line for each problem, with place, key, value and what is allowed.
    """
    path = find_scenario(name_or_path)
    text = read(path)
    kept_data, places = _parsed(path, text)
    data = copy.deepcopy(kept_data)
    data.pop(SCHEMA_KEY, None)
    data = anchored(data, path.parent)
    parsed = []
    for override in overrides:
        location, value, option = _parse_override(override, data)
        parsed.append((location, value, option))
        _put(data, location, value, option)
        kept = {k: v for k, v in places.items() if k[: len(location)] != location}
        made = {
            location[:n]: option for n in range(1, len(location) + 1) if location[:n] not in kept
        }
        places = kept | made
    source = Source(
        path, text, data, places, tuple(parsed), clients, classes, check_faults, pin, reserved
    )
    scenario = _validated(data, source)
    variants(scenario)
    scenario._written_out = written_out(
        kept_data,
        scenario,
        _clients(scenario, source) or {},
        lambda name: config_of(scenario, name, _reserved(scenario, source))[0],
    )
    return scenario


#: A suite reads one file with hundreds of settings laid over it, and parsing takes most of that
#: time.
_parsed = lru_cache(maxsize=64)(parse)


def variants(scenario: Scenario) -> list[tuple[str, Scenario, str]]:
    """Name, merged scenario and expected class of each variant; one unnamed clean one if there are
    none.

    Maps merge key by key, anything else is replaced, ``null`` removes a key.

    Raises:
        ScenarioError: an override does not fit.
    """
    if not scenario.variants:
        return [("", scenario, "clean")]
    source: Source | None = scenario._source
    if source is None:
        base = scenario.model_dump(exclude_unset=True, by_alias=True)
        source = Source(Path(scenario.name), "", base, {})
    merged: list[tuple[str, Scenario, str]] = []
    for name, variant in scenario.variants.items():
        at: Location = ("variants", name, "override")
        for key in ("name", "system", "workers", "rounds", "variants", "bug"):
            if key in variant.override:
                raise ScenarioError(
                    f"{source.place((*at, key))}: {dotted((*at, key))}: a variant cannot change "
                    f"{key}"
                )
        data = deep_merge(
            {k: v for k, v in source.data.items() if k not in ("variants", "bug")}, variant.override
        )
        for location, value, option in source.overrides:
            if location[0] not in ("variants", "bug"):
                _put(data, location, value, option)
        merged.append((name, _validated(data, source, inside=at), variant.expect))
    return merged


def find_scenario(name_or_path: str | Path) -> Path:
    """The file that the user means.

    Raises:
        ScenarioError: neither a bundled scenario nor a readable file.
    """
    text, path = str(name_or_path), Path(name_or_path)
    known = bundled_scenarios()
    if (bundled := (known | bundled_bugs()).get(text)) is not None:
        return bundled
    if path.is_file():
        return path
    if path.is_dir():
        raise ScenarioError(
            f"{text} is a folder, not a scenario file", hint=_scenario_hint(text, known)
        )
    what = "no such file" if path.suffix in {".yaml", ".yml"} or "/" in text else "no such scenario"
    raise ScenarioError(f"{what}: {text!r}", hint=_scenario_hint(text, known))


def _scenario_hint(text: str, known: Mapping[str, Path]) -> str:
    near = did_you_mean(name_of(text), known, label="scenarios")
    return f"{near}; `brokerstorm new FILE` writes one to edit"


# ----- --set and merging --------------------------------------------------------------------------


#: The last two keys of a path, as ``--set`` has it.
_NAMES_A_FILE: Final = {
    CONFIG_FILE,
    ("options", FILE),
    ("consumer_options", FILE),
    *((PAYLOAD[-1], key) for key in SCHEMAS),
}
#: Behind the name of an entry that ``--set`` is to add.
_NEW: Final = "!new"


def _parse_override(text: str, data: Document) -> tuple[Location, Any, str]:
    is_duration = text.startswith("--for ")
    key, equals, value = ("load.duration", "=", text[6:]) if is_duration else text.partition("=")
    option = text if is_duration else f"--set {text}"
    if not equals or not key.strip():
        raise ScenarioError(f"{option}: must be KEY=VALUE", hint="for example --set load.rate=1000")
    try:
        parsed = value_of(value)
    except ValueError as error:
        raise ScenarioError(f"{option}: the value is not valid YAML") from error
    location = _split_key(key.strip(), data, option)
    # What a user names on the command line is where the user is.
    [parsed] = anchored({location[-1]: parsed}, Path.cwd()).values()
    is_folder = location[:1] == ("applications",) and location[2:] == ("start_in",)
    names_a_file = location[-2:] in _NAMES_A_FILE
    if (names_a_file or is_folder) and isinstance(parsed, str):
        parsed = str(path_below(Path.cwd(), parsed))
    return location, parsed, option


def _split_key(text: str, data: Any, option: str) -> Location:
    """``load.producers.p.options.linger.ms`` -> its keys; only the model knows which dots separate.

    An entry of a map of names (topics, producers ...) must be there, or be marked as new: a name
    that is misspelt would add an entry and leave the one that was meant as it is.
    """
    location: list[str | int] = []
    annotation: Any = Scenario
    rest = re.sub(r"\[(\d+)\]", r".\1", text)
    defaults: Any = Scenario(name="defaults").model_dump()
    while rest:
        part, _, after = rest.partition(".")
        if get_origin(annotation) is dict:
            value_type = get_args(annotation)[1]
            # native options: their names have dots
            if get_origin(value_type) in {Union, UnionType}:
                part, after = rest, ""
            elif get_args(annotation)[1] is not Any:
                part, after = _split_name(
                    rest, _names(data) or _names(defaults), (*location,), option
                )
        key: str | int = int(part) if isinstance(data, list) and part.isdigit() else part
        location.append(key)
        annotation = inner_type(annotation, key)
        data, defaults = _child(data, key), _child(defaults, key)
        rest = after
    return tuple(location)


def _names(data: Any) -> list[str]:
    """Keys of what should be a map; the file may hold anything in its place."""
    return [str(key) for key in data] if isinstance(data, dict) else []


def _split_name(
    rest: str, known: Sequence[str], location: Location, option: str
) -> tuple[str, str]:
    """The name that ``rest`` begins with, which may have dots, and what follows it.

    Raises:
        ScenarioError: no such entry, and it is not marked as new.
    """
    name, is_new, after = rest.partition(_NEW)
    if is_new:
        return name, after.removeprefix(".")
    fits = [k for k in known if rest == k or rest.startswith(f"{k}.")]
    if fits:
        part = max(fits, key=len)
        return part, rest[len(part) + 1 :]
    name = rest.partition(".")[0]
    where = dotted(location)
    raise ScenarioError(
        f"{option}: {where} has no entry {name!r}",
        hint=f"{did_you_mean(name, known)}; {where}.{name}{_NEW} adds one",
    )


def _child(data: Any, key: str | int) -> Any:
    if isinstance(data, list):
        return data[key] if isinstance(key, int) and key < len(data) else None
    return data.get(key) if isinstance(data, dict) else None


def _put(data: Document, location: Location, value: Any, option: str) -> None:
    """Set one key in place, making the maps on the way."""
    target: Any = data
    for index, key in enumerate(location):
        last = index == len(location) - 1
        if isinstance(target, list):
            if not isinstance(key, int) or key >= len(target):
                raise ScenarioError(
                    f"{option}: {dotted(location[:index])} has items 0 to {len(target) - 1}"
                )
        elif not isinstance(target, dict):
            raise ScenarioError(f"{option}: {dotted(location[:index])} holds a value, not keys")
        if last:
            target[key] = copy.deepcopy(value)
        else:
            if _child(target, key) is None:
                target[key] = {}
            target = target[key]


# ----- checking -----------------------------------------------------------------------------------


def _validated(data: Document, source: Source, *, inside: Location = ()) -> Scenario:
    """Check merged data; ``inside`` is the variant override that may be to blame."""
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        raise _refused(source, problems_of(Scenario, error, data), inside) from None
    scenario._source = source
    clients = _clients(scenario, source)
    reserved = _reserved(scenario, source)
    try:
        scenario, noted = with_config_file(scenario, reserved)
    except UsageError as error:
        text = f"{error}{value_text(CONFIG_FILE, data)}"
        raise ScenarioError(_line(source, CONFIG_FILE, text, inside), hint=error.hint) from error
    try:
        scenario = with_payload_schema(scenario)
    except UsageError as error:
        raise ScenarioError(_line(source, PAYLOAD, str(error), inside), hint=error.hint) from error
    scenario, file_problems, notes = with_option_files(scenario, clients or {})
    scenario._notes = [*noted, *notes]
    found: list[Problem] = [
        *file_problems,
        *problems(scenario, clients=clients, classes=source.classes),
    ]
    found += [
        (("cluster", "config", key), "cannot be set, the runtime decides it; leave it out")
        for key in scenario.cluster.config
        if key in reserved
    ]
    if found:
        sentences = []
        for location, problem in found:
            what, semicolon, allowed = problem.partition(";")
            sentences.append((location, f"{what}{value_text(location, data)}{semicolon}{allowed}"))
        raise _refused(source, sentences, inside)
    scenario = _pinned(scenario, source, inside)
    if source.check_faults is not None and scenario.faults:
        try:
            source.check_faults(scenario)
        except ScenarioError as error:
            line = _fault_line(source, str(error), inside)
            place = source.place(("load", "duration"))
            if place.startswith("--") and " load ends at " in str(error):
                # The file was right before the option.
                raise ScenarioError(
                    f"{place}: load.duration: the faults of the scenario do not fit into it: {error}",
                    hint=f"name a longer load, or change the fault: {line.partition(': ')[0]}",
                ) from error
            raise ScenarioError(line, hint=error.hint) from error
    return scenario


def _refused(
    source: Source, found: Sequence[tuple[Location, str]], inside: Location
) -> ScenarioError:
    """Every problem on a line of its own, as far as a terminal shows them."""
    return ScenarioError.of_lines(
        _line(source, location, sentence, inside) for location, sentence in found
    )


def option_place(scenario: Scenario, variant: str, process: str, option: str) -> str:
    """Where an option of a client was written: ``file:line``, or ``--set ...``; empty if it was
    not.

    Args:
        process: name of a process of the client: ``producer-shop``, or ``producer-shop-2`` of
            several.
    """
    source: Source | None = scenario._source
    places = source.places if source else {}
    found = ""
    for location, place in places.items():
        own = location[2:] if location[:1] == ("variants",) else location
        in_variant = own != location
        if own[-1:] != (option,) or (in_variant and location[1] != variant):
            continue
        keys = [str(key) for key in own if key not in ("override", "load", "options", option)]
        fits = len(keys) == 2 and f"{process}-".startswith(
            f"{keys[0].removesuffix('s')}-{keys[1]}-"
        )
        if fits and (in_variant or not found):
            found = place
    return found


def located(scenario: Scenario, problem: ScenarioError) -> ScenarioError:
    """A problem of a plan that begins with a key, such as ``load.producers.p.options: ...``, with
    the place where the key was written; unchanged if it was not."""
    source: Source | None = scenario._source
    if source is None:
        return problem
    key = str(problem).partition(": ")[0]
    found = [
        place
        for location, place in source.places.items()
        if key == dotted(location[3:] if location[:1] == ("variants",) else location)
    ]
    if len(found) != 1:  # a variant has the key, too: which one is wrong is not known
        return problem
    return ScenarioError(f"{found[0]}: {problem}", hint=problem.hint, further=problem.further)


def fault_problem(scenario: Scenario, variant: str, problem: ScenarioError) -> ScenarioError:
    """A problem of a fault step that only the clients of a plan show, with the place where the step
    was written: ``file:line``."""
    source: Source | None = scenario._source
    if source is None:
        return problem
    line = _fault_line(source, str(problem), ("variants", variant, "override"))
    return ScenarioError(line, hint=problem.hint)


def _reserved(scenario: Scenario, source: Source) -> Collection[str]:
    """Settings of the brokers that the runtime decides; asked only where the scenario has
    settings."""
    cluster = scenario.cluster
    if source.reserved is None or not (cluster.config or cluster.config_file):
        return ()
    return source.reserved(scenario)


def _pinned(scenario: Scenario, source: Source, inside: Location) -> Scenario:
    """The scenario with the builds of the user's as they are now."""
    if source.pin is None:
        return scenario
    pin = source.pin

    def found(client: str, version: str, location: Location) -> dict[str, str]:
        try:
            return {str(location[-1]): pin(scenario, client, version)}
        except UsageError as error:
            raise ScenarioError(
                _line(source, location, str(error), inside), hint=error.hint
            ) from error

    of_brokers = found("", scenario.cluster.version, ("cluster", "version"))
    sides: dict[str, object] = {
        side: {
            name: spec.model_copy(
                update=found(
                    spec.client, spec.client_version, ("load", side, name, "client_version")
                )
            )
            for name, spec in getattr(scenario.load, side).items()
        }
        for side in ("producers", "consumers", "pipelines")
    }
    update = {
        "cluster": scenario.cluster.model_copy(update=of_brokers),
        "load": scenario.load.model_copy(update=sides),
    }
    return scenario.model_copy(update=update)


def _clients(scenario: Scenario, source: Source) -> Mapping[str, Client] | None:
    if source.clients is None:
        return None
    try:
        return source.clients(scenario.worker_folders)
    except UsageError as error:
        if not scenario.workers:
            raise
        raise ScenarioError(
            f"{source.place(('workers',))}: workers: {error}", hint=error.hint
        ) from error


def _line(source: Source, location: Location, problem: str, inside: Location) -> str:
    written = (*inside, *location)
    if inside and not any(
        written[:n] in source.places for n in range(len(inside) + 1, len(written) + 1)
    ):
        variant = inside[1]
        return f"{source.place(location)}: {dotted(location)}: {problem} (in variant {variant})"
    return f"{source.place(written)}: {dotted(written)}: {problem}"


def _fault_line(source: Source, message: str, inside: Location) -> str:
    match = re.search(r"faults\[(\d+)\](?:\.([A-Za-z_]+))?", message)
    location: Location = ("faults",)
    if match:
        location = ("faults", int(match[1]), *([match[2]] if match[2] else []))
    written = (*inside, *location)
    place = source.place(written if (*inside, "faults") in source.places else location)
    return f"{place}: {message}"
