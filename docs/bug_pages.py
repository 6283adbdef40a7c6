"""docs/known-bugs.md and the pages in docs/bugs/: facts from the bug files, figures from their
results.

Each page has a part between two comments that is made here. The rest of it is written by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.markdown import item, paragraph
from experiments.repro.figures import Figures, figures
from experiments.repro.request import libraries
from harness.scenario.bug import PairSpec
from harness.scenario.bundled import bundled_bugs
from harness.scenario.file import load_scenario
from harness.scenario.model import Scenario

LIST: Final = Path(__file__).with_name("known-bugs.md")
FOLDER: Final = Path(__file__).with_name("bugs")
_BEGIN: Final = "<!-- made by `make docs` from the bug files and scenarios/bugs/results.json -->\n"
_END: Final = "<!-- end -->\n"


def bug_pages() -> dict[Path, str]:
    """Every page about known bugs, by path."""
    shown = figures()
    scenarios = {name: load_scenario(path) for name, path in bundled_bugs().items()}
    pages = {LIST: _with_facts(LIST, _list_of_bugs(scenarios, shown))}
    for name, scenario in scenarios.items():
        path = FOLDER / f"{name}.md"
        pages[path] = _with_facts(path, _facts(scenario, shown.get(name, {})))
    return pages


def _with_facts(page: Path, facts: list[str]) -> str:
    """A page as it is, with ``facts`` between the two comments. A new page has nothing else."""
    text = page.read_text() if page.exists() else f"# {page.stem}\n\n{_BEGIN}{_END}"
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    lines = "\n".join(facts)
    return f"{before}{_BEGIN}{lines}\n{_END}{after}"


def _list_of_bugs(
    scenarios: dict[str, Scenario], shown: dict[str, dict[str, Figures]]
) -> list[str]:
    """A table with one row for each bug, with the figures of its default pair."""
    lines = ["| bug | client or broker | defect | affected | fixed |", "|---|---|---|---:|---:|"]
    for name, scenario in scenarios.items():
        default = next(iter(_pairs(scenario)))
        one = shown.get(name, {}).get(default)
        affected, fixed = one.counted if one else ("", "")
        who = ", ".join(_libraries(scenario))
        lines.append(
            f"| [{name}](bugs/{name}.md) | {who} | {scenario.about} | {affected} | {fixed} |"
        )
    return lines


def _facts(scenario: Scenario, shown: dict[str, Figures]) -> list[str]:
    """Return the facts of the bug file, and one row of figures for each version pair."""
    pairs = _pairs(scenario)
    about = scenario.about[0].upper() + scenario.about[1:]
    kinds = sorted({scenario.variants[pair.affected].expect for pair in pairs.values()})
    classes = ", ".join(f"[{kind}](../explanation/anomalies.md#{kind})" for kind in kinds)
    lines = [
        *paragraph(f"{about}."),
        "",
        f"- Client or broker: {', '.join(_libraries(scenario))}",
        *item(f"Class: {classes}"),
        *(
            [f"- Report: <{scenario.bug.report}>"]
            if scenario.bug and "://" in scenario.bug.report
            else []
        ),
        "",
        "```",
        f"./brokerstorm repro {scenario.name} --quick",
        "```",
        "",
        "| `--pair` | affected | fixed | first hit | p |",
        "|---|---:|---:|---|---:|",
    ]
    for name in pairs:
        cells = [name, *_figures_of(shown.get(name))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _figures_of(one: Figures | None) -> list[str]:
    if one is None:
        return ["", "", "", ""]
    affected, fixed = one.counted
    median_s, least_s, most_s = one.first_s
    return [affected, fixed, f"{median_s:g} s ({least_s:g} to {most_s:g})", f"{one.p:.2g}"]


def _pairs(scenario: Scenario) -> dict[str, PairSpec]:
    """Version pairs by name, the default one first. Empty for a scenario that describes no bug."""
    return scenario.bug.pairs if scenario.bug else {}


def _libraries(scenario: Scenario) -> list[str]:
    return sorted(
        {
            one
            for pair in _pairs(scenario).values()
            for one in libraries(scenario, pair.affected, pair.fixed)
        }
    )
