"""Rate profiles: which share of `load.rate` is asked for when.

A profile becomes a table of (seconds, share of the rate) over the load, in which the share stays
the same in each row: a ramp or a sine in steps of a tenth of a second or so. That table is the load
that is asked for; the plan has it, the clients follow it, and the rate that was achieved is held
against it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from harness.durations import Seconds
from harness.errors import UsageError
from harness.rundir import path_below, read_text
from harness.scenario.part import Part
from harness.scenario.ratio import Ratio

#: Seconds and share of the rate, one row after the other.
Table = list[tuple[float, float]]
#: What a ramp or a sine is cut into: as fine as the finest timeline of a report.
STEP_S: Final = 0.1
#: Steps of a ramp, or of one period of a sine; they are as wide as that takes.
MOST_STEPS: Final = 200
#: Rows of a table: every worker has them in its spec.
MOST_ROWS: Final = 5_000
#: A table of that many rows is far smaller.
_MOST_CSV_BYTES: Final = 4 << 20

_Above0 = Annotated[Seconds, Field(gt=0)]


class Ramp(Part):
    """From one share of the rate to another, which it keeps from then on."""

    from_: Ratio = Field(0.0, alias="from", description="share of the rate at the start of load")
    to: Ratio = Field(1.0, description="share of the rate at its end")
    over: Seconds = Field(0.0, description="how long it takes; 0 = the whole load")

    def table(self, load_s: float) -> Table:
        """Return the ramp as a table of shares of the rate."""
        over_s = min(self.over or load_s, load_s)
        climb = self.to - self.from_
        return _sliced(over_s, lambda part: self.from_ + climb * part) + _rest(
            load_s - over_s, self.to
        )


class Burst(Part):
    """The whole rate now and then, and a share of it in between."""

    base: Ratio = Field(0.1, description="share of the rate between two bursts")
    every: _Above0 = Field(
        description="from one burst to the next; the first comes at the end of the first"
    )
    lasts: _Above0 = Field(description="of a burst")

    def table(self, load_s: float) -> Table:
        """Return the bursts as a table of shares of the rate."""
        if self.lasts >= self.every:
            raise ValueError("lasts must be less than every")
        one = [(self.every - self.lasts, self.base), (self.lasts, 1.0)]
        return _repeated(one, self.every, load_s)


class Sine(Part):
    """Up and down between a share of the rate and the whole, beginning at the bottom."""

    low: Ratio = Field(0.1, description="share of the rate at the bottom")
    period: _Above0 = Field(description="from bottom to bottom")

    def table(self, load_s: float) -> Table:
        """Return the sine as a table of shares of the rate."""
        swing = (1 - self.low) / 2
        one = _sliced(
            self.period, lambda part: self.low + swing * (1 - math.cos(2 * math.pi * part))
        )
        return _repeated(one, self.period, load_s)


class Profile(Part):
    """Which share of ``load.rate`` is asked for when; one of its keys."""

    ramp: Ramp | None = Field(None, description="from one share of the rate to another")
    steps: list[Ratio] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="shares of the rate, each for as long as the next: `[25%, 50%, 100%]`",
    )
    burst: Burst | None = Field(None, description="the whole rate now and then")
    sine: Sine | None = Field(None, description="up and down, as over a day")
    csv: str | None = Field(
        None,
        description="file next to the scenario with a line `seconds,rate` for each change; the highest rate "
        "in it, in whatever unit, is `load.rate`",
    )

    def table(self, load_s: float, folder: Path) -> Table:
        """The table, which covers the load.

        Args:
            folder: the scenario's, for `csv`.

        Raises:
            ValueError: not one key, or values that do not fit each other or the load; what is
                allowed.
        """
        given = sorted(self.model_fields_set)
        if len(given) != 1:
            raise ValueError(f"must have one of {', '.join(type(self).model_fields)}")
        if self.csv is not None:
            made = _from_csv(folder, self.csv, load_s)
        elif self.steps is not None:
            made = [(load_s / len(self.steps), share) for share in self.steps]
        else:
            shape = self.ramp or self.burst or self.sine
            if shape is None:
                raise ValueError(f"{given[0]} needs keys")
            made = shape.table(load_s)
        if len(made) > MOST_ROWS:
            raise ValueError(
                f"makes {len(made):,} rows for a load of {load_s:g} s; at most {MOST_ROWS:,}"
            )
        if not any(share for _, share in made):
            raise ValueError("asks for no message at all")
        return [(seconds, round(share, 9)) for seconds, share in made]


def _sliced(seconds: float, share_at: Callable[[float], float]) -> Table:
    """Slices of equal width with the share in the middle of each; ``share_at`` takes 0..1."""
    count = max(1, min(MOST_STEPS, round(seconds / STEP_S)))
    return [(seconds / count, share_at((k + 0.5) / count)) for k in range(count)]


def _rest(seconds: float, share: float) -> Table:
    return [(seconds, share)] if seconds > 0 else []


def _repeated(one: Table, period_s: float, load_s: float) -> Table:
    """One period after the other until the load is over."""
    if load_s / period_s * len(one) > MOST_ROWS:
        least = load_s * len(one) / MOST_ROWS
        raise ValueError(
            f"must repeat no more often than every {least:.3g} s in a load of {load_s:g} s"
        )
    made: Table = []
    left = load_s
    while left > 1e-9:
        for seconds, share in one:
            made += _rest(min(seconds, left), share)
            left -= seconds
            if left <= 1e-9:
                break
    return made


# ----- files --------------------------------------------------------------------------------------


def _from_csv(folder: Path, name: str, load_s: float) -> Table:
    try:
        path = path_below(folder, name)
        rows = list(_rows(read_text(path, _MOST_CSV_BYTES), path.name))
    except UsageError as error:
        raise ValueError(str(error)) from None
    except csv.Error as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    times, rates = [time for time, _ in rows], [rate for _, rate in rows]
    if not rows or times[0] != 0:
        raise ValueError(f"{path.name} must begin with a line for second 0")
    back = next((pair for pair in pairwise(times) if pair[1] <= pair[0]), None)
    if back is not None:
        raise ValueError(
            f"{path.name}: second {back[1]:g} comes after {back[0]:g}; lines go forward in time"
        )
    if times[-1] >= load_s:
        raise ValueError(
            f"{path.name} continues at second {times[-1]:g}, after the end of a load of {load_s:g} "
            "s"
        )
    highest = max(rates) or 1.0
    ends = [*times[1:], load_s]
    return [
        (end - time, rate / highest) for time, end, rate in zip(times, ends, rates, strict=True)
    ]


def _rows(text: str, name: str) -> Iterator[tuple[float, float]]:
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row or (number == 1 and [cell.strip() for cell in row] == ["seconds", "rate"]):
            continue
        numbers = _numbers(row)
        if numbers is None:
            raise ValueError(f"{name}, line {number}: must be seconds,rate, two numbers from 0")
        yield numbers


def _numbers(row: Sequence[str]) -> tuple[float, float] | None:
    try:
        seconds, rate = (float(cell) for cell in row)
    except ValueError:
        return None
    is_good = math.isfinite(seconds) and math.isfinite(rate) and seconds >= 0 and rate >= 0
    return (seconds, rate) if is_good else None
