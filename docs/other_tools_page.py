"""docs/reference/other-tools.md: words of other tools and where they belong in a scenario."""

from __future__ import annotations

from docs.markdown import MADE, paragraph
from faults.schedule.other_words import FAULT_WORDS
from harness.other_words import OTHER_WORDS


def other_tools_page() -> str:
    """The page, a table for each tool."""
    intro = (
        "For people who know another load generator or chaos tool: where its keys and options "
        "belong in a [scenario](scenario.md). A scenario that has one of them is refused with the "
        "same hint. Options of a client keep their own names. A load here is open loop: a message "
        "is due by the rate, whether or not the ones before it are acknowledged."
    )
    lines = ["# Words of other tools", "", MADE, "", *paragraph(intro)]
    for tool, words in {**OTHER_WORDS, **FAULT_WORDS}.items():
        title = "What applications do" if tool == "applications" else tool
        lines += ["", f"## {title}", "", "| there | here |", "| --- | --- |"]
        lines += [f"| `{word}` | {here} |" for word, here in words.items()]
    return "\n".join(lines) + "\n"
