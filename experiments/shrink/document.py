"""The scenario that a search ended with, as a file whose comments say what was needed and what was
not."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.shrink.reductions import BEFORE, BEHIND, Reduction
from experiments.shrink.search import Search
from experiments.shrink.words import file_text, lower_text, part_text, value_text
from harness.rundir import Document
from harness.validation import Location

#: The one variant of the file: what it must show is kept with it.
VARIANT = "smallest"


#: The variant of a known bug that does not show it.
FIXED = "fixed"


def smallest_text(
    search: Search,
    *,
    command: str,
    day: str,
    fixed: Document | None = None,
    bug: Document | None = None,
) -> str:
    """The file.

    Args:
        command: what made it.
        day: when, for people.
        fixed: of a known bug, the whole scenario with the fixed version.
        bug: the key ``bug`` of its scenario, without pairs.
    """
    about = {"about": f"the smallest scenario found that shows {search.cls}"}
    variants: Document = {VARIANT: {"expect": search.cls}}
    pair: Document = {}
    change = (
        _fitting(difference(search.shape.data, fixed), search.smallest) if fixed and bug else {}
    )
    # Another list of faults was never played with the smaller scenario.
    if bug and change and "faults" not in change:
        variants[FIXED] = {"override": change}
        pair = {
            "bug": {**bug, "pairs": {f"{VARIANT}-{FIXED}": {"affected": VARIANT, "fixed": FIXED}}}
        }
    data: Document = {**search.smallest, **about, **pair, "variants": variants}
    return file_text(data, _head(search, command, day), _comments(search))


def difference(before: Document, after: Document) -> Document:
    """The merge patch that makes one document of the other."""
    patch: Document = {}
    for key in (*before, *(key for key in after if key not in before)):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := difference(old, new):
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch


def _fitting(patch: Document, data: Document) -> Document:
    """Return the part of a patch that concerns parts that the data still has."""
    kept: Document = {}
    for key, change in patch.items():
        if not isinstance(change, dict):
            kept[key] = change
        elif isinstance(data.get(key), dict) and (inner := _fitting(change, data[key])):
            kept[key] = inner
    return kept


def left_out(search: Search) -> list[str]:
    """Return what was not needed, one line each: parts that were removed, and numbers that are
    lower."""
    shape, applied = search.shape, search.applied
    gone = shape.gone(applied)
    outer = [at for at in gone if not any(at[:n] in gone for n in range(len(at)))]
    order = {each.at: number for number, each in enumerate(shape.reductions)}
    lines = [
        part_text(shape.data, at, whole=True) for at in sorted(outer, key=lambda at: order[at])
    ]
    lower = {at: value for at, value in shape.chosen(applied).items() if not _is_inside(at, gone)}
    return lines + [lower_text(at, value) for at, value in lower.items()]


def not_tried(search: Search) -> int:
    """Parts of the smallest scenario that were not asked about in time."""
    return sum(search.answer(each) is None for each in search.shape.left(search.applied))


def _head(search: Search, command: str, day: str) -> Sequence[str]:
    lines = [
        f"The smallest scenario found that shows {search.cls}, made on {day} by",
        f"  {command}",
        *(["Not needed:", *(f"  {line}" for line in left_out(search))] if left_out(search) else []),
    ]
    if not search.is_whole:
        lines.append("The time was over before all was tried; what was not is marked.")
    return [*lines, ""]


def _comments(search: Search) -> dict[Location, list[str]]:
    """Above each part that is left, why."""
    comments: dict[Location, list[str]] = {}
    for each in search.shape.left(search.applied):
        at = _place(search, each.at)
        text = _why_left(search, each)
        if text not in comments.setdefault(at, []):
            comments[at].append(text)
    return comments


def _why_left(search: Search, reduction: Reduction) -> str:
    answer = search.answer(reduction)
    if reduction.step:
        chosen = search.shape.chosen(search.applied | {reduction})
        smaller = value_text(reduction.at, chosen[reduction.at])
        return f"{smaller}: {answer.said}" if answer else f"not tried: {smaller}"
    if answer is None:
        return "not tried without it"
    return f"needed: without it {answer.said}"


def _place(search: Search, at: Location) -> Location:
    """The place of a part of the scenario in the smaller one: of a list, what was before it may be
    gone."""
    if at in (BEFORE, BEHIND):
        return at[:-1]
    gone, place = search.shape.gone(search.applied), at[:2]
    if at[0] != "faults":
        return at
    before = sum((*place[:1], index) in gone for index in range(int(place[1])))
    return (place[0], int(place[1]) - before)


def _is_inside(at: Location, gone: set[Location]) -> bool:
    return any(at[:n] in gone for n in range(1, len(at) + 1))
