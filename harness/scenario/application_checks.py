"""Checks of the section ``applications`` of a scenario."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import UsageError, did_you_mean
from harness.rundir import path_below, resolved
from harness.scenario.application import (
    BRACES,
    OF_THIS_MACHINE,
    PARQUET,
    PLACES,
    SECRETS,
    TOPIC,
    ApplicationSpec,
)
from harness.scenario.model import Scenario, native
from harness.scenario.payload import payload_template
from harness.systems import SYSTEMS

#: What is wrong with a key: its place, and the sentence.
Problem = tuple[tuple[str | int, ...], str]
_OF_DATABASE: Final = ("database", "database-password")
#: Ways to name an input that rows do not have.
_NOT_OF_ROWS: Final = ("header", "key")
#: Keys about processes that a run starts.
_OF_PROCESSES: Final = ("jars", "packages", "env", "ready", "stop", "limits", "restarts")


def application_problems(scenario: Scenario) -> Iterator[Problem]:
    """Each problem of the section ``applications`` as (key path, what is wrong; what is
    allowed)."""
    writers: dict[str, str] = {}
    for name, spec in scenario.applications.items():
        at = ("applications", name)
        if not SYSTEMS[scenario.system].runs_applications:
            able = ", ".join(name for name, each in SYSTEMS.items() if each.runs_applications)
            yield at, f"is not possible on {scenario.system} yet; applications are tested on {able}"
            continue
        yield from _name_problems(name, scenario)
        topics = list(_topic_problems(at, spec, scenario))
        yield from topics
        yield from _place_problems(at, spec, scenario)
        wrong = list(_folder_problems(at, spec, scenario))
        yield from wrong
        if spec.image:
            yield from _image_problems(at, spec)
        elif not spec.run:
            yield from _elsewhere_problems(at, spec, scenario)
        elif not wrong:
            folder = path_below(scenario.folder, spec.start_in)
            yield from _program_problems((*at, "run", 0), spec.run[0], folder)
        yield from _ready_problems(at, spec, scenario)
        if spec.identity is None and payload_template(scenario.load.payload):
            sentence = "is needed with a payload from a template, such as {json: /order/id}"
            yield (*at, "identity"), sentence
        yield from _row_problems(at, spec)
        if spec.makes == "any" and spec.order != "none":
            yield (*at, "order"), "has no meaning with makes: any; leave one of them out"
        if topics:
            continue
        if spec.to.topic and (other := writers.setdefault(spec.to.topic, name)) != name:
            yield (
                (*at, "to", "topic"),
                f"is written by application {other}; each writes a topic of its own",
            )
        yield from _exclusive_problems(name, spec, scenario)


def _ready_problems(
    at: tuple[str, ...], spec: ApplicationSpec, scenario: Scenario
) -> Iterator[Problem]:
    """Yield a problem if instances share a port: an answer does not say which of them is ready."""
    ready = spec.ready
    key = "tcp" if ready and ready.tcp else "http" if ready and ready.http else ""
    own = at[-1].replace(".", "_")
    targets = {f"client:{each}" for each in (own, f"application-{own}", "application")}
    scaled = [
        int(step["to"])
        for step in scenario.faults
        if step.get("target") in targets and str(step.get("to")).isdecimal()
    ]
    most = max([spec.instances, *scaled])
    if key and most > 1:
        up_to = "up to " if most > spec.instances else ""
        yield (*at, "ready", key), f"is one port, and there are {up_to}{most} instances: use log"


def _name_problems(name: str, scenario: Scenario) -> Iterator[Problem]:
    """A name that an instance of another application has, too."""
    own = name.replace(".", "_")
    for other in scenario.applications:
        if other == name:
            continue
        prefix, _, number = own.rpartition("-")
        alike = other.replace(".", "_")
        if own == alike or (number.isdecimal() and prefix == alike):
            sentence = f"is a name of an instance of application {other}, too; choose another one"
            yield ("applications", name), sentence


def _topic_problems(
    at: tuple[str, ...], spec: ApplicationSpec, scenario: Scenario
) -> Iterator[Problem]:
    for key, topic in ((("from",), spec.from_), (("to", "topic"), spec.to.topic)):
        if topic is None:
            continue
        if topic not in scenario.topics:
            yield (
                (*at, *key),
                f"is not declared under topics; {did_you_mean(topic, scenario.topics)}",
            )
        elif scenario.topics[topic].count > 1 or scenario.topics[topic].grows_to:
            yield (
                (*at, *key),
                "must be one topic that keeps its partitions: leave count and grows_to out",
            )
        elif SYSTEMS[scenario.system].removes_settled(native(scenario.topics[topic].config)):
            yield (
                (*at, *key),
                "removes messages once they are acknowledged; must be a topic that keeps them",
            )
    if spec.from_ == spec.to.topic:
        yield (*at, "to", "topic"), "is the topic that it reads; must be another topic"


def _elsewhere_problems(
    at: tuple[str, ...], spec: ApplicationSpec, scenario: Scenario
) -> Iterator[Problem]:
    """Check an application that the user starts: keys about its processes mean nothing."""
    if not SYSTEMS[scenario.system].names_group_members:
        able = ", ".join(name for name, each in SYSTEMS.items() if each.names_group_members)
        yield (*at, "run"), f"is required on {scenario.system}; it can be left out on {able}"
    for key in _OF_PROCESSES:
        if key in spec.model_fields_set:
            sentence = "has a meaning only with run; leave it out, or write the program into run"
            yield (*at, key), sentence
    for key in ("file", "http"):
        if getattr(spec.to, key):
            sentence = (
                "has a meaning only with run; write {topic: NAME} or {sql: URL, query: SELECT}"
            )
            yield (*at, "to", key), sentence


def _image_problems(at: tuple[str, ...], spec: ApplicationSpec) -> Iterator[Problem]:
    """Check an application in containers: an image has all that its program needs."""
    for key in ("jars", "packages"):
        if getattr(spec, key):
            yield (*at, key), "cannot be combined with image; put them into the image"


def _row_problems(at: tuple[str, ...], spec: ApplicationSpec) -> Iterator[Problem]:
    """Check what outputs that are rows need, and what only they can have."""
    identity = spec.identity
    has_rows = spec.to.sql is not None or (spec.to.file or "").endswith(PARQUET)
    if not has_rows:
        if identity and identity.column:
            sentence = f"has a meaning only with to: {{sql: URL}} or {{file: '*{PARQUET}'}}"
            yield (*at, "identity", "column"), sentence
        return
    if identity is None:
        sentence = "is needed where outputs are rows, such as {column: order_id}"
        yield (*at, "identity"), sentence
        return
    for key in _NOT_OF_ROWS:
        if getattr(identity, key):
            sentence = "is nothing that a row has; write {column: order_id}"
            yield (*at, "identity", key), sentence
    if spec.to.sql and spec.order != "none" and not spec.to.position:
        sentence = "needs to.position: the column that says in which order rows were stored"
        yield (*at, "order"), sentence


def _exclusive_problems(name: str, spec: ApplicationSpec, scenario: Scenario) -> Iterator[Problem]:
    """Only the application writes its output topic, only its own reader reads it, and it gets
    inputs."""
    sources = {
        producer: each
        for producer, each in scenario.load.producers.items()
        if spec.from_ in each.topics or not each.topics
    }
    if not sources:
        yield ("applications", name, "from"), f"gets no message: no producer writes {spec.from_}"
    for producer, each in sources.items():
        if spec.order == "key" and each.lanes != "key":
            sentence = f"needs keys: write lanes: key into load.producers.{producer}"
            yield ("applications", name, "order"), sentence
    load, to = scenario.load, spec.to.topic
    group = spec.group or name
    groups = {
        **{f"consumer {other}": each.group for other, each in load.consumers.items()},
        **{f"pipeline {other}": each.group or other for other, each in load.pipelines.items()},
        **{
            f"application {other}": each.group or other
            for other, each in scenario.applications.items()
            if other != name
        },
    }
    for other, its_group in groups.items():
        if its_group == group:
            sentence = (
                f"is the group of {other}, too: they would share the partitions; name another one"
            )
            yield ("applications", name, "group"), sentence
    if to is None:
        return
    rest = ", ".join(topic for topic in scenario.topics if topic != to)
    for producer, sending in load.producers.items():
        if not sending.topics or to in sending.topics:
            sentence = (
                f"must leave {to} out, which application {name} alone writes; others are {rest}"
            )
            yield ("load", "producers", producer, "topics"), sentence
    for consumer, reading in load.consumers.items():
        if reading.reads(to, to):
            sentence = (
                f"must leave {to} out, whose messages are not of a producer; others are {rest}"
            )
            yield ("load", "consumers", consumer, "topics"), sentence
    for pipeline, piped in load.pipelines.items():
        if to in (piped.from_, piped.to):
            yield (
                ("load", "pipelines", pipeline),
                f"must leave {to} out, which application {name} writes",
            )


def _place_problems(
    at: tuple[str, ...], spec: ApplicationSpec, scenario: Scenario
) -> Iterator[Problem]:
    texts: list[tuple[tuple[str | int, ...], str]] = []
    texts += [((*at, "run", number), text) for number, text in enumerate(spec.run)]
    texts += [((*at, "env", key), text) for key, text in spec.env.items() if isinstance(text, str)]
    for where, text in texts:
        if "\0" in text:
            yield where, "has a NUL character, which no program can be given"
        for found in BRACES.finditer(text):
            place = found["place"]
            if found["single"]:
                yield (
                    where,
                    f"has a single {found['single']}; write {{{{ and }}}} for braces that are not a place",
                )
                break
            if not place:
                continue
            if place.startswith(TOPIC):
                topic = place.removeprefix(TOPIC)
                if topic not in scenario.topics:
                    yield where, f"names topic {topic!r}; {did_you_mean(topic, scenario.topics)}"
            elif place not in PLACES:
                yield (
                    where,
                    f"has no place {{{place}}}; {did_you_mean(place, [*PLACES, TOPIC + 'NAME'])}",
                )
            elif place in OF_THIS_MACHINE and spec.image:
                yield where, f"has the place {{{place}}}, which is not in the image; leave it out"
            elif place == "endpoint" and not spec.to.http:
                yield (
                    where,
                    "has the place {endpoint} without to: {http: true}; write it, or leave it out",
                )
            elif place == "jars" and not spec.jars:
                yield (
                    where,
                    "has the place {jars} without the key jars; list Maven coordinates there",
                )
            elif place in _OF_DATABASE and spec.to.sql is None:
                yield where, f"has the place {{{place}}} without to: {{sql: URL}}; leave it out"
            elif place == "database-password" and spec.to.password is None:
                yield where, "has the place {database-password} without the key to.password"
            elif place in SECRETS and where[-2] == "run":
                yield (
                    where,
                    f"must not have {{{place}}}: everybody sees arguments; write it into env",
                )


def _folder_problems(
    at: tuple[str, ...], spec: ApplicationSpec, scenario: Scenario
) -> Iterator[Problem]:
    """Yield a problem if the folder in which a program is started is not there."""
    try:
        found = path_below(scenario.folder, spec.start_in)
        if not found.is_dir():
            sentence = f"is not a folder: {resolved(found)}; write a path relative to the scenario"
            yield (*at, "start_in"), sentence
    except (UsageError, OSError) as error:
        yield (*at, "start_in"), f"cannot be used: {error}"


def _program_problems(at: tuple[str | int, ...], program: str, folder: Path) -> Iterator[Problem]:
    """A program that this machine does not have."""
    if "{" in program:
        return
    found = shutil.which(str(folder / program)) if "/" in program else shutil.which(program)
    if found is None:
        where = f"in {folder.resolve()}" if "/" in program else "in PATH"
        yield (
            at,
            f"is not a program {where}; write a path relative to the scenario, or a program in PATH",
        )
