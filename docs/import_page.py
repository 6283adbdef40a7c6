"""The reference page of imports: the columns of their tables, and the keys of import.yaml."""

from __future__ import annotations

from docs.markdown import MADE, item, paragraph
from docs.model_keys import key_item, models
from harness.importing.columns import TABLES
from harness.importing.columns import Field as ImportField
from harness.importing.model import ImportFile


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
        "column that is left out. A number stands for the word that it has in the",
        "[sealed form](../capture-format.md#sealed-form), and is allowed in its place.",
        "",
        "- Systems whose positions are numbered by ledger (Pulsar) need `ledger` in log and deliveries;",
        "  queues need no `position` there.",
        "- `subscription` must be there unless import.yaml has exactly one group.",
    ]
    for table, fields in TABLES.items():
        lines += ["", f"## {table}", "", *(line for field in fields for line in _column_item(field))]
    lines += ["", "## import.yaml"]
    for path, model in models(ImportFile, ""):
        lines += ["", f"### {path or 'top level'}", "", *paragraph(" ".join((model.__doc__ or "").split()))]
        lines += [line for name, field in model.model_fields.items() for line in key_item(name, field)]
    return "\n".join(lines) + "\n"


def _column_item(field: ImportField) -> list[str]:
    name = f"**`{field.name}`**" if field.needed else f"`{field.name}`"
    return item(f"{name} ({field.allowed})" + (f": {field.doc}" if field.doc else ""))
