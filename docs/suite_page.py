"""docs/reference/suite.md: every key of a suite file, from `experiments.nights.model`."""

from __future__ import annotations

from docs.markdown import MADE, paragraph
from docs.model_keys import key_item, models
from experiments.nights.model import Suite

_HEAD = f"""# Suite files

{MADE}

A suite says once what runs every night: [how to run it in CI](../howto/run-in-ci.md). YAML, checked key by
key as [scenario files](scenario.md) are. `brokerstorm new --suite FILE` writes one to edit;
`scenarios/suites/suite.schema.json` is its JSON Schema.

A cell is one combination of a matrix. Its name is the same every night: it holds the version as the file
asks for it (`confluent-kafka@latest`), and the history keeps what that was. Cells run by priority, those that
can share a cluster one after the other. Fresh seeds are the same for all cells of a scenario: versions are
compared under the same faults. A seed that a promise was broken with runs again, with the fresh ones, until
it was green three times in a row; of a cell, the two newest.
"""


def suite_page() -> str:
    lines = _HEAD.rstrip().splitlines()
    for path, model in models(Suite, ""):
        lines += [
            "",
            f"## {path or 'top level'}",
            "",
            *paragraph(" ".join((model.__doc__ or "").split())),
        ]
        lines += [
            line for name, field in model.model_fields.items() for line in key_item(name, field)
        ]
    return "\n".join(lines) + "\n"
