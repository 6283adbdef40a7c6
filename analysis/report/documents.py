"""The --json documents: what each command prints, their JSON Schemas, and result.json read back.

Every document carries ``schema_version``; a change that would break a reader raises it. The schemas
in ``schemas/`` are made from the dataclasses by `schemas` and published as files (a test keeps them
equal), so that a reader in another language needs no Python: `make docs` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from analysis.findings import SCHEMA_VERSION, Result
from analysis.report.compare import Comparison
from analysis.report.explain import Explanation
from analysis.report.trace_model import Trace
from analysis.verdict.campaign import BegunCampaign, Campaign
from harness.contracts import read_document, typed
from harness.errors import UsageError
from harness.rundir import DIALECT, Document, RunDir, read_json, write_json

SCHEMA_FOLDER = Path(__file__).with_name("schemas")
_DocumentT = TypeVar("_DocumentT", Result, Campaign)


def run_document(result: Result) -> Document:
    """Return the document of one run, as `run`, `analyze` and `show` print it and result.json keeps
    it."""
    return _finite_document(result.document())


def campaign_document(campaign: Campaign) -> Document:
    """Return the document of a scenario with variants or rounds, as `run`, `analyze` and `show`
    print it and campaign.json keeps it.
    """
    return _finite_document(campaign.document())


def trace_document(trace: Trace) -> Document:
    """Return the document of `trace`."""
    return _versioned(asdict(trace))


def comparison_document(comparison: Comparison) -> Document:
    """Return the document of `compare`."""
    return _versioned(asdict(comparison))


def explanation_document(entries: Sequence[Explanation]) -> Document:
    """Return the document of `explain`: for one class, or for all."""
    return _versioned({"classes": [asdict(entry) for entry in entries]})


def finite(document: Any) -> Any:
    """Without NaN and infinities, which JSON does not have: a key with one is left out, a list
    entry becomes null."""
    if isinstance(document, Mapping):
        return {key: finite(value) for key, value in document.items() if not _is_odd(value)}
    if isinstance(document, list | tuple):
        return [None if _is_odd(value) else finite(value) for value in document]
    return document


def _is_odd(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _versioned(body: Document) -> Document:
    return _finite_document({"schema_version": SCHEMA_VERSION, **body})


def _finite_document(document: Document) -> Document:
    made: Document = finite(document)
    return made


# -- result.json and campaign.json


def write_result(run: RunDir, result: Result) -> None:
    """Write result.json."""
    write_json(run.result, run_document(result))


def read_result(run: RunDir) -> Result:
    """Read the latest verdict of `analyze` on a run.

    Raises:
        UsageError: not judged yet, or written by a version that this one cannot read.
    """
    if not run.result.exists():
        raise UsageError(
            f"{run.root} has not been judged", hint=f"`brokerstorm analyze {run.root}` judges it"
        )
    return result_of_document(read_json(run.result), run.result)


def result_of_document(document: Document, path: Path) -> Result:
    """A result from its document; ``path``: the file that it was read from.

    Raises:
        UsageError: written by a version that this one cannot read.
    """
    findings = document.get("findings")
    for finding in findings if isinstance(findings, list) else ():
        if isinstance(finding, dict):
            finding["cls"] = finding.pop("class", "")
    return _parsed(Result, document, path)


def begin_campaign(run: RunDir, begun: BegunCampaign) -> None:
    """Said before it is done: rounds that are cut short can be judged."""
    write_json(
        run.campaign,
        {key: value for key, value in asdict(begun).items() if value not in (None, "")},
    )


def read_begun(run: RunDir) -> BegunCampaign:
    """A campaign, judged or not yet.

    Raises:
        UsageError: unreadable, or of another version.
    """
    return read_document(run.campaign, BegunCampaign)


def write_campaign(run: RunDir, campaign: Campaign) -> None:
    """Write campaign.json."""
    write_json(run.campaign, campaign_document(campaign))


def read_campaign(run: RunDir) -> Campaign:
    """A judged campaign.

    Raises:
        UsageError: not judged yet, written by a version that this one cannot read, or a round of it
            is in a folder that is not below its own.
    """
    document = read_json(run.campaign)
    if "variants" not in document:
        raise UsageError(
            f"{run.root} has not been judged", hint=f"`brokerstorm analyze {run.root}` judges it"
        )
    campaign = _parsed(Campaign, document, run.campaign)
    folders = {each.run_id for each in run.rounds()}
    for variant in campaign.variants:
        for summary in variant.runs:
            if summary.path not in folders:
                raise UsageError(f"{run.campaign}: {summary.path!r} is not the folder of a round")
    return campaign


def _parsed(kind: type[_DocumentT], document: Document, path: Path) -> _DocumentT:
    hint = f"`brokerstorm analyze {path.parent}` judges the capture again"
    if (version := document.get("schema_version")) != SCHEMA_VERSION:
        text = f"{path}: schema_version is {version!r}, this version reads {SCHEMA_VERSION}"
        raise UsageError(text, hint=hint)
    return typed(document, kind, str(path), hint=hint)


# -- schemas


def schemas() -> dict[str, Document]:
    """JSON Schema of each document, by file name."""
    run = _schema(Result, "run", "the verdict on one run")
    _require(run, "sends", ("attempted", "ok", "fail", "info"))
    _require(run, "rate", ("target_per_s", "achieved_per_s"))
    campaign = _schema(Campaign, "campaign", "the verdict on a scenario with variants or rounds")
    campaign["properties"] |= {
        "exit_code": {"type": "integer"},
        "runs": {"items": {"type": "string"}, "type": "array"},
        "bug": {"type": "string", "description": "of a known bug: its name"},
        "reproduced": {
            "type": ["boolean", "null"],
            "description": "of a known bug; null: undecided",
        },
        "p_value": {
            "type": ["number", "null"],
            "description": "of a known bug, when all rounds count",
        },
    }
    campaign["required"] += ["exit_code", "runs"]
    explain = _schema(Explanation, "explain", "what anomaly classes mean")
    error = _error_schema()
    return {
        "run.json": run,
        "campaign.json": campaign,
        "trace.json": _schema(Trace, "trace", "one message's life"),
        "compare.json": _schema(Comparison, "compare", "two runs side by side"),
        "explain.json": _list_of(explain),
        "error.json": error,
    }


def _schema(kind: Any, name: str, about: str) -> Document:
    schema: Document = TypeAdapter(kind).json_schema(mode="serialization")
    finding = schema.get("$defs", {}).get("Finding")
    if finding:
        finding["properties"] = {"class": finding["properties"].pop("cls"), **finding["properties"]}
        finding["required"] = ["class", *(key for key in finding["required"] if key != "cls")]
    properties = {"schema_version": {"const": SCHEMA_VERSION}, **schema["properties"]}
    head = {"$schema": DIALECT, "title": f"brokerstorm {name}", "description": about}
    required = ["schema_version", *schema.get("required", [])]
    return {**head, **_without(schema, head), "properties": properties, "required": required}


def _without(schema: Document, head: Document) -> Document:
    return {key: value for key, value in schema.items() if key not in head}


def _require(schema: Document, name: str, keys: Sequence[str]) -> None:
    schema["properties"][name]["required"] = list(keys)


def _list_of(schema: Document) -> Document:
    properties = {
        key: value for key, value in schema["properties"].items() if key != "schema_version"
    }
    required = [key for key in schema["required"] if key != "schema_version"]
    entry = {"type": "object", "properties": properties, "required": required}
    return {
        **{key: schema[key] for key in ("$schema", "title", "description")},
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "classes": {"type": "array", "items": entry},
        },
        "required": ["schema_version", "classes"],
    }


def _error_schema() -> Document:
    text = {"type": "string"}
    body = {"type": text, "message": text, "hint": text}
    return {
        "$schema": DIALECT,
        "title": "brokerstorm error",
        "description": "a command that failed",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "exit_code": {"type": "integer"},
            "error": {"type": "object", "properties": body, "required": list(body)},
        },
        "required": ["schema_version", "exit_code", "error"],
    }
