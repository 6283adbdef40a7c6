"""Writes the reference pages and the published JSON Schemas, which are made from code.

python docs/generate.py           write what is stale
python docs/generate.py --check   only name it; exit code 1 if there is any
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic.json_schema import JsonSchemaValue

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from analysis.report import documents  # noqa: E402 - the tree is not on the path before
from docs.anomalies_page import anomalies_page  # noqa: E402
from docs.answers_page import answers_page  # noqa: E402
from docs.bug_pages import bug_pages  # noqa: E402
from docs.cli_page import cli_page  # noqa: E402
from docs.concepts_picture import concepts_picture  # noqa: E402
from docs.cookbook_page import cookbook_page  # noqa: E402
from docs.fault_page import faults_page  # noqa: E402
from docs.history_page import history_page  # noqa: E402
from docs.import_page import import_page  # noqa: E402
from docs.kit_sources import kit_sources  # noqa: E402
from docs.markdown import MADE, item, paragraph  # noqa: E402
from docs.matrix_page import matrix_page  # noqa: E402
from docs.model_keys import key_item, models  # noqa: E402
from docs.options_page import options_page  # noqa: E402
from docs.other_tools_page import other_tools_page  # noqa: E402
from docs.suite_page import suite_page  # noqa: E402
from experiments.history import summary  # noqa: E402
from experiments.nights import document, file  # noqa: E402
from faults.schedule.reference import schema  # noqa: E402
from harness.connections import schema as connections  # noqa: E402
from harness.errors import EXIT_MEANING  # noqa: E402
from harness.exposure import CAPTURED  # noqa: E402
from harness.importing.model import import_schema  # noqa: E402
from harness.scenario.bundled import IMPORT_SCHEMA_FILE, SCHEMA_FILE  # noqa: E402
from harness.scenario.model import Scenario  # noqa: E402
from harness.scenario.schema import scenario_schema  # noqa: E402
from harness.workers import is_ours, known_workers  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
EXPLANATION = ROOT / "docs" / "explanation"


def pages() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    return {
        REFERENCE / "cli.md": cli_page() + exit_codes(),
        REFERENCE / "scenario.md": scenario_page(),
        REFERENCE / "suite.md": suite_page(),
        REFERENCE / "faults.md": faults_page(),
        REFERENCE / "matrix.md": matrix_page(),
        REFERENCE / "options.md": options_page(),
        REFERENCE / "other-tools.md": other_tools_page(),
        REFERENCE / "import.md": import_page(),
        REFERENCE / "history.md": history_page(),
        EXPLANATION / "anomalies.md": anomalies_page() + exposure_counters(),
        EXPLANATION / "client-answers.md": answers_page(),
        ROOT / "docs" / "cookbook.md": cookbook_page(),
        ROOT / "docs" / "images" / "concepts.svg": concepts_picture(),
        **bug_pages(),
        **kit_sources(),
        **{path: json.dumps(found, indent=1) + "\n" for path, found in schemas().items()},
    }


def schemas() -> dict[Path, JsonSchemaValue]:
    """Every published JSON Schema."""
    return {
        **{documents.SCHEMA_FOLDER / name: found for name, found in documents.schemas().items()},
        file.SCHEMA_FILE: file.suite_schema(),
        document.SCHEMA_FILE: document.schema(),
        summary.SCHEMA_FILE: summary.schema(),
        connections.SCHEMA_FILE: connections.connection_schema(),
        SCHEMA_FILE: scenario_schema(schema()),
        IMPORT_SCHEMA_FILE: import_schema(),
    }


# ----- scenario keys ------------------------------------------------------------------------------


def scenario_page() -> str:
    """docs/reference/scenario.md: every key of a scenario file."""
    lines = [
        "# Scenario files",
        "",
        MADE,
        "",
        "YAML, checked key by key: an unknown key, a wrong type or a value out of range is one line with the",
        "place, the key, the value and what is allowed. `brokerstorm new FILE` writes one to edit, and",
        "its JSON Schema next to it (`scenarios/scenario.schema.json`): commit both. An editor with a YAML",
        "language server checks while you type if the file begins with",
        "",
        "```yaml",
        "# yaml-language-server: $schema=scenario.schema.json",
        "```",
        "",
        "Durations are `10s`, `250ms`, `2m`, `1h` or a plain number of seconds. `--set load.rate=1000` lays",
        "a value over any key; it wins over the file and over variants. A topic, producer or consumer must",
        "be there already: `--set 'load.producers.second!new.client=kafka-python'` adds one.",
        "Faults: [faults.md](faults.md).",
    ]
    for path, model in models(Scenario, ""):
        lines += [
            "",
            f"## {path or 'top level'}",
            "",
            *paragraph(" ".join((model.__doc__ or "").split())),
        ]
        lines += [
            line for name, field in model.model_fields.items() for line in key_item(name, field)
        ]
    lines += [
        "",
        "## How variants merge",
        "",
        "`override` is laid over the scenario as a JSON merge patch: mappings merge key by key, lists and",
        "values are replaced, `null` removes a key.",
    ]
    return "\n".join(lines) + "\n"


# ----- exposure -----------------------------------------------------------------------------------


def exposure_counters() -> str:
    """The part of docs/explanation/anomalies.md about the counters that a bug file can name."""
    reported: dict[tuple[str, str], list[str]] = {}
    for library, worker in sorted(known_workers().items()):
        if not is_ours(worker):
            continue
        for counter in worker.exposure.items():
            reported.setdefault(counter, []).append(library)
    lines = [
        "",
        "## Exposure counters",
        "",
        "An exposure counter says how often a run met the situation in which a bug occurs. A bug file names",
        "one counter and the least value; a round with a lower value does not count ([known",
        "bugs](../known-bugs.md)). The `result.json` of a run has them as `exposure`.",
        "",
        "### Counted from the capture, for every client",
        "",
        *(line for name, meaning in CAPTURED.items() for line in item(f"`{name}`: {meaning}")),
        "",
        "### Reported by the worker",
        "",
        "Only the client's process can know these. A worker that can count one reports it in the `stats` and",
        "`done` lines of [the worker protocol](../worker-protocol.md). The values of all workers are added.",
        "",
        *(
            line
            for (name, meaning), who in reported.items()
            for line in item(f"`{name}` ({', '.join(who)}): {meaning}")
        ),
    ]
    return "\n".join(lines) + "\n"


# ----- exit codes ---------------------------------------------------------------------------------


def exit_codes() -> str:
    """The part of docs/reference/cli.md about exit codes."""
    lines = [
        "",
        "## Exit codes",
        "",
        "All commands use these codes. The exit code of `run`, `analyze` and `show` is the verdict. If",
        "several codes apply to a run, it ends with the first of these: 5, 70, 130 or 143, 4, 1, 3, 0. If",
        "the verdict cannot be written to stdout, the command ends with 74 instead. An error keeps its",
        "own code, because its message goes to stderr.",
        "",
        "The first Ctrl-C, SIGTERM or SIGHUP during the load of `run` ends the load. The exit code is",
        "then the verdict on the shortened run: 1 if a promise was broken, 0 if the scenario has variants",
        "and each of them has shown by then what was expected, otherwise 3. A second signal, or one",
        "before the load, ends the command with 130 or 143. `repro`, `suite`, `bisect`, `shrink` and",
        "`hunt` count only complete rounds, so the first signal ends them with 130 or 143.",
        "",
        "For `repro` and `bisect`, 0 means found: the bug was reproduced or seen, or the first bad or",
        "first fixed version is known. 1 means not found: the bug did not show, or an end of the",
        "bisection does not behave as stated. 3 means undecided: too few rounds counted, skipped versions",
        "lie between the two sides, or the budget was used up.",
        "",
        "| code | meaning | next step |",
        "|---:|---|---|",
    ]
    lines += [
        f"| {code.value} | {meaning} | {step} |" for code, (meaning, step) in EXIT_MEANING.items()
    ]
    return "\n".join(lines) + "\n"


def stale() -> list[Path]:
    """Generated files that do not hold what they should."""
    return [path for path, text in pages().items() if not path.exists() or path.read_text() != text]


def main() -> int:
    found = stale()
    for path in found:
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path])
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 1 if found and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
