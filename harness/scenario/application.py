"""The section ``applications``: programs of the user that read a topic and write another."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.connections.secret import SecretSource
from harness.durations import Seconds
from harness.expressions import first_group
from harness.scenario.part import Name, Part, must_match
from harness.scenario.sql_output import keys_problem
from harness.sizes import Size

#: Place of ``run`` and ``env`` -> its meaning. ``topic:NAME`` is one more.
PLACES: Final = {
    "bootstrap": "the addresses of the brokers",
    "instance": "the number of the instance, from 1",
    "group": "the name of the consumer group at the brokers, which differs in every run",
    "endpoint": "the URL that takes outputs, with `to: {http: true}`",
    "database": "the URL of its database without a password, with `to: {sql: URL}`",
    "database-password": "the password of that database; in `env` only",
    "folder": "a folder of the instance, which stays the same when it is restarted",
    "shared": "a folder that all instances share, which is new in every run",
    "python": "the Python that runs brokerstorm, or the one that has the key `packages`",
    "java": "the Java that brokers run on",
    "jars": "the class path of the key `jars`",
    "protocol": "Kafka's security.protocol, such as PLAINTEXT or SASL_SSL",
    "ca": "the file (PEM) of the authority that brokers are known by; empty without TLS",
    "certificate": "the file (PEM) of the client's certificate; empty without one",
    "key": "the file (PEM) of its key; empty without one",
    "mechanism": "the SASL mechanism; empty without authentication",
    "user": "the user's name; empty without authentication",
    "password": "the user's password; in `env` only",
}
TOPIC: Final = "topic:"
#: Places that are paths of programs of this machine, which no container has.
OF_THIS_MACHINE: Final = ("python", "java", "jars")
#: Places that arguments must not have.
SECRETS: Final = ("password", "database-password")
#: A doubled brace, a place, or a brace that is neither.
BRACES: Final = re.compile(
    r"(?P<double>\{\{|\}\})|\{(?P<place>[A-Za-z0-9._:-]+)\}|(?P<single>[{}])"
)
_VARIABLE: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")
#: A pattern of paths without a folder above, or a hidden one.
_FILE: Final = r"^[A-Za-z0-9_*?-][A-Za-z0-9_.*?-]*(/[A-Za-z0-9_*?-][A-Za-z0-9_.*?-]*)*$"
#: A JSON pointer (RFC 6901) to something in a document.
_POINTER: Final = re.compile(r"((/([^/~\x00]|~[01])+)+)?")
#: Files of rows.
PARQUET: Final = ".parquet"
#: A package of Python at one version, as pip takes it.
_PACKAGE: Final = (
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*\])?==[0-9][0-9A-Za-z.!+_-]*$"
)
#: A reference of a Docker image: with a registry, a tag and a digest, or without.
_IMAGE: Final = r"^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$"
#: Coordinates of Maven, as `harness.toolchains.jars` takes them.
_JAR: Final = r"^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){2}$"
#: What ``ready.http`` may ask.
_OWN_URL: Final = re.compile(r"http://(127\.0\.0\.1|localhost)(:(?P<port>\d{1,5}))?(/\S*)?")
_SIGNALS: Final = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
Text = Annotated[str, Field(max_length=10_000)]
FilePattern = Annotated[
    str,
    Field(pattern=_FILE, max_length=200),
    must_match(
        _FILE, "a pattern of files below {folder}, such as *.jsonl, without .. and a / first"
    ),
]
Image = Annotated[
    str,
    Field(pattern=_IMAGE),
    must_match(_IMAGE, "the name of a Docker image, such as billing:1.0"),
]
Jar = Annotated[
    str,
    Field(pattern=_JAR),
    must_match(_JAR, "group:artifact:version, such as org.apache.kafka:kafka-streams:4.1.2"),
]
Package = Annotated[
    str,
    Field(pattern=_PACKAGE, max_length=200),
    must_match(_PACKAGE, "a package at one version, such as nats-py==2.16.0"),
]
Problem = tuple[tuple[str | int, ...], str]


class ReadySpec(Part):
    """How to see that an instance is ready: `log`, `tcp` or `http`."""

    log: Text = Field("", description="a line of its stdout or stderr contains this text")
    tcp: int | None = Field(
        None, ge=1, le=65535, description="it accepts connections at 127.0.0.1 here"
    )
    http: Text = Field(
        "", description="this URL of the machine itself answers with a status below 400"
    )
    within: Seconds = Field(
        60.0, gt=0, description="time limit, after which the run ends with an error"
    )

    @field_validator("http")
    @classmethod
    def _is_of_this_machine(cls, url: str) -> str:
        found = _OWN_URL.fullmatch(url)
        if url and (found is None or int(found["port"] or 80) > 65535):
            raise ValueError("must be a URL of this machine such as http://127.0.0.1:8080/health")
        return url

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(map(bool, (self.log, self.tcp, self.http))) != 1:
            raise ValueError("needs one of log, tcp, http")
        return self


class StopSpec(Part):
    """How an instance is asked to end."""

    signal: Literal[_SIGNALS] = Field("TERM", description="the signal that it is sent")  # type: ignore[valid-type]
    within: Seconds = Field(10.0, gt=0, description="time until SIGKILL")

    @property
    def number(self) -> int:
        """The number of the signal on this system."""
        return int(getattr(signal, f"SIG{self.signal}"))


class OutputSpec(Part):
    """Where the outputs of an application are found; one of the keys."""

    topic: Name | None = Field(
        None, description="topic that it writes; nothing else may write or read it"
    )
    file: FilePattern | None = Field(
        None,
        description="files below `{folder}` of each instance, such as `*.jsonl`; each line is an output. "
        "Each row of a file whose name ends in `.parquet` is one",
    )
    http: bool = Field(
        False,
        description="requests (POST, PUT) to the place `{endpoint}`; each one that is answered is an output",
    )

    sql: Text | None = Field(
        None,
        description="URL (of SQLAlchemy) of a database, without a password; each row of `query` is an "
        "output. It may have the place `{shared}`; paths of SQLite begin at `start_in`",
    )
    query: Text = Field(
        "",
        description="SELECT that returns a row for each output, read when the load is over; `:group` has the "
        "name of the consumer group, which differs in every run",
    )
    password: SecretSource | None = Field(
        None, description="password of the database: `{env: NAME}` or `{file: PATH}`"
    )
    time: Text = Field(
        "",
        description="column of the query with the time when the output was stored: a timestamp (UTC if it "
        "names no zone), or milliseconds since 1970",
    )
    position: Text = Field(
        "",
        description="column of the query with a whole number that says in which order rows were stored",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = (self.topic, self.file, self.http, self.sql is not None)
        if sum(map(bool, given)) != 1:
            raise ValueError("needs one of topic, file, http, sql")
        others = {"password": self.password, "time": self.time, "position": self.position}
        if problem := keys_problem(self.sql, self.query, others):
            raise ValueError(problem)
        return self


class InstanceLimitsSpec(Part):
    """What one instance gets of the machine, with its children."""

    cpu: Annotated[float, Field(gt=0, le=1024)] | None = Field(
        None, description="cores: 0.5 is half of one"
    )
    memory: Size | None = Field(
        None,
        description="bytes, page cache included; the kernel kills an instance that needs more",
    )


class IdentitySpec(Part):
    """How an output names its input; one of the keys. The text is `PRODUCER/LANE/SEQUENCE`, as
    `trace` takes it."""

    header: Text = Field("", description="header (pulsar: property) of the output with the text")
    json_: Text = Field(
        "", alias="json", description="pointer to the text in a JSON value: `/order/id`"
    )
    key: bool = Field(False, description="the key of the output is the text")
    regex: Text = Field("", description="expression whose first group is the text in the value")
    column: Text = Field("", description="column of the query or of the Parquet file with the text")

    @field_validator("json_")
    @classmethod
    def _is_pointer(cls, text: str) -> str:
        if not _POINTER.fullmatch(text):
            raise ValueError("must be a JSON pointer such as /order/id")
        return text

    @field_validator("regex")
    @classmethod
    def _is_expression(cls, text: str) -> str:
        if text:
            first_group(text)
        return text

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = self.model_dump(by_alias=True)
        given = [way for way, value in ways.items() if value]
        if len(given) > 1:
            raise ValueError(f"has {' and '.join(given)}: write one of them")
        if not given:
            raise ValueError(f"needs one of {', '.join(ways)}")
        return self


class ApplicationSpec(Part):
    """``instances`` processes of a program of the user, which makes outputs of the messages of a
    topic."""

    run: list[Text] = Field(
        default_factory=list,
        max_length=1000,
        description="program and arguments, started in the folder `start_in`; places such as `{bootstrap}`, "
        "`{topic:NAME}`, `{group}`, `{instance}` and `{folder}` are filled in. Unset: with `--cluster FILE`, "
        "you start the application yourself",
    )
    start_in: Text = Field(
        ".",
        min_length=1,
        description="folder in which `run` is started, relative to the scenario's folder; paths of `to` "
        "begin there, too",
    )
    image: Image | None = Field(
        None,
        description="Docker image with the program, such as `billing:1.0` (`--runtime docker`); `run` is "
        "then what follows the image in `docker run`. Containers use the network of this machine",
    )
    jars: list[Jar] = Field(
        default_factory=list,
        max_length=100,
        description="Maven coordinates that the program needs, such as "
        "`org.apache.kafka:kafka-streams:4.1.2`; downloaded once, with what they depend on",
    )
    packages: list[Package] = Field(
        default_factory=list,
        max_length=100,
        description="Python packages that the program needs, such as `nats-py==2.16.0`; installed once, into "
        "an environment of their own, whose Python is the place `{python}`",
    )
    env: dict[str, str | bool | int | float] = Field(
        default_factory=dict,
        description="environment variables, with the same places and `{password}`; `true` is the text true",
    )
    instances: int = Field(1, ge=1, le=64, description="processes")
    ready: ReadySpec | None = Field(
        None, description="how to see that an instance is ready; unset: as soon as its process runs"
    )
    stop: StopSpec = Field(default_factory=StopSpec, description="how an instance is asked to end")
    limits: InstanceLimitsSpec = Field(
        default_factory=InstanceLimitsSpec,
        description="CPU and memory of an instance; unset: no limit",
    )
    restarts: Literal["always", "never"] = Field(
        "never", description="an instance that ends by itself restarts, or stays away"
    )
    from_: Name = Field(alias="from", description="topic that it reads")
    to: OutputSpec = Field(
        description="where its outputs are: `{topic: NAME}`, `{file: PATTERN}`, `{http: true}` or "
        "`{sql: URL, query: SELECT}`"
    )
    group: Name | None = Field(
        None,
        description="its consumer group, for the place `{group}`; unset: named as the application",
    )
    identity: IdentitySpec | None = Field(
        None,
        description="how an output names its input; unset: its value begins with the input's value",
    )
    makes: Literal["one", "at-most-one", "any"] = Field(
        "one", description="outputs that the application makes of each input"
    )
    promise: Literal["exactly-once", "at-least-once", "at-most-once"] = Field(
        "at-least-once",
        description="what its authors say of inputs while it is killed and restarted",
    )
    order: Literal["partition", "key", "none"] = Field(
        "none",
        description="first outputs of the inputs of one partition, or of one key, keep their order in each "
        "partition that is written",
    )

    @field_validator("run")
    @classmethod
    def _has_a_program(cls, run: list[str]) -> list[str]:
        if not run:
            raise ValueError(
                "must begin with a program; leave the key out if you start it yourself"
            )
        return run

    @field_validator("env")
    @classmethod
    def _are_variables(
        cls, env: dict[str, str | bool | int | float]
    ) -> dict[str, str | bool | int | float]:
        for name in env:
            if not _VARIABLE.match(name):
                raise ValueError(f"not a name of an environment variable: {name!r}")
        return env


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text of ``run`` or ``env`` with its places filled in; ``{{`` and ``}}`` become braces.

    Raises:
        KeyError: a place without a value; `application_problems` finds these before.
    """

    def meant(found: re.Match[str]) -> str:
        return values[found["place"]] if found["place"] else found[0][0]

    return BRACES.sub(meant, text)
