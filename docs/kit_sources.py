"""The sources of the workers' kits that are made from the code of the harness: the numbers of the
capture format (`harness/records.py`) in five languages, and the parts of a worker's spec
(`harness/contracts/worker.py`) in Go and Rust. The kits in Python, Java and JavaScript read keys by
name.
"""

from __future__ import annotations

import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import numpy as np
from pydantic.fields import FieldInfo

from harness import records
from harness.contracts import worker as specs

WORKERS: Final = Path(__file__).resolve().parent.parent / "workers"
MADE_NUMBERS: Final = "Made from harness/records.py by `make docs`; do not edit."
MADE_PARTS: Final = "Made from harness/contracts/worker.py by `make docs`; do not edit."


def kit_sources() -> dict[Path, str]:
    """Every generated source file and what it should hold."""
    rust, java = WORKERS / "rust_kit" / "src", WORKERS / "java_kit" / "brokerstorm" / "kit"
    return {
        WORKERS / "go_kit" / "layout.go": go_layout(),
        WORKERS / "go_kit" / "parts.go": go_parts(),
        WORKERS / "node_kit" / "numbers.js": node_numbers(),
        WORKERS / "python_kit" / "worker_kit" / "layouts.py": python_layouts(),
        java / "Layout.java": java_layout(),
        rust / "layout.rs": rust_layout(),
        rust / "parts.rs": rust_parts(),
    }


# ----- numbers of the capture format --------------------------------------------------------------

SIZES: Final = {
    "HEADER_BYTES": records.HEADER_BYTES,
    "TRAILER_BYTES": records.TRAILER_BYTES,
    "MIN_PAYLOAD_BYTES": records.MIN_PAYLOAD_BYTES,
    "SEGMENT_HEADER_BYTES": records.SEGMENT_HEADER_BYTES,
    "FORMAT_VERSION": records.FORMAT_VERSION,
}
#: The enumerations, and what each says. A worker writes no other kind of transaction or event.
ENUMS: Final[dict[type[IntEnum], str]] = {
    records.Kind: "Kinds of messages.",
    records.Outcome: "Outcomes of a send: exactly one each. 0: the client never answered.",
    records.Check: "What a reader found a payload to be.",
    records.Event: "Events of a consumer's journal.",
    records.Txn: "Transactions of what lies in a log.",
    records.Asked: "What was asked for to end a transaction.",
}
#: Names of members that would mean two things where a language has one space of names.
LONG_NAMES: Final = {
    (records.Check, "OK"): "CHECK_OK",
    (records.Txn, "NONE"): "NO_TXN",
    (records.Txn, "COMMITTED"): "COMMITTED_TXN",
    (records.Asked, "COMMIT"): "COMMIT_ASKED",
    (records.Asked, "ABORT"): "ABORT_ASKED",
}
#: Members that only the harness writes.
NOT_A_WORKERS: Final = {
    (records.Event, "OUTPUT"),
    (records.Txn, "ABORTED"),
    (records.Txn, "OPEN"),
    (records.Txn, "UNKNOWN"),
    (records.Asked, "NOTHING"),
}
#: Row of a table in bytes.
ROW_BYTES: Final = {table: records.RAW[table].itemsize for table in records.TableId}


def fields_of(row: np.dtype[np.void], first: int, end: int) -> list[str]:
    """The fields of a row whose bytes begin within ``first .. end - 1``."""
    assert row.fields
    return [name for name, field in row.fields.items() if first <= field[1] < end]


def numbers(enum: type[IntEnum]) -> Iterator[tuple[str, int]]:
    """Name in capitals and number of each member that a worker writes."""
    for member in enum:
        if (enum, member.name) not in NOT_A_WORKERS:
            yield LONG_NAMES.get((enum, member.name), member.name), member.value


def go_layout() -> str:
    lines = [
        f"// {MADE_NUMBERS}",
        "",
        "// Package kit is the worker's side of docs/worker-protocol.md and docs/capture-format.md. It knows "
        "no client.",
        "package kit",
        "",
        "// Byte layouts. All integers are little-endian.",
        "const (",
        *aligned(
            (f"{public(name) if name == 'MIN_PAYLOAD_BYTES' else private(name)}", f"= {size}")
            for name, size in SIZES.items()
        ),
        ")",
        "",
        "// Tables of the capture.",
        "const (",
        *aligned((f"table{public(table.name)}", f"= {table.value}") for table in records.TableId),
        ")",
        "",
        "var (",
        "\ttableNames = map[uint16]string{",
        *aligned(
            ((f"table{public(t.name)}:", f'"{t.name.lower()}",') for t in records.TableId), tabs=2
        ),
        "\t}",
        "\trowBytes = map[uint16]int{",
        *aligned(
            ((f"table{public(t.name)}:", f"{size},") for t, size in ROW_BYTES.items()), tabs=2
        ),
        "\t}",
        ")",
    ]
    for enum, about in ENUMS.items():
        is_typed = enum in (records.Outcome, records.Check, records.Event)
        if is_typed:
            lines += ["", f"// {enum.__name__}: {lowered(about)}", f"type {enum.__name__} uint8"]
            lines += ["", f"// Values of {enum.__name__}."]
        else:
            lines += ["", f"// {about}"]
        kind = f"{enum.__name__} " if is_typed else ""
        is_public = is_typed or enum is records.Kind
        lines += [
            "const (",
            *aligned(
                (public(name) if is_public else private(name), f"{kind}= {value}")
                for name, value in numbers(enum)
            ),
            ")",
        ]
    return "\n".join(lines) + "\n"


def java_layout() -> str:
    lines = [
        "package brokerstorm.kit;",
        "",
        f"/** Numbers of docs/capture-format.md. {MADE_NUMBERS} */",
        "public final class Layout {",
        "    private Layout() {}",
        "",
        *(f"    public static final int {name} = {size};" for name, size in SIZES.items()),
    ]
    for enum, about in ENUMS.items():
        lines += ["", f"    // {about}"]
        lines += [f"    public static final int {name} = {value};" for name, value in numbers(enum)]
    tables = [f'{t.name}({t.value}, "{t.name.lower()}", {size})' for t, size in ROW_BYTES.items()]
    lines += [
        "",
        "    /** The tables: number, name of the files, bytes a row. */",
        "    public enum Table {",
        *(f"        {table}," for table in tables[:-1]),
        f"        {tables[-1]};",
        "",
        "        final int number;",
        "        final String files;",
        "        final int rowBytes;",
        "",
        "        Table(int number, String files, int rowBytes) {",
        "            this.number = number;",
        "            this.files = files;",
        "            this.rowBytes = rowBytes;",
        "        }",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def node_numbers() -> str:
    tables = [
        f"  {t.name.lower()}: {{ number: {t.value}, rowBytes: {size} }},"
        for t, size in ROW_BYTES.items()
    ]
    lines = [
        f"// Numbers of docs/capture-format.md. {MADE_NUMBERS}",
        '"use strict";',
        "",
        *(f"const {name} = {size};" for name, size in SIZES.items()),
        "const TABLES = {",
        *tables,
        "};",
    ]
    for enum, about in ENUMS.items():
        lines += [f"/** {about} */", f"const {enum.__name__.upper()} = {{"]
        for name, value in numbers(enum):
            lines.append(f"  {private(name.removeprefix('CHECK_'))}: {value},")
        lines.append("};")
    exported = [*SIZES, "TABLES", *(enum.__name__.upper() for enum in ENUMS)]
    lines += ["", "module.exports = {", *(f"  {name}," for name in exported), "};"]
    return "\n".join(lines) + "\n"


def rust_layout() -> str:
    lines = [
        f"//! Numbers of docs/capture-format.md. {MADE_NUMBERS}",
        "#![allow(dead_code)] // no worker has all roles",
        "",
        '#[cfg(not(target_endian = "little"))]',
        'compile_error!("rows are written in the byte order of the machine, which must be little-endian");',
        "",
        *(
            f"pub const {name}: {'u8' if name == 'FORMAT_VERSION' else 'usize'} = {size};"
            for name, size in SIZES.items()
        ),
        "",
        "/// Table of the capture.",
        "#[derive(Clone, Copy)]",
        "pub enum Table {",
        *(f"    {variant(table.name)} = {table.value}," for table in records.TableId),
        "}",
        "",
        "impl Table {",
        "    pub fn name(self) -> &'static str {",
        "        match self {",
        *(f'            Table::{variant(t.name)} => "{t.name.lower()}",' for t in records.TableId),
        "        }",
        "    }",
        "",
        "    pub fn row_bytes(self) -> usize {",
        "        match self {",
        *(f"            Table::{variant(t.name)} => {size}," for t, size in ROW_BYTES.items()),
        "        }",
        "    }",
        "}",
    ]
    for enum, about in ENUMS.items():
        lines += ["", f"/// {about}"]
        if enum in (records.Outcome, records.Check, records.Event):
            lines += [
                "#[derive(Clone, Copy, Debug, PartialEq, Eq)]",
                f"pub enum {enum.__name__} {{",
            ]
            lines += [
                f"    {variant(name.removeprefix('CHECK_'))} = {value},"
                for name, value in numbers(enum)
                if name != "NONE"
            ]
            lines += ["}"]
        else:
            lines += [f"pub const {name}: u8 = {value};" for name, value in numbers(enum)]
    return "\n".join(lines) + "\n"


#: Struct formats of the Python kit: name, format, and the fields in their order.
FORMATS: Final[tuple[tuple[str, str, Sequence[str]], ...]] = (
    ("HEADER", records.HEADER_STRUCT, records.HEADER.names or ()),
    ("SEGMENT_HEADER", records.SEGMENT_HEADER_STRUCT, records.SEGMENT_HEADER.names or ()),
    ("SENDS_OPEN", records.SENDS_OPEN_STRUCT, fields_of(records.RAW_SENDS, 0, 40)),
    ("SENDS_DONE", records.SENDS_DONE_STRUCT, fields_of(records.RAW_SENDS, 40, 89)),
    (
        "SENDS_DONE_PLAIN",
        records.SENDS_DONE_PLAIN_STRUCT,
        ("t_done_ns", "position", "stream", "outcome"),
    ),
    ("LOG_ROW", records.LOG_STRUCT, records.RAW_LOG.names or ()),
    ("DELIVERIES_ROW", records.DELIVERIES_STRUCT, records.RAW_DELIVERIES.names or ()),
    (
        "TRANSACTIONS_BEGUN",
        records.TRANSACTIONS_BEGUN_STRUCT,
        fields_of(records.RAW_TRANSACTIONS, 0, 24),
    ),
    (
        "TRANSACTIONS_ASKED",
        records.TRANSACTIONS_ASKED_STRUCT,
        fields_of(records.RAW_TRANSACTIONS, 24, 40),
    ),
    (
        "TRANSACTIONS_DONE",
        records.TRANSACTIONS_DONE_STRUCT,
        fields_of(records.RAW_TRANSACTIONS, 40, 64),
    ),
)


def python_layouts() -> str:
    lines = [
        '"""Byte layouts of payload header and capture rows as struct formats (docs/capture-format.md).',
        "",
        "Workers cannot import harness/records.py because it needs NumPy. All little-endian.",
        "",
        MADE_NUMBERS,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from struct import Struct",
        "from typing import Final",
        "",
        *(f"{name}: Final = {size}" for name, size in SIZES.items()),
        f'HEADER_MAGIC: Final = b"{records.HEADER_MAGIC.decode()}"',
        f'SEGMENT_MAGIC: Final = b"{records.SEGMENT_MAGIC[:-1].decode()}\\0"',
        "",
    ]
    for enum, about in ENUMS.items():
        lines.append(f"# {about}")
        lines += [f"{name} = {value}" for name, value in numbers(enum)]
    lines += ["# Tables."]
    lines += [f"{table.name} = {table.value}" for table in records.TableId]
    sizes = (f"{table.name}: {size}" for table, size in ROW_BYTES.items())
    lines += [
        "TABLE_NAMES: Final = {",
        *(f'    {table.name}: "{table.name.lower()}",' for table in records.TableId),
        "}",
        f"ROW_BYTES: Final = {{{', '.join(sizes)}}}",
        "",
    ]
    for name, form, fields in FORMATS:
        lines += [f"#: {line}" for line in textwrap.wrap(", ".join(fields), 96)]
        lines += [f'{name}: Final = Struct("{form}")']
    sends, transactions = records.RAW_SENDS.fields, records.RAW_TRANSACTIONS.fields
    assert sends
    assert transactions
    done, asked = records.SENDS_DONE_OFFSET, transactions["t_asked_ns"][1]
    lines += [
        "",
        "#: Where the completion part of a sends row begins; the outcome bytes, counted from there.",
        f"SENDS_DONE_OFFSET: Final = {done}",
        f"OUTCOME_IN_DONE: Final = {sends['outcome'][1] - done}",
        f"LATE_OUTCOME_IN_DONE: Final = {sends['late_outcome'][1] - done}",
        "#: Within a transactions row.",
        f"TRANSACTIONS_ASKED_OFFSET: Final = {asked}",
        f"TRANSACTIONS_DONE_OFFSET: Final = {transactions['t_done_ns'][1]}",
    ]
    return "\n".join(lines) + "\n"


# ----- parts of the spec --------------------------------------------------------------------------

#: Parts of the spec by their name in the kits.
PARTS: Final[dict[str, type[specs.SpecPart]]] = {
    "LaneGroup": specs.LanePart,
    "TransactionsSpec": specs.TransactionsPart,
    "ProducerSpec": specs.ProducerPart,
    "PausesSpec": specs.PausesPart,
    "SeeksSpec": specs.SeeksPart,
    "ConsumerSpec": specs.ConsumerPart,
    "PipelineSpec": specs.PipelinePart,
    "AuditSpec": specs.AuditPart,
}
_NAMES: Final = {part: name for name, part in PARTS.items()}
_GO: Final = {int: "int", float: "float64", str: "string", bool: "bool"}
_RUST: Final = {int: "usize", float: "f64", str: "String", bool: "bool"}
#: The default of a value of each type in Go, which needs no line.
_ZERO: Final[dict[object, object]] = {int: 0, float: 0.0, str: "", bool: False}


def go_parts() -> str:
    """The parts as structs. Keys that are left out have the protocol's default."""
    lines = [f"// {MADE_PARTS}", "", "package kit", "", 'import "encoding/json"']
    for name, part in PARTS.items():
        lines += ["", f"// {name}: {lowered(about(part))}", f"type {name} struct {{"]
        rows = [
            (public(key), f'{go_type(field)} `json:"{key}"`')
            for key, field in part.model_fields.items()
        ]
        types_wide = max(len(kind.split(" `")[0]) for _, kind in rows)
        lines += aligned(
            (key, f"{kind.split(' `')[0].ljust(types_wide)} `{kind.split(' `')[1]}")
            for key, kind in rows
        )
        lines += ["}"]
        defaults = {
            public(key): go_value(field.default)
            for key, field in part.model_fields.items()
            if not field.is_required() and field.default not in (None, 0, "", False)
        }
        if not defaults:
            continue
        lines += [
            "",
            "// UnmarshalJSON reads it over the defaults.",
            f"func (part *{name}) UnmarshalJSON(text []byte) error {{",
            f"\ttype plain {name}",
            f"\tread := plain{{{', '.join(f'{key}: {value}' for key, value in defaults.items())}}}",
            "\terr := json.Unmarshal(text, &read)",
            f"\t*part = {name}(read)",
            "\treturn err",
            "}",
        ]
    return "\n".join(lines) + "\n"


def rust_parts() -> str:
    """The parts that the Rust kit has roles for, as structs."""
    lines = [
        f"//! {MADE_PARTS}",
        "#![allow(dead_code)] // no worker uses every key",
        "",
        "use serde::Deserialize;",
    ]
    defaults: dict[str, tuple[str, str]] = {}
    for name, part in PARTS.items():
        if part in (specs.PipelinePart, specs.AuditPart):
            continue
        lines += [
            "",
            f"/// {about(part)}",
            "#[derive(Clone, Deserialize)]",
            f"pub struct {name} {{",
        ]
        for key, field in part.model_fields.items():
            kind, default = rust_type(field), field.default
            if not field.is_required() and not kind.startswith("Option<"):
                if default in (None, 0, "", False):
                    lines += ["    #[serde(default)]"]
                else:
                    where = f"default_{key}"
                    defaults[where] = (kind, rust_value(default))
                    lines += [f'    #[serde(default = "{where}")]']
            lines += [f"    pub {key}: {kind},"]
        lines += ["}"]
    for where, (kind, value) in defaults.items():
        lines += ["", f"fn {where}() -> {kind} {{", f"    {value}", "}"]
    return "\n".join(lines) + "\n"


def about(part: type[specs.SpecPart]) -> str:
    """What a part is, as its docstring says."""
    return " ".join((part.__doc__ or "").split()).replace("``", "`")


def lowered(text: str) -> str:
    """A sentence as it continues a line."""
    return text[:1].lower() + text[1:]


def shape(field: FieldInfo) -> tuple[object, bool]:
    """The type of a field without None, and whether None is one of its values."""
    kind = field.annotation
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
        return kind, True
    return kind, False


def is_number_of_32_bits(field: FieldInfo) -> bool:
    return any(getattr(each, "lt", None) == 2**32 for each in field.metadata)


def go_type(field: FieldInfo) -> str:
    kind, is_optional = shape(field)
    if is_number_of_32_bits(field):
        return "uint32"
    if isinstance(kind, type) and kind in _NAMES:
        return f"*{_NAMES[kind]}"
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return f"[]{pair(item, _GO, '[2]{}') or _NAMES.get(item) or _GO[item]}"
    if get_origin(kind) is dict:
        return "map[string]any"
    is_pointer = is_optional and kind in (int, float)
    return f"{'*' if is_pointer else ''}{_GO[kind]}"  # type: ignore[index]


def rust_type(field: FieldInfo) -> str:
    kind, is_optional = shape(field)
    if is_number_of_32_bits(field):
        return "u32"
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return f"Vec<{pair(item, _RUST, '({0}, {0})') or _NAMES.get(item) or _RUST[item]}>"
    name = _NAMES[kind] if isinstance(kind, type) and kind in _NAMES else _RUST[kind]  # type: ignore[index]
    return f"Option<{name}>" if is_optional else name


def pair(item: object, names: Mapping[Any, str], form: str) -> str:
    """Two values of one type, as a list has them; numbers as the wider one. Empty if it is none."""
    if get_origin(item) is not tuple:
        return ""
    kinds = get_args(item)
    return form.format(names[float if float in kinds else kinds[0]])


def go_value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def rust_value(value: object) -> str:
    return f'"{value}".to_string()' if isinstance(value, str) else str(value).lower()


# ----- names --------------------------------------------------------------------------------------

_INITIALS: Final = {"id": "ID", "url": "URL", "ok": "OK"}


def public(name: str) -> str:
    """``WARM_UP`` as ``WarmUp``."""
    return "".join(_INITIALS.get(word, word.capitalize()) for word in name.lower().split("_"))


def variant(name: str) -> str:
    """``CHECK_OK`` as ``CheckOk``."""
    return "".join(word.capitalize() for word in name.split("_"))


def private(name: str) -> str:
    """``WARM_UP`` as ``warmUp``."""
    first, *rest = name.lower().split("_")
    return first + "".join(word.capitalize() for word in rest)


def aligned(rows: Iterable[tuple[str, str]], tabs: int = 1) -> list[str]:
    """Lines of two columns as gofmt writes them."""
    listed = list(rows)
    wide = max(len(left) for left, _ in listed)
    return [f"{chr(9) * tabs}{left.ljust(wide)} {right}" for left, right in listed]
