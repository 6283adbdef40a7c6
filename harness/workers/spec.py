"""Reads a worker folder's ``worker.toml``, checked key by key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from harness.connections.security import Security
from harness.errors import UsageError
from harness.log_stamp import Stamp
from harness.rundir import Document, read_text
from harness.scenario.part import Name, Part
from harness.systems import SYSTEMS
from harness.toolchains.own_builds import is_own
from harness.validation import dotted, problems_of, shown
from harness.workers.facts import CodecFacts, SettingFacts, Versions
from harness.workers.security import SecureOptions, SecurityWords

FILE: Final = "worker.toml"
#: Where the programs of the workers that come with brokerstorm are, and the kits of their
#: languages.
PROGRAMS: Final = Path(__file__).parents[2] / "workers"
Role = Literal["producer", "consumer", "pipeline", "audit"]
Ability = Literal[
    "calls",
    "results",
    "receive",
    "settle",
    "threads",
    "payload",
    "filling",
    "headers",
    "header_values",
    "key",
    "rate",
    "turns",
    "transactions",
    "deliver_after",
    "commit",
    "start",
    "pattern",
    "reader",
    "pauses",
    "seeks",
]
#: What the kit of every language does for a producer, whatever the client: one place for all their
#: workers.
KIT_SUPPORTS: Final[Mapping[Ability, tuple[str, ...]]] = {
    "payload": ("fixed", "range", "mixed"),
    "filling": ("alike", "compressible"),
    "rate": ("constant", "profile"),
    "turns": ("equal", "table"),
    "key": ("numbered", "template"),
}
_HINT: Final = "docs/howto/add-a-worker.md has every key"


class PythonBuild(Part):
    """``[python]``: an environment of its own for every version but the one installed with
    brokerstorm.

    Attributes:
        default: version when a scenario names none; empty = the one installed with brokerstorm.
        packages: what pip installs; empty = the library at the version.
        imports: modules of the client that the worker imports; empty = the library's name.
    """

    default: str = ""
    packages: list[str] = Field(default_factory=list)
    imports: list[str] = Field(default_factory=list)


class JavaClient(Part):
    """One of ``[[java.clients]]``; of several of a name the last that is not newer applies."""

    name: str
    from_: str = Field("0", alias="from")
    java: int = 11
    coordinates: list[str] = Field(min_length=1)
    exclude: list[str] = Field(default_factory=list)
    renames: dict[str, str] = Field(default_factory=dict)
    without: list[str] = Field(default_factory=list)


class JavaBuild(Part):
    """``[java]``: what `harness.workers.java_build` makes a version of."""

    default: str
    jvm: list[str] = Field(default_factory=list)
    clients: list[JavaClient] = Field(min_length=1)


class GoModule(Part):
    """One of ``modules``: the path of the client's module from a version on."""

    path: str
    from_: str = Field("0", alias="from")


class GoBuild(Part):
    """``[go]``: what `harness.workers.go_build` makes a version of.

    ``tags``: build constraint of sources -> the first version of the client that they are for.
    """

    default: str
    source_path: str
    modules: list[GoModule] = Field(min_length=1)
    tags: dict[str, str] = Field(default_factory=dict)


class RustBuild(Part):
    """``[rust]``: what `harness.workers.rust_build` makes a version of.

    Attributes:
        crate: the client's package.
        from_: the first version that the sources are for.
        features: of the worker's package -> the first version of the client that each is for.
        along: packages that a release of the client takes at the version that it names, not at the
            newest that would do: its library in C.
    """

    default: str
    crate: str
    from_: str = Field("0", alias="from")
    along: list[str] = Field(default_factory=list)
    features: dict[str, str] = Field(default_factory=dict)


class CommandBuild(Part):
    """``[other]``: a language without a toolchain of ours.

    Attributes:
        command: what starts the worker; ``{folder}`` its folder, ``{version}`` the client's,
            ``{build}`` where ``build`` left what it made.
        build: run once for a version, in the empty folder ``{build}``; none = nothing to make.
        build_own: the same for a build of the user's (``dir:PATH``), of which ``{source}`` is a
            copy.
        released: prints the versions that there are as a list in JSON; none: they are not known.
    """

    default: str
    command: list[str] = Field(min_length=1)
    build: list[str] = Field(default_factory=list)
    build_own: list[str] = Field(default_factory=list)
    released: list[str] = Field(default_factory=list)


class Contract(Part):
    """The client's own options for what contract checks and benchmarks ask for.

    A check that the client has no options for is skipped. In the values, ``{ms}``, ``{s}``,
    ``{bytes}`` and ``{count}`` are replaced by the number that is asked for.

    Attributes:
        linger: a producer gathers messages for that long.
        durable: acks of all replicas, idempotent.
        largest_message: the client itself refuses messages of more bytes.
        send_timeout: the client gives a send up after that long.
        gives_up: the client gives brokers or a topic up that do not answer for that long.
        queue: the client takes that many messages before it is full.
        producer, consumer: every one of the checks is given these.
        topic: native settings of the topics of every check, for a client that needs others than the
            usual ones.
        shared: a shared subscription (Pulsar) that hands refused messages out again after that
            long.
        dies_refused: a producer gives itself up when brokers refuse a message.
        fenced_producer, fenced_consumer: a second one with them takes the place of the first, for
            good.
        misspelt: an option that the client does not have, and one that the refusal should name.
        older_version: checked, too.
    """

    linger: dict[str, str] = Field(default_factory=dict)
    durable: dict[str, str] = Field(default_factory=dict)
    largest_message: dict[str, str] = Field(default_factory=dict)
    send_timeout: dict[str, str] = Field(default_factory=dict)
    gives_up: dict[str, str] = Field(default_factory=dict)
    queue: dict[str, str] = Field(default_factory=dict)
    producer: dict[str, str] = Field(default_factory=dict)
    consumer: dict[str, str] = Field(default_factory=dict)
    topic: dict[str, str] = Field(default_factory=dict)
    shared: dict[str, str] = Field(default_factory=dict)
    dies_refused: dict[str, str] = Field(default_factory=dict)
    fenced_producer: dict[str, str] = Field(default_factory=dict)
    fenced_consumer: dict[str, str] = Field(default_factory=dict)
    misspelt: list[str] = Field(default_factory=list, max_length=2)
    older_version: str = ""

    def words(self, name: str, **numbers: float) -> dict[str, str]:
        """One of the tables, with the numbers filled in."""
        filled = dict(getattr(self, name))
        for place, number in numbers.items():
            filled = {
                option: value.replace(f"{{{place}}}", f"{number:g}")
                for option, value in filled.items()
            }
        return filled


class WorkerSpec(Part):
    """One worker folder.

    Attributes:
        library: the client library; what users write in a scenario.
        system: the message system it talks to, the first of several.
        on: other systems that it talks to -> the keys that are different there. A table of
            ``supports`` is replaced value by value, every other key as a whole. `on_system` returns
            the worker as it is there.
        language: how it is built and started; one of the toolchains of this package.
        entry: script, main class or main file; none for ``other``.
        kit: its program uses the kit of its language, so it supports `KIT_SUPPORTS`, too.
        checks_options: it knows ``--check-options`` (docs/worker-protocol.md).
        options: by role, native options the worker sets unless the scenario does.
        transactional: options of a producer in transactions, unless the scenario sets them.
        reserved: options that the harness sets itself; a scenario that sets one is refused.
        instead: option of `reserved` -> which key of a scenario has its effect, or what is always
            so.
        left_aside: options of `reserved` that every application's file has: in a file of the user's
            they are named and left aside.
        own_names: by role, the option that gives a client a name which no other client may have: a
            static member of a group, a named producer of a topic.
        tools: commands it needs on PATH beyond brokerstorm itself and its toolchain.
        supports: by key of a producer or consumer, the values this worker can do; a key it leaves
            out has the values every worker can do.
        sets: by such a key of a consumer and value, the client's options that bring it about;
            ``{ms}`` is the value of `commit_every`.
        since: by such a key, the first version that can do more than that.
        values_since: by option and value (small letters), the first version that takes that value.
        brokers_from: the first brokers that it can talk to; empty = all.
        promises: what decides the client's promises; None = not stated, so they are not known.
        exposure: counters that it reports, and what each counts.
        release_notes: link to the notes of a version, with ``{version}`` in it; ``{client}`` where
            a worker has several clients. Empty: not known.
        codec: the option that says how a producer compresses, and the packages that a consumer
            needs to read it; None = not stated.
        says_died: the roles in which it says that its client gave itself up; without, the client
            cannot, or it is not known.
        watches_commits: its consumer sees the requests of its client, and says when a commit that
            the client confirmed was never sent.
        log_stamp: how lines of the client's log (stderr) begin (`harness.log_stamp`); empty = not
            stated, so `trace` cannot place them.
        security: its options for clusters that ask who clients are, or want TLS.
        variations: by role, sets of the client's options that a hunt draws from; the options of a
            set are set together, and an empty text removes one.
        quick: by role, short timeouts that a hunt begins with, so that a call that never ends and
            a dead member of a group show within seconds.
    """

    library: Name
    system: str
    on: dict[str, dict[str, Any]] = Field(default_factory=dict)
    about: str
    language: Literal["python", "java", "go", "rust", "other"]
    roles: list[Role] = Field(min_length=1)
    entry: str = ""
    versions: str
    options_are: str = ""
    tools: list[str] = Field(default_factory=list)
    kit: bool = False
    checks_options: bool = False
    options: dict[Role, dict[str, str]] = Field(default_factory=dict)
    transactional: dict[str, str] = Field(default_factory=dict)
    reserved: list[str] = Field(default_factory=list)
    instead: dict[str, str] = Field(default_factory=dict)
    left_aside: list[str] = Field(default_factory=list)
    own_names: dict[Role, str] = Field(default_factory=dict)
    supports: dict[Ability, list[str]] = Field(default_factory=dict)
    sets: dict[Literal["commit", "start"], dict[str, dict[str, str]]] = Field(default_factory=dict)
    since: dict[Ability, str] = Field(default_factory=dict)
    values_since: dict[str, dict[str, str]] = Field(default_factory=dict)
    brokers_from: str = ""
    promises: Part | None = None
    exposure: dict[str, str] = Field(default_factory=dict)
    release_notes: str = ""
    codec: CodecFacts | None = None
    says_died: list[Role] = Field(default_factory=list)
    watches_commits: bool = False
    log_stamp: str = ""
    contract: Contract = Field(default_factory=Contract)
    variations: dict[Literal["producer", "consumer"], list[dict[str, str]]] = Field(
        default_factory=dict
    )
    quick: dict[Literal["producer", "consumer"], dict[str, str]] = Field(default_factory=dict)
    security: SecurityWords = Field(default_factory=SecurityWords)
    python: PythonBuild = Field(default_factory=PythonBuild)
    java: JavaBuild | None = None
    go: GoBuild | None = None
    rust: RustBuild | None = None
    other: CommandBuild | None = None

    _folder: Path = PrivateAttr(default=Path())
    _elsewhere: dict[str, WorkerSpec] = PrivateAttr(default_factory=dict)

    @property
    def systems(self) -> tuple[str, ...]:
        """Every message system that it talks to."""
        return (self.system, *(name for name in self.on if name != self.system))

    def on_system(self, system: str) -> WorkerSpec:
        """The worker as it is on one of its systems; itself for any other."""
        return self._elsewhere.get(system, self)

    def first_able(self, key: Any, client_version: str) -> str:
        """The first version with more by this key than every worker has; empty = this one has
        it."""
        return _first_after(self.since.get(key, ""), client_version)

    def first_taking(self, option: str, value: Any, client_version: str) -> str:
        """The first version whose option takes this value; empty = this one does, as far as is
        stated."""
        first = self.values_since.get(option, {}).get(str(value).lower(), "")
        return _first_after(first, client_version)

    def first_brokers(self, option: str, value: Any, version: str) -> str:
        """The first brokers that can do what this asks for; empty = this version (itself empty: the
        default) can, or it is not known."""
        first = SYSTEMS[self.system].options_since.get((option, str(value).lower()), "")
        return self._newer_brokers(first, version)

    def oldest_brokers(self, version: str) -> str:
        """Return the first brokers that it can talk to; empty = this version (itself empty: the
        default) is one of them, or it is not known."""
        return self._newer_brokers(self.brokers_from, version)

    def _newer_brokers(self, first: str, version: str) -> str:
        asked = version or SYSTEMS[self.system].version
        return "" if is_own(asked) else _first_after(first, asked)

    @classmethod
    def read(cls, folder: Path, raw: Document | None = None) -> WorkerSpec:
        """The ``worker.toml`` of a folder; ``raw``: its data, if they are known already.

        Raises:
            UsageError: unreadable, or a key or value that cannot be used; one line that says which.
        """
        path = folder / FILE
        data = dict(_parsed(path) if raw is None else raw)
        made = cls._made(folder, path, data)
        for system, changes in made.on.items():
            if system not in SYSTEMS or system == made.system:
                known = ", ".join(name for name in SYSTEMS if name != made.system)
                raise UsageError(f"{path}: on.{system}: must be one of {known}", hint=_HINT)
            there = {**data, **changes, "system": system}
            there["on"] = {}
            own, changed = data.get("supports", {}), changes.get("supports", {})
            if isinstance(changed, dict):  # anything else is refused by the model
                there["supports"] = {**own, **changed}
            made._elsewhere[system] = cls._made(folder, path, there, f"on.{system}.")
            made._elsewhere[system]._elsewhere = {made.system: made}
        return made

    @classmethod
    def _made(cls, folder: Path, path: Path, data: Document, at: str = "") -> WorkerSpec:
        """The worker of one system; ``at``: the table with what is different there."""
        model = _MODELS.get(str(data.get("system")))
        if model is None:
            known, given = ", ".join(SYSTEMS), shown(data.get("system"))
            raise UsageError(f"{path}: system: must be one of {known}, got {given}", hint=_HINT)
        try:
            made = model.model_validate(data)
        except ValidationError as error:
            found = problems_of(model, error, data)
            raise UsageError.of_lines(
                (
                    f"{path}: {at}{dotted(location, 'file')}: {problem}"
                    for location, problem in found
                ),
                hint=_HINT,
            ) from None
        made._folder = folder
        return made

    @model_validator(mode="before")
    @classmethod
    def _supports_of_its_kit(cls, data: Any) -> Any:
        """Add what its kit supports to what the file states."""
        if not (isinstance(data, dict) and data.get("kit") is True):
            return data
        stated = data.get("supports", {})
        if not isinstance(stated, dict):
            return data
        whole = dict(stated)
        for key, values in KIT_SUPPORTS.items():
            more = stated.get(key, [])
            if isinstance(more, list):  # anything else is refused later
                whole[key] = [*values, *more]
        return {**data, "supports": whole}

    @field_validator("log_stamp")
    @classmethod
    def _says_when(cls, text: str) -> str:
        if text:
            Stamp(text)
        return text

    @model_validator(mode="after")
    def _is_whole(self) -> WorkerSpec:
        if self.language != "python" and getattr(self, self.language) is None:
            raise ValueError(f"language {self.language} needs a table [{self.language}]")
        if self.language != "other" and not self.entry:
            raise ValueError(f"language {self.language} requires entry: the program to start")
        for key in ("commit", "start"):
            for value in self.supports.get(key, [])[1:]:
                if value not in self.sets.get(key, {}):
                    raise ValueError(
                        f"supports.{key} has {value}, so sets.{key}.{value} must say by which "
                        "options"
                    )
        for name in self.promises.model_fields_set if self.promises is not None else ():
            facts = getattr(self.promises, name)
            if isinstance(facts, SettingFacts) and facts.default is None and not self._sets(facts):
                raise ValueError(
                    f"promises.{name} needs a default, or one of its options under [options]"
                )
        return self

    def _sets(self, facts: SettingFacts) -> bool:
        return any(option in own for own in self.options.values() for option in facts.options)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    @property
    def option_names(self) -> set[str]:
        """Every option of the client that its worker.toml names; the client has more."""
        names = {*self.reserved, *self.transactional, *(self.codec.options if self.codec else ())}
        names.update(option for options in self.options.values() for option in options)
        for facts in vars(self.promises).values() if self.promises else ():
            if isinstance(facts, SettingFacts):
                names.update(facts.options)
        for options in vars(self.contract).values():
            if isinstance(options, dict):
                names.update(options)
        names.update(name for sets in self.variations.values() for each in sets for name in each)
        names.update(name for options in self.quick.values() for name in options)
        return names

    def options_for(self, **asked: str) -> dict[str, str]:
        """The client's options that bring about what keys of a consumer ask for (`sets`)."""
        found: dict[str, str] = {}
        for key, value in asked.items():
            found |= self.sets.get(key, {}).get(value, {})  # type: ignore[call-overload]
        return found

    @property
    def security_options(self) -> set[str]:
        """Options that are set from what a cluster asks of clients."""
        return self.security.option_names

    def secure_options(self, security: Security | None) -> SecureOptions:
        """The client's options for what a cluster asks of clients.

        Raises:
            UsageError: the worker has no words for it.
            EnvironmentNotReady: a file of it cannot be read.
        """
        return self.security.options(security, self.library)

    def release_notes_of(self, version: str) -> str:
        """Link to the release notes of a version; empty where it is not known."""
        client, _, number = version.rpartition(" ")
        return self.release_notes.replace("{client}", client).replace("{version}", number)

    @property
    def default_version(self) -> str:
        """Version that is used when a scenario names none: what the folder was written for, or for
        Python what is installed with brokerstorm (empty when nothing does)."""
        build = self.python if self.language == "python" else getattr(self, self.language)
        return str(build.default) or installed_version(self.library)


def _first_after(first: str, client_version: str) -> str:
    return "" if Versions.model_validate({"from": first}).cover(client_version) else first


def _model_of(system: str, facts: type[BaseModel]) -> type[WorkerSpec]:
    fields: dict[str, Any] = {"promises": (facts | None, None)}
    return create_model(f"{system}-worker", __base__=WorkerSpec, **fields)


_MODELS: Final = {name: _model_of(name, system.worker_facts()) for name, system in SYSTEMS.items()}


def _parsed(path: Path) -> Document:
    try:
        return tomllib.loads(read_text(path))
    except UsageError as error:
        raise UsageError(str(error), hint=_HINT) from error
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply", hint=_HINT) from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}", hint=_HINT) from error


@cache
def installed_version(library: str) -> str:
    """Return the version of the Python package that is installed with brokerstorm; empty if there
    is none."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a client can be used as things are; a remedy when not.

    Attributes:
        fetched: its version is here, so there is one.
    """

    ok: bool
    detail: str
    remedy: str = ""
    fetched: bool = True
