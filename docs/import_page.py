"""The reference page of imports: the columns of their tables, and the keys of import.yaml."""

from __future__ import annotations

from collections import Counter

from docs.markdown import MADE, item, paragraph
from docs.model_keys import key_item, models
from harness.importing.columns import TABLES
from harness.importing.columns import Field as ImportField
from harness.importing.model import ImportFile

#: What a column of times takes, in its own words.
_TIME = next(f.allowed for f in TABLES["sends"] if f.name == "t_start_ns")


def import_page() -> str:
    """docs/reference/import.md: the columns of an import, and every key of import.yaml."""
    lines = [
        "# Imports",
        "",
        MADE,
        "",
        "The tables and the import.yaml that `brokerstorm analyze --import DIR` reads;",
        "[how to make them](../howto/judge-another-capture.md). Every value is checked; what is not allowed",
        "is one line with file, row, value and what is allowed.",
        "",
        "A column in **bold** must be there. The others may be left out; an empty field is the same as a",
        "column that is left out. A number means the word that it has in the",
        "[sealed form](../capture-format.md#sealed-form), and is allowed in its place.",
        "",
        "- Systems whose positions are numbered by ledger (Pulsar) need `ledger` in log and deliveries;",
        "  queues need no `position` there.",
        "- `subscription` must be there unless import.yaml has exactly one group.",
    ]
    lines += ["", f"*Time*: {_TIME}.", "", "## Columns of several tables", ""]
    counts = Counter(_same(field) for fields in TABLES.values() for field in fields)
    several = {
        _same(field): field
        for fields in TABLES.values()
        for field in fields
        if counts[_same(field)] > 1
    }
    lines += [line for field in several.values() for line in _column_item(field, "`")]
    for table, fields in TABLES.items():
        own = [field for field in fields if _same(field) not in several]
        also = ", ".join(_name(field) for field in fields if _same(field) in several)
        lines += ["", f"## {table}", "", *(line for field in own for line in _column_item(field))]
        lines += item(f"as above: {also}") if also else []
    lines += ["", "## import.yaml"]
    for path, model in models(ImportFile, ""):
        lines += [
            "",
            f"### {path or 'top level'}",
            "",
            *paragraph(" ".join((model.__doc__ or "").split())),
        ]
        lines += [
            line for name, field in model.model_fields.items() for line in key_item(name, field)
        ]
    return "\n".join(lines) + "\n"


def _same(field: ImportField) -> tuple[str, str, str]:
    return field.name, field.allowed, field.doc


def _name(field: ImportField) -> str:
    return f"**`{field.name}`**" if field.needed else f"`{field.name}`"


def _column_item(field: ImportField, quote: str = "") -> list[str]:
    """``quote``: whether it must be there differs by table, and is not said."""
    name = f"{quote}{field.name}{quote}" if quote else _name(field)
    allowed = field.allowed.replace(_TIME, "time")
    return item(f"{name} ({allowed})" + (f": {field.doc}" if field.doc else ""))
