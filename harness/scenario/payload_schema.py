"""Bodies by a schema file: ``payload: {template: {id: "{id}", total: 5}, avro: order.avsc}``.

The values are encoded once, when the scenario is read. The body holds the lengths of its texts, so
every place has a fixed width in it: producers fill in characters, and need no library of Avro or
Protobuf.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from harness.errors import EnvironmentNotReady, UsageError, did_you_mean
from harness.invocation import how_to_install_extra
from harness.rundir import path_below, read_bytes, read_text
from harness.scenario.avro_schema import load_avro_schema
from harness.scenario.model import Scenario
from harness.scenario.payload import (
    LATIN_1,
    PLACE,
    Size,
    check_places,
    payload_schema,
    payload_sizes,
)

#: Characters of each place. An id of 40 has room for any producer and lane, and 10^18 messages.
WIDTHS: Final = {"id": 40, "n": 20, "lane": 10, "producer": 10}
AT: Final = ("load", "payload")
_EXTRA: Final = "schemas"
_MOST_BYTES: Final = 1_000_000
_COMPILE_S: Final = 60.0


def with_payload_schema(scenario: Scenario) -> Scenario:
    """The scenario with the body of ``load.payload`` encoded, if a schema file is named there.

    Raises:
        UsageError: the schema file cannot be used, or the values do not fit it.
        EnvironmentNotReady: the library of the format is not installed.
    """
    if not payload_schema(scenario.load.payload):
        return scenario
    payload = encoded_payload(scenario.load.payload, scenario.folder)
    return scenario.model_copy(
        update={"load": scenario.load.model_copy(update={"payload": payload})}
    )


def encoded_payload(payload: Size, folder: Path) -> Size:
    """The payload with its body encoded: a template with a character for each byte. A payload
    without a schema file is returned as it is.

    Args:
        folder: the path of the file is relative to it.

    Raises:
        UsageError: the schema file cannot be used, or the values do not fit it.
        EnvironmentNotReady: the library of the format is not installed.
    """
    kind = payload_schema(payload)
    if not kind or not isinstance(payload, Mapping):
        return payload
    path = path_below(folder, payload[kind])
    places: Counter[str] = Counter()
    values = _marked(payload["template"], places)
    name = payload.get("message", "")
    body = _protobuf_body(path, name, values) if name else _avro_body(path, values)
    made: Size = {"template": _with_places(body.decode(LATIN_1), places), "charset": LATIN_1}
    try:
        payload_sizes(made)
    except ValueError as error:
        raise UsageError(f"the encoded body cannot be used: {error}") from error
    return made


def _with_places(text: str, places: Counter[str]) -> str:
    """The encoded body with its places instead of their marks.

    Raises:
        UsageError: a place got lost, or bytes of another field would be taken for a place.
    """
    found = Counter({place: text.count(_mark(place)) for place in WIDTHS})
    if lost := sorted((places - found).keys()):
        raise UsageError(f"{{{lost[0]}}} must be in a field that is a text (string)")
    other = PLACE.search(text)
    more = sorted((found - places).keys())
    if other or more:
        shown = other[0] if other else f"the mark of {{{more[0]}}}"
        raise UsageError(
            f"the encoded body has {shown} where the template has no place, and workers would fill "
            "it in: change the values next to it, or a default of the schema"
        )
    for place in places:
        text = text.replace(_mark(place), f"{{{place}:{WIDTHS[place]}}}")
    return text


def _mark(place: str) -> str:
    """A text as long as the place, which no other field has."""
    return hashlib.sha256(place.encode()).hexdigest()[: WIDTHS[place]]


def _marked(value: Any, places: Counter[str]) -> Any:
    """The values with a mark for each place; ``places`` is counted up."""
    if isinstance(value, Mapping):
        return {_marked(key, places): _marked(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [_marked(each, places) for each in value]
    if not isinstance(value, str):
        return value
    try:
        check_places(value, WIDTHS, padded=())
    except ValueError as error:
        raise UsageError(str(error)) from error
    places.update(found[1] for found in PLACE.finditer(value))
    return PLACE.sub(lambda found: _mark(found[1]), value)


def _library(name: str, kind: str) -> Any:
    """Import a library of the extra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise EnvironmentNotReady(
            f"load.payload.{kind}: needs the Python package {name.partition('.')[0]}, "
            "which is not installed",
            hint=how_to_install_extra(_EXTRA),
        ) from error


def _line(error: Exception) -> str:
    """The text of an error of a library in one short line, with places as they were written."""
    text = " ".join(str(error).split()) or type(error).__name__
    for place in WIDTHS:
        text = text.replace(_mark(place), f"{{{place}}}")
    return text[:300]


# ----- Avro ---------------------------------------------------------------------------------------


def _avro_body(path: Path, values: Any) -> bytes:
    """The values in Avro's binary encoding, without a header."""
    fastavro = _library("fastavro", "avro")
    try:
        schema = load_avro_schema(fastavro, path)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path} is not an Avro schema: {_line(error)}") from error
    out = io.BytesIO()
    try:
        fastavro.validate(values, schema)
        fastavro.schemaless_writer(out, schema, values, strict_allow_default=True)
    except Exception as error:
        raise UsageError(
            f"the template does not fit {path.name}: {_of_validation(error)}"
        ) from error
    return out.getvalue()


def _of_validation(error: Exception) -> str:
    """The first field that does not fit, of an error of fastavro."""
    problems = getattr(error, "errors", None)
    return _line(problems[0] if problems else error)


# ----- Protobuf -----------------------------------------------------------------------------------


def _protobuf_body(path: Path, name: str, values: Any) -> bytes:
    """The values in Protobuf's binary encoding. Fields have the names of the schema or of its JSON
    form; bytes are written in base64."""
    json_format = _library("google.protobuf.json_format", "protobuf")
    descriptors = _library("google.protobuf.descriptor_pb2", "protobuf")
    pools = _library("google.protobuf.descriptor_pool", "protobuf")
    factory = _library("google.protobuf.message_factory", "protobuf")
    content = _compiled(path) if path.suffix == ".proto" else read_bytes(path, _MOST_BYTES)
    pool, known = pools.DescriptorPool(), []
    try:
        files = descriptors.FileDescriptorSet.FromString(content).file
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
            prefix = f"{file.package}." if file.package else ""
            known += [prefix + each.name for each in file.message_type]
    except Exception as error:
        raise UsageError(f"{path} is not a set of descriptors: {_line(error)}") from error
    if not known:
        raise UsageError(f"{path} has no message type")
    try:
        message = factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    except KeyError:
        raise UsageError(
            f"{path} has no message type {name!r}; {did_you_mean(name, known)}"
        ) from None
    try:
        json_format.ParseDict(values, message, descriptor_pool=pool)
        body: bytes = message.SerializeToString(deterministic=True)
    except Exception as error:
        raise UsageError(
            f"the template does not fit {name} of {path.name}: {_line(error)}"
        ) from error
    return body


def _compiled(path: Path) -> bytes:
    """Compile a .proto file, with protoc of this machine or of grpcio-tools."""
    read_text(path, _MOST_BYTES)  # names what is wrong with the file
    # protoc takes a path that begins with - for an option, and one with @ for a file of options.
    file = path.absolute()
    if protoc := shutil.which("protoc"):
        compiler = [protoc]
    elif find_spec("grpc_tools"):
        compiler = [sys.executable, "-P", "-m", "grpc_tools.protoc"]
    else:
        raise EnvironmentNotReady(
            f"load.payload.protobuf: {path.name} needs protoc, which is not installed",
            hint=how_to_install_extra(_EXTRA),
        )
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        options = [f"-I{file.parent}", "--include_imports", f"--descriptor_set_out={made}"]
        try:
            done = subprocess.run(
                [*compiler, *options, str(file)],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=_COMPILE_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{path} cannot be compiled: {_line(error)}") from error
        if done.returncode:
            first = next(iter(done.stderr.strip().splitlines()), "protoc failed")
            raise UsageError(f"{path} cannot be compiled: {first[:300]}")
        try:
            return made.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{path} cannot be compiled: {' '.join(compiler)} made no set of descriptors "
                f"({error.strerror}); make one yourself, and name it"
            ) from error
