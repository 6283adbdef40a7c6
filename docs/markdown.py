"""Markdown of the generated pages: paragraphs and list items in lines that fit."""

from __future__ import annotations

import textwrap

MADE = "Made from the code by `make docs`; do not edit."
WIDTH = 118


def paragraph(text: str) -> list[str]:
    """The lines of a paragraph."""
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def item(text: str) -> list[str]:
    """The lines of an item of a list."""
    return [f"{'  ' if number else '- '}{line}" for number, line in enumerate(paragraph(text))]
