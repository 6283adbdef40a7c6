"""The table of figures in docs/known-bugs.md, from the bug files' results."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from experiments.repro.figures import figures

PAGE: Final = Path(__file__).with_name("known-bugs.md")
_BEGIN: Final = "<!-- made by `make docs` from scenarios/bugs/results.json -->\n"
_END: Final = "<!-- end -->\n"


def known_bugs_page() -> str:
    """The page as it is, with the table that belongs there."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{_table()}{_END}{after}"


def _table() -> str:
    lines = ["| bug | pair | affected | fixed | first hit | p |", "|---|---|---:|---:|---|---:|"]
    for bug, pairs in figures().items():
        for number, (pair, seen) in enumerate(pairs.items()):
            median_s, least_s, most_s = seen.first_s
            first = f"{median_s:g} s ({least_s:g} to {most_s:g})"
            name = "" if number else f"{bug} "
            affected, fixed = seen.counted
            lines.append(f"| {name}| {pair} | {affected} | {fixed} | {first} | {seen.p:.2g} |")
    return "\n".join(lines) + "\n"
