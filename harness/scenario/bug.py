"""The `bug` part of a scenario: where it was reported, which variants to compare, what must have
happened.

A bug is an ordinary scenario whose variants are the arms: one `expect`s the class of the bug, the
other is expected clean, and both meet the same seeds and the same faults. `exposure` says what a
round must have met to count; a round in which the bug had no chance proves nothing about either
version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, Field

from harness.errors import did_you_mean
from harness.scenario.part import Name, Part


class ExposureSpec(Part):
    """A counter of the run, and the least it must show for a round to count."""

    counter: str = Field(
        description="what the bug needs, a counter of docs/explanation/anomalies.md"
    )
    floor: int = Field(1, ge=1, description="a round with less is not counted and is run again")


class PairSpec(Part):
    """Two variants to compare: the one that has the bug and the one that does not."""

    affected: Name = Field(description="the variant that expects the class of the bug")
    fixed: Name = Field(description="the variant that is expected clean")
    about: str = Field("", description="description in one line")


def _link(text: str) -> str:
    if text == "none":
        return ""
    if not re.match(r"https?://[^/\s]+/\S*$", text):
        raise ValueError("must be a link, https://..., or none")
    return text


class BugSpec(Part):
    """A known bug, for `brokerstorm repro`."""

    report: Annotated[str, AfterValidator(_link)] = Field(
        description="link to the report or the fix, or `none` if it was not reported"
    )
    exposure: ExposureSpec | None = Field(
        None,
        description="what a round must have met to count; only a bug that needs no fault can be without",
    )
    witness: str = Field(
        "",
        description="a text that tells it from other bugs of its class: in the call that a client waits in, "
        "in an error or in a line of a client's log",
    )
    pairs: dict[Name, PairSpec] = Field(
        min_length=1,
        description="by a name of your own; the first is run unless --pair names another",
    )


class Variant(Protocol):
    """The part of a variant that a bug is checked against."""

    @property
    def expect(self) -> str: ...
    @property
    def override(self) -> Mapping[str, Any]:
        """The scenario keys that this variant changes, with their values."""


Problem = tuple[tuple[str | int, ...], str]
CLEAN = "clean"


def bug_problems(
    bug: BugSpec,
    variants: Mapping[str, Variant],
    counters: Collection[str] | None,
    *,
    has_faults: bool,
) -> Iterator[Problem]:
    """Yield the contradictions between a bug and the variants of its scenario: (key path, what is
    wrong).

    Args:
        counters: the exposure counters there are; None = not checked.
        has_faults: the scenario has some, whatever its variants have.
    """
    if bug.exposure is None and (
        has_faults or any("faults" in each.override for each in variants.values())
    ):
        yield (
            ("bug",),
            "needs exposure: a fault may come to nothing, and then a round proves nothing",
        )
    counter = bug.exposure.counter if bug.exposure else ""
    if bug.exposure and counters is not None and counter not in counters:
        yield ("bug", "exposure", "counter"), f"is not a counter; {did_you_mean(counter, counters)}"
    for name, pair in bug.pairs.items():
        for role in ("affected", "fixed"):
            at = ("bug", "pairs", name, role)
            chosen = getattr(pair, role)
            if chosen not in variants:
                yield at, f"is not a variant; {did_you_mean(chosen, variants)}"
            elif role == "affected" and variants[chosen].expect == CLEAN:
                yield (
                    at,
                    "must be a variant that expects the class of the bug, and this one expects clean",
                )
            elif role == "fixed" and variants[chosen].expect != CLEAN:
                yield (
                    at,
                    f"must be a variant that expects clean, and this one expects {variants[chosen].expect}",
                )
