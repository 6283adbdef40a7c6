"""Reductions in words, and the scenario that a search ends with as a commented file. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from experiments.shrink.reductions import BEFORE, BEHIND, Reduction, Shape
from harness.rundir import Document
from harness.validation import Location, dotted

_CALM: Final = {BEFORE: "before the first fault", BEHIND: "after the last fault"}
#: Mappings that are short are written in one line, as people write a fault step.
_SHORT: Final = 90


def changes(shape: Shape, before: Collection[Reduction], after: Collection[Reduction]) -> str:
    """Return what more reductions remove: ``without faults[1] (leader-move), load.rate 3125``."""
    gone = shape.gone(after) - shape.gone(before)
    outer = [at for at in sorted(gone, key=str) if not any(at[:n] in gone for n in range(len(at)))]
    left_out = [part_text(shape.data, at) for at in outer]
    old, new = shape.chosen(before), shape.chosen(after)
    inside = shape.gone(after)
    changed = [
        value_text(at, value)
        for at, value in new.items()
        if old.get(at) != value and not any(at[:n] in inside for n in range(1, len(at) + 1))
    ]
    return ", ".join([*(["without " + ", ".join(left_out)] if left_out else []), *changed])


def part_text(data: Document, at: Location, *, whole: bool = False) -> str:
    """A part by its key path; a fault with its kind. ``whole``: with all that was written there."""
    value: Any = data
    for key in at:
        value = value[key]
    if whole:
        return f"{dotted(at)}: {_flow(value)}"
    kind = value.get("fault") if isinstance(value, dict) else None
    return dotted(at) + (f" ({kind})" if kind else "")


def value_text(at: Location, value: Any) -> str:
    """``load.rate 3125``; of a step that fires once, so much."""
    if at in _CALM:
        return f"{value:g} s of load {_CALM[at]}"
    return f"{dotted(at)} once" if isinstance(value, dict) else f"{dotted(at)} {value}"


def lower_text(at: Location, value: Any) -> str:
    """Return how much more a number was: ``more than load.rate 3125``."""
    if at[0] == "faults" and at[-1] == "target":
        return f"a random {dotted(at)}: {value} does"
    return f"more than {value_text(at, value)}"


def file_text(
    data: Document, head: Sequence[str], comments: Mapping[Location, Sequence[str]]
) -> str:
    """A scenario file: lines of a comment at its head, others above the keys that they are
    about."""
    # A line of a comment may hold words of a file from somebody else: it stays a comment.
    lines = [f"# {part}".rstrip() for line in head for part in line.splitlines() or [""]]
    lines += _lines(data, (), comments)
    return "\n".join(lines) + "\n"


def _lines(
    value: Document, at: Location, comments: Mapping[Location, Sequence[str]]
) -> Iterator[str]:
    indent = "  " * len(at)
    for key, inner in value.items():
        here = (*at, key)
        if inner in ({}, []):
            continue
        yield from (f"{indent}# {' '.join(text.split())}" for text in comments.get(here, ()))
        name = _flow(key)
        is_commented = any(len(path) > len(here) and path[: len(here)] == here for path in comments)
        if isinstance(inner, list) and inner and isinstance(inner[0], Mapping):
            yield f"{indent}{name}:"
            for index, item in enumerate(inner):
                yield from (f"{indent}  # {text}" for text in comments.get((*here, index), ()))
                yield f"{indent}  - {_flow(item)}"
        elif (
            isinstance(inner, dict)
            and inner
            and (is_commented or len(_flow(inner)) > _SHORT or not at)
        ):
            yield f"{indent}{name}:"
            yield from _lines(inner, here, comments)
        else:
            yield f"{indent}{name}: {_flow(inner)}"


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
