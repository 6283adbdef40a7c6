"""Regular expressions of users, searched in a time that grows with the text alone.

An expression for the module `re` can take years for a text of 80 characters. RE2, which comes with
PyArrow, cannot: it has no look-around and no back references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

#: The name that the first group is given.
_FIRST: Final = "brokerstorm"


def first_group(expression: str) -> Callable[[str], str]:
    """Make the function that returns the text of an expression's first group in a text; empty if
    the expression is not found there.

    Raises:
        ValueError: not an expression that RE2 knows, or one without a group.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern, groups = _one_group(expression)
    if not groups:
        raise ValueError("needs a group in parentheses around the text")

    def found_in(text: str) -> str:
        found = pc.extract_regex(pa.scalar(text), pattern=pattern)
        return found.as_py()[_FIRST] if found.is_valid else ""

    try:
        found_in("")
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(
            f"must be a regular expression of RE2, without look-around and back references: {reason}"
        ) from None
    return found_in


def _one_group(expression: str) -> tuple[str, int]:
    """The expression with its first group named and the others not capturing, and how many groups
    it has."""
    parts: list[str] = []
    groups = 0
    for part, captures in _parts(expression):
        if captures:
            groups += 1
            part = f"(?P<{_FIRST}>" if groups == 1 else "(?:"
        parts.append(part)
    return "".join(parts), groups


def _parts(expression: str) -> Iterator[tuple[str, bool]]:
    """Yield the expression in pieces, and whether a piece begins a group that captures."""
    at = 0
    while at < len(expression):
        rest = expression[at:]
        if rest[0] == "\\":
            piece, captures = rest[:2], False
        elif rest[0] == "[":
            piece, captures = _class(rest), False
        elif rest.startswith(("(?P<", "(?<")) and rest[3:4] not in "=!" and ">" in rest:
            piece, captures = rest[: rest.index(">") + 1], True
        elif rest[0] == "(" and not rest.startswith("(?"):
            piece, captures = "(", True
        else:
            piece, captures = rest[0], False
        yield piece, captures
        at += len(piece)


def _class(text: str) -> str:
    """The class of characters at the beginning of a text; the whole text if it does not end."""
    at = 2 if text.startswith("[^") else 1
    at += text[at : at + 1] == "]"  # the first one is a character
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return text[: at + 1]
