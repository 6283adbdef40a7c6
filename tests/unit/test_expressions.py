"""An expression of a user: its first group is found, and no text takes long."""

from __future__ import annotations

import pytest

from harness.expressions import first_group


@pytest.mark.parametrize(
    ("expression", "text", "found"),
    [
        (r"id=(\S+)", "x id=1/0/42 y", "1/0/42"),
        (r"id=(\S+) (\d+)", "id=a 7", "a"),
        (r"(?:order|invoice)-(?P<number>\d+)", "invoice-7", "7"),
        (r"\((\d+)\)", "f(3)", "3"),
        (r"[(\]](\w)", "](x", "x"),
        (r"[]](\d)", "]5", "5"),
        (r"id=(\S+)", "nothing", ""),
        (r"((.+)+)Z$", "a" * 5_000, ""),  # years in the module re
    ],
)
def test_the_first_group_is_found(expression: str, text: str, found: str) -> None:
    assert first_group(expression)(text) == found


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("id=", "needs a group in parentheses"),
        ("(a", "must be a regular expression of RE2"),
        ("(?<=a)(b)", "must be a regular expression of RE2"),
        (r"(a)\1", "must be a regular expression of RE2"),
        ("(a{1001})", "must be a regular expression of RE2"),
    ],
)
def test_what_cannot_be_searched_is_refused(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        first_group(expression)
