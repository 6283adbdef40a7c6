"""The model of a suite file, checked key by key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from harness.durations import Seconds
from harness.errors import FailOn
from harness.scenario.part import Name, Part
from harness.toolchains.own_builds import is_own

Option = str | int | float | bool
Runtime = Literal["auto", "process", "docker"]
VERDICTS_ONLY = "verdicts only"
_DAY_S = 86_400.0
_AGE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(h|d|w)\s*$")
_AGE_S = {"h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(MB|GB|TB)\s*$")
_SIZE_BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_VERSION = re.compile(
    r"^(default|latest|latest-minor|>=\s*\d+(\.\d+)*|[0-9A-Za-z][0-9A-Za-z.+ _-]*)$"
)


def _age(value: object) -> object:
    if isinstance(value, str) and (match := _AGE.match(value)):
        return float(match[1]) * _AGE_S[match[2]]
    raise ValueError("must be an age such as 30d, 2w or 12h")


def _age_or_verdicts(value: object) -> object:
    if value == VERDICTS_ONLY:
        return 0.0
    try:
        return _age(value)
    except ValueError:
        raise ValueError(f"must be an age such as 30d, or {VERDICTS_ONLY!r}") from None


def _bytes(value: object) -> object:
    if isinstance(value, str) and (match := _SIZE.match(value)):
        return int(float(match[1]) * _SIZE_BYTES[match[2]])
    raise ValueError("must be a size such as 20GB or 500MB")


def _version(text: str) -> str:
    if not _VERSION.match(text) and not is_own(text):
        raise ValueError(
            "must be a version, latest, latest-minor, default, >= a version such as >=2.14, or "
            "dir:PATH"
        )
    return text


_AGE_SCHEMA = {"type": "string", "pattern": _AGE.pattern}
Age = Annotated[float, BeforeValidator(_age), WithJsonSchema(_AGE_SCHEMA)]
AgeOrVerdicts = Annotated[
    float,
    BeforeValidator(_age_or_verdicts),
    WithJsonSchema({"anyOf": [_AGE_SCHEMA, {"const": VERDICTS_ONLY}]}),
]
Bytes = Annotated[
    int, BeforeValidator(_bytes), WithJsonSchema({"type": "string", "pattern": _SIZE.pattern})
]
Version = Annotated[str, AfterValidator(_version)]


@dataclass(frozen=True, slots=True)
class Keep:
    """The rule for what is kept of earlier nights: ages of captures in seconds (0 keeps none), and
    bytes in total.
    """

    red_s: float
    green_s: float
    total_bytes: int | None


class KeepSpec(Part):
    """The rule for what is kept of nights; the night that has just ended is one of them."""

    red: Age = Field(
        30 * _DAY_S, description="runs that failed, broke or are unknown, for that long: `30d`"
    )
    green: AgeOrVerdicts = Field(
        0.0,
        description=f"runs that passed: `{VERDICTS_ONLY}` (result and report, no captured rows) or an age",
    )
    total: Bytes | None = Field(
        None, description="the most that all nights may take: `20GB`; the oldest captures go first"
    )

    def rule(self) -> Keep:
        return Keep(self.red, self.green, self.total)


class ExcludeSpec(Part):
    """Leaves cells out: those that fit every key given. Values are patterns as of a shell
    (`2.1*`)."""

    scenario: str = Field("*", description="scenario or bug")
    client: str = Field("*", description="client library")
    client_version: str = Field("*", description="as asked or as resolved")
    broker: str = Field("*", description="broker version, as asked or as resolved")
    settings: str = Field("*", description="name of the settings")
    runtime: str = Field("*", description="auto, process or docker")

    @model_validator(mode="after")
    def _says_something(self) -> ExcludeSpec:
        if not self.model_fields_set:
            raise ValueError(
                "an exclusion needs at least one key, or it would leave out everything"
            )
        return self


class MatrixSpec(Part):
    """Scenarios and bugs by clients, brokers, settings and runtimes; each combination is a cell."""

    scenarios: list[str] = Field(
        default_factory=list,
        description="names of `brokerstorm list scenarios`, or files next to this one",
    )
    bugs: list[str] = Field(
        default_factory=list,
        description="names of `brokerstorm list bugs`, or files; played as `repro --quick`: client versions "
        "are those of the bug",
    )
    pairs: Literal["first", "all"] = Field("first", description="pairs of versions of each bug")
    clients: dict[Name, list[Version]] = Field(
        default_factory=dict,
        description="client library -> versions; one library is varied at a time, scenarios without it run "
        "as they are. `latest`: the newest release; `latest-minor`: the newest of the major version that "
        "comes with brokerstorm; `>=2.14`: the newest of each minor version from 2.14 on; `dir:PATH`: a "
        "build of your own, relative to this file",
    )
    brokers: dict[str, list[Version]] = Field(
        default_factory=dict, description="system -> broker versions; words as for clients"
    )
    settings: dict[Name, dict[str, Option | dict[str, Any] | list[Any]]] = Field(
        default_factory=dict,
        description="by a name of your own: scenario keys and values, as of `--set`",
    )
    runtimes: list[Runtime] = Field(["auto"], min_length=1, description="how brokers run")
    rounds: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="seeds a cell each night, default 1; of a bug: rounds of the affected version at most, "
        "default 3",
    )
    seeds: list[Annotated[int, Field(ge=0, le=2**63 - 1)]] = Field(
        default_factory=list, description="the same seeds every night, instead of `rounds` new ones"
    )
    priority: int = Field(0, ge=-100, le=100, description="higher runs first, and is left out last")
    control: bool = Field(
        False,
        description="these cells tell what the machine does: what shows here too is not the brokers'",
    )
    exclude: list[ExcludeSpec] = Field(
        default_factory=list, description="combinations to leave out"
    )


def _corpus(text: str) -> str:
    parts = PurePosixPath(text).parts
    if not text or text.startswith(("/", "~")) or ".." in parts:
        raise ValueError("must be a folder below the one of this file, such as corpus/franz-go")
    return text


class HuntSpec(Part):
    """A hunt for unknown defects, as `brokerstorm hunt`; each is a cell of its own."""

    client: str = Field(
        "",
        description="`NAME` or `NAME@VERSION`, with the words for versions of `cells`; empty = the clients "
        "of the scenario",
    )
    scenario: str = Field(
        "",
        description="the scenario that it begins with; empty = a short load without faults",
    )
    budget: Seconds = Field(gt=0, description="time for its rounds: `45m`")
    corpus: Annotated[str, AfterValidator(_corpus)] | None = Field(
        None,
        description="folder of its corpus, relative to this file; default: a folder in the folder of runs. "
        "Its scenarios are played first, every night",
    )
    known: list[str] = Field(default_factory=list, description="classes of anomalies to ignore")
    reference: str = Field(
        "", description="client that what is found is played with, too: `NAME@VERSION` or `none`"
    )
    priority: int = Field(0, ge=-100, le=100, description="as of `cells`")

    @model_validator(mode="after")
    def _begins_somewhere(self) -> HuntSpec:
        if not (self.client or self.scenario):
            raise ValueError("needs client or scenario")
        return self


class Suite(Part):
    """One suite file."""

    name: Name = Field(
        description="nights are named after it, and the history knows it by this name"
    )
    about: str = Field("", description="description in one line")
    budget: Seconds | None = Field(
        None, description="time for all cells; cells that would not fit do not run and are listed"
    )
    fail_on: FailOn = Field(
        "any", description="which red cells make the exit code 1: any, or new ones only"
    )
    keep: KeepSpec | None = Field(
        None,
        description="data that is kept of nightly runs, applied after each one; default: everything",
    )
    cells: list[MatrixSpec] = Field(default_factory=list, description="one matrix or several")
    hunts: list[HuntSpec] = Field(
        default_factory=list, description="hunts for unknown defects, each a cell of its own"
    )

    @model_validator(mode="after")
    def _has_cells(self) -> Suite:
        if not (self.cells or self.hunts):
            raise ValueError("needs cells or hunts")
        return self
