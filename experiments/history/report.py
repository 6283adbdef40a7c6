"""Puts the morning's report together: headline, findings, matrix, trends, and what did not run.

`SuiteReport` is the public JSON document (schema_version 1;
experiments/history/schemas/report.json). The page, the job summary and JUnit are made from it and
from nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from analysis.report import words
from analysis.verdict.campaign import CLEAN
from experiments.history.changes import RECENT, Change, ClassState, Standing, Story, story_of
from experiments.history.decision import Decision
from experiments.history.rounds import HUNT_JUDGED, Found, Round
from experiments.history.series import METRICS, figures, shown
from experiments.history.store import History
from harness.errors import Exit, FailOn, UsageError

SCHEMA_VERSION: Final = 1
#: Words of a cell's night, the worst first. *broken*: it ended without a verdict.
WORDS: Final = ("fail", "broken", "unknown", "pass", "not run")
#: Nights of which trends are drawn.
TREND: Final = 365
_ORDER: Final = (Standing.NEW, Standing.FIRST, Standing.STILL, Standing.FLAKY, Standing.FIXED)
#: Words of nights that say nothing of what a cell was before.
_SILENT: Final = {"not run", "broken", "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """A round of the night: what the matrix links."""

    round: int
    seed: int | None
    word: str
    is_sticky: bool
    folder: str
    reasons: list[str]
    classes: list[str]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """A cell of the matrix.

    ``counts``: it makes the exit code what it is. ``strip``: its word on each of the last 30
    nights, oldest first. ``duration_s``: of all its rounds of the night.
    """

    cell: str
    scenario: str
    client: str
    client_version: str | None
    system: str
    broker_version: str | None
    runtime: str
    is_control: bool
    word: str
    counts: bool
    strip: list[str]
    rounds: list[RoundRow]
    duration_s: float
    rate_per_s: float | None
    p99_ms: float | None
    outage_s: float | None
    recovery_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """A class in a cell with its latest witness, and how to repeat the round that shows it."""

    state: ClassState
    change: Change | None  # that the morning tells
    found: Found | None
    night: str  # of that witness
    seed: int | None
    folder: str
    command: str
    sticky: list[str] = field(default_factory=list)  # what sticky seeds showed tonight


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A figure of a cell, one value a night (null: none); its changes are in the report's
    ``changes``."""

    cell: str
    metric: str
    unit: str
    values: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """A client or the brokers of a system at another version than the night before: what may
    explain all the rest."""

    name: str
    before: str
    after: str
    cells: list[str]

    @property
    def text(self) -> str:
        """``sarama went from 1.43.2 to 1.43.3 (2 cells)``."""
        count = f"{len(self.cells)} {'cell' if len(self.cells) == 1 else 'cells'}"
        return f"{self.name} went from {self.before} to {self.after} ({count})"


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntNight:
    """What a hunt did in one night.

    Attributes:
        rounds: that were judged.
        features: different ones that its rounds showed.
        new_features: the ones among them that no scenario of the corpus had before this night.
        entries: scenarios of its corpus after this night.
        new_entries: the ones among them that the corpus did not have before.
    """

    cell: str
    night: str
    word: str
    rounds: int
    features: int
    new_features: int
    entries: int
    new_entries: int

    @property
    def text(self) -> str:
        """Return the numbers as a sentence."""
        return (
            f"{self.rounds} rounds, {self.features} features ({self.new_features} new), "
            f"{self.new_entries} new scenarios, {self.entries} in the corpus"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """One morning's report. ``words``: cells of the night by word. ``verdict``: fail, unknown or
    pass, and ``exit_code``: as ``fail_on`` decides."""

    suite: str
    night: str
    verdict: str
    exit_code: int
    fail_on: FailOn
    headline: str
    counts: str
    words: dict[str, int]
    findings: list[FindingRow]
    changes: list[Change]  # every one ever told, oldest first
    cells: list[CellRow]
    trends: list[Trend]
    trend_nights: list[str]
    strip_nights: list[str]
    not_run: dict[str, str]  # cell -> why
    comparisons: dict[str, int]
    notes: list[str] = field(default_factory=list)
    hunts: list[HuntNight] = field(default_factory=list)  # by cell, the newest night first
    # since the night before, of each cell
    versions: list[VersionChange] = field(default_factory=list)
    kind: str = "suite-report"
    schema_version: int = SCHEMA_VERSION

    @property
    def fresh(self) -> list[Change]:
        """The changes of this morning, the machine's included."""
        return [change for change in self.changes if change.told == self.night]


def night_of(
    history: History,
    suite: str | None = None,
    night: str | None = None,
    *,
    begun: Sequence[tuple[str, str]] = (),
) -> tuple[str, str]:
    """(suite, night): the last night of the suite that ran last, unless others are named.

    Args:
        begun: (suite, night) of the nights of this machine that were ended early, the newest first;
            the history has none that ended before its first round was over.

    Raises:
        UsageError: the suite or night does not exist.
    """
    suites = history.suites()
    newest = next(
        (each for each in begun[:1] if each[1] > max(history.nights(each[0]), default="")), None
    )
    usual = newest[0] if newest else next(iter(suites), None)
    wanted = suite if suite is not None else usual
    own = [each for name, each in begun if name == wanted]
    if wanted is None or (wanted not in suites and not own):
        what = "is empty" if wanted is None else f"has no suite {wanted!r}"
        hint = (
            f"there are {', '.join(suites)}"
            if suites
            else "`brokerstorm history import RUN` fills it"
        )
        raise UsageError(f"the history {history.path} {what}", hint=hint)
    nights = sorted({*history.nights(wanted), *own})
    last = night if night is not None else nights[-1]
    if last not in nights:
        raise UsageError(
            f"no night {last!r} of {wanted}", hint=f"the last ones are {', '.join(nights[-5:])}"
        )
    return wanted, last


def read_report(
    history: History,
    suite: str,
    night: str,
    *,
    fail_on: FailOn = "any",
    unplayed: Mapping[str, str] | None = None,
) -> SuiteReport:
    """The report of a night that the history has.

    Args:
        unplayed: cell -> why it did not run to its end, of a night that was ended early; None = it
            is over.
    """
    nights = sorted({*history.nights(suite), night})
    since = nights[max(0, nights.index(night) + 1 - TREND)]
    rounds = history.rounds(suite, since=since, until=night)
    skipped = {**history.skipped(night, suite), **(unplayed or {})}
    return report_of(
        suite,
        night,
        rounds,
        skipped,
        fail_on=fail_on,
        notes=history.notes,
        is_whole=unplayed is None,
    )


def report_of(
    suite: str,
    night: str,
    rounds: Sequence[Round],
    not_run: Mapping[str, str],
    *,
    fail_on: FailOn = "any",
    notes: Sequence[str] = (),
    is_whole: bool = True,
) -> SuiteReport:
    """The report of a night from all rounds until it. Pure.

    Args:
        is_whole: the night is over; one that was ended early passes nothing.
    """
    story = story_of(rounds)
    nights = sorted({*story.nights, night})
    cells = _cells(rounds, night, nights[-RECENT:])
    findings = _findings(story, rounds, night)
    fresh = [change for change in story.changes if change.told == night]
    broken = {row.exit_code or 0 for row in rounds if row.night == night and row.verdict is None}
    decided = Decision.from_words(
        {row.cell: row.word for row in cells}, broken, new_cells(fresh, cells), fail_on
    )
    if not is_whole and decided.exit_code == Exit.PASS and fail_on != "none":
        decided = replace(decided, exit_code=Exit.UNKNOWN)
    cells = [replace(row, counts=row.cell in decided.counted) for row in cells]
    counted = Counter(row.word for row in cells)
    counts = _counts(cells, fail_on)
    versions = _versions(rounds, night)
    first = [each.text for each in versions[:2]]
    if len(versions) > len(first):
        first.append(f"{len(versions) - len(first)} more other versions")
    if not is_whole:
        cell = "cell" if len(not_run) == 1 else "cells"
        first.insert(0, f"ended early, {len(not_run)} {cell} not played to the end")
    told = f"{counts}: {_told(findings, fresh, is_first=len(nights) < 2)}"
    return SuiteReport(
        suite=suite,
        night=night,
        verdict=decided.verdict,
        exit_code=decided.exit_code,
        fail_on=fail_on,
        headline="; ".join([*first, told]),
        counts=counts,
        words={word: counted[word] for word in WORDS if counted[word]},
        findings=findings,
        changes=story.changes,
        cells=cells,
        trends=_trends(rounds, nights[-TREND:]),
        trend_nights=nights[-TREND:],
        strip_nights=nights[-RECENT:],
        not_run=dict(not_run),
        comparisons=story.comparisons,
        notes=list(notes),
        hunts=_hunts(rounds, nights[-RECENT:]),
        versions=versions,
    )


def _hunts(rounds: Sequence[Round], nights: Sequence[str]) -> list[HuntNight]:
    found = [
        HuntNight(
            cell=row.cell,
            night=row.night,
            word=word_of(row),
            rounds=row.exposure[HUNT_JUDGED],
            features=row.exposure.get("hunt_features", 0),
            new_features=row.exposure.get("hunt_new_features", 0),
            entries=row.exposure.get("hunt_entries", 0),
            new_entries=row.exposure.get("hunt_new_entries", 0),
        )
        for row in rounds
        if row.night in nights and HUNT_JUDGED in row.exposure
    ]
    newest_first = sorted(found, key=lambda each: each.night, reverse=True)
    return sorted(newest_first, key=lambda each: each.cell)


def _versions(rounds: Sequence[Round], night: str) -> list[VersionChange]:
    """Clients and brokers whose version is another one than when their cell ran last."""
    latest: dict[str, Round] = {}
    tonight: dict[str, Round] = {}
    for row in rounds:
        if row.night == night:
            tonight[row.cell] = row
        elif row.verdict is not None and (
            row.cell not in latest or row.night >= latest[row.cell].night
        ):
            latest[row.cell] = row
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for cell, now in tonight.items():
        before = latest.get(cell)
        if before is None:
            continue
        pairs = [(f"{now.system} brokers", before.broker_version, now.broker_version)]
        if before.client == now.client:
            pairs.insert(0, (now.client, before.client_version, now.client_version))
        for name, old, new in pairs:
            if old and new and old != new:
                found[name, old, new].append(cell)
    return [
        VersionChange(name=name, before=old, after=new, cells=cells)
        for (name, old, new), cells in sorted(found.items())
    ]


def new_cells(fresh: Sequence[Change], cells: Sequence[CellRow]) -> set[str]:
    """Cells in which a class is worse since this night, and not because of the machine; and red
    ones that no night before says anything of: nothing says that it is old."""
    told = {
        change.cell
        for change in fresh
        if change.kind == "class" and change.is_worse and not change.machine
    }
    return told | {row.cell for row in cells if row.word == "fail" and {*row.strip[:-1]} <= _SILENT}


def word_of(row: Round) -> str:
    """A round in one word. A variant that is expected to show a class passes when it shows it and
    nothing else; when it does not, that proves nothing."""
    if row.verdict is None:
        return "broken"
    if row.expect in ("", CLEAN):
        return row.verdict
    classes = shown(row)
    if classes - {row.expect}:
        return "fail"
    return "pass" if classes else "unknown"


def word_of_night(rows: Sequence[Round]) -> str:
    """The worst word of a cell's rounds. A variant need not show in all of them what it is expected
    to."""
    words = [word_of(row) for row in rows]
    if "pass" in words and all(row.expect not in ("", CLEAN) for row in rows):
        words = [word for word in words if word != "unknown"]
    return min(words, key=WORDS.index, default="not run")


def _took_s(row: Round) -> float:
    """Time of a round; of one that broke, between its ends."""
    if row.duration_s is not None:
        return row.duration_s
    if not (row.started and row.ended):
        return 0.0
    return (datetime.fromisoformat(row.ended) - datetime.fromisoformat(row.started)).total_seconds()


def _cells(rounds: Sequence[Round], night: str, strip: Sequence[str]) -> list[CellRow]:
    by_cell: dict[str, dict[str, list[Round]]] = defaultdict(lambda: defaultdict(list))
    for row in rounds:
        by_cell[row.cell][row.night].append(row)
    levels = figures(row for row in rounds if row.night == night)
    made = []
    for cell, nights in sorted(by_cell.items()):
        if not any(each in nights for each in strip):
            continue
        tonight, latest = nights.get(night, []), nights[max(nights)][-1]
        value = {metric.name: levels.get((cell, metric.name), {}).get(night) for metric in METRICS}
        made.append(
            CellRow(
                cell=cell,
                scenario=latest.scenario,
                client=latest.client,
                client_version=latest.client_version,
                system=latest.system,
                broker_version=latest.broker_version,
                runtime=latest.runtime,
                is_control=latest.is_control,
                word=word_of_night(tonight),
                counts=False,  # `Decision` says
                strip=[word_of_night(nights.get(each, [])) for each in strip],
                rounds=[_round_row(row) for row in tonight],
                duration_s=round(sum(map(_took_s, tonight)), 3),
                rate_per_s=value["rate"],
                p99_ms=value["p99"],
                outage_s=value["outage"],
                recovery_s=value["recovery"],
            )
        )
    return sorted(made, key=lambda row: (WORDS.index(row.word), row.cell))


def _round_row(row: Round) -> RoundRow:
    word = word_of(row)
    is_silent = word == "unknown" and row.verdict == "pass"
    return RoundRow(
        round=row.round,
        seed=row.seed,
        word=word,
        is_sticky=row.is_sticky,
        folder=row.folder,
        reasons=[f"{row.expect}, which it is expected to show, did not show"]
        if is_silent
        else row.reasons,
        classes=sorted(shown(row)),
        command=row.command,
    )


def _findings(story: Story, rounds: Sequence[Round], night: str) -> list[FindingRow]:
    """New first, then by what is left to look at; an expected class is a finding only if it
    changed."""
    made = []
    for state in story.states:
        of_it = [
            change
            for change in story.fresh
            if (change.cell, change.subject) == (state.cell, state.cls)
        ]
        if state.is_expected and not of_it:
            continue
        own = [row for row in rounds if row.cell == state.cell]
        hit = max((row for row in own if state.cls in shown(row)), key=_when, default=None)
        found = next((each for each in hit.found if each.cls == state.cls), None) if hit else None
        sticky = [
            f"seed {row.seed}: {'shows it again' if state.cls in shown(row) else word_of(row)}"
            for row in own
            if row.is_sticky and row.night == night
        ]
        made.append(
            FindingRow(
                state=state,
                change=of_it[0] if of_it else None,
                found=found,
                night=hit.night if hit else "",
                seed=hit.seed if hit else None,
                folder=hit.folder if hit else "",
                command=hit.command if hit else "",
                sticky=sticky,
            )
        )
    return sorted(made, key=lambda row: (_ORDER.index(row.state.standing), row.state.cell))


def _when(row: Round) -> tuple[str, bool, int]:
    return row.night, not row.is_sticky, row.round


def _trends(rounds: Sequence[Round], nights: Sequence[str]) -> list[Trend]:
    known = figures(rounds)
    units = {metric.name: metric.unit for metric in METRICS}
    return [
        Trend(
            cell=cell,
            metric=metric,
            unit=units[metric],
            values=[None if (v := values.get(night)) is None else round(v, 3) for night in nights],
        )
        for (cell, metric), values in sorted(known.items())
    ]


# ----- the headline -------------------------------------------------------------------------------


def _counts(cells: Sequence[CellRow], fail_on: FailOn) -> str:
    """Cells by word, and how many of the red ones count: ``4 fail (none new), 2 pass``."""
    said = []
    for word in WORDS:
        of_it = [row for row in cells if row.word == word]
        counted = sum(row.counts for row in of_it)
        note = f" ({counted or 'none'} new)" if fail_on == "new" else " (not counted)"
        is_whole = word != "fail" or counted == len(of_it)
        said += [f"{len(of_it)} {word}{'' if is_whole else note}"] if of_it else []
    return ", ".join(said) or "no cell ran"


def _told(findings: Sequence[FindingRow], fresh: Sequence[Change], *, is_first: bool) -> str:
    """Return the most important news of the nightly run, in one sentence."""
    own = [change for change in fresh if not change.machine]
    worse = [change for change in own if change.is_worse]
    better = [change for change in own if not change.is_worse]
    said = [change_text(change) for change in (*worse, *better)]
    if len(said) > 2:
        said = [*said[:2], f"{len(said) - 2} more"]
    machine = [change for change in fresh if change.machine]
    if machine:
        cells = len({change.cell for change in machine})
        said.append(
            f"the machine is another one than before ({cells} {'cell' if cells == 1 else 'cells'})"
        )
    said = ["the first night", *said] if is_first else said
    first = [row.state for row in findings if row.state.standing is Standing.FIRST]
    if first:
        more = f" and {len(first) - 1} more" if len(first) > 1 else ""
        said.append(
            f"{first[0].cls} first seen in "
            f"{first[0].cell}{more}{'' if is_first else ', not proved new'}"
        )
    return "; ".join(said or ["nothing new"])


def change_text(change: Change) -> str:
    """A change in a few words: ``acked-lost is new in A since 2026-11-20 (0 of 30 rounds, then 3 of
    3)``."""
    if change.kind == "class":
        before, after = change.before, change.after
        assert not isinstance(before, float | int)
        assert not isinstance(after, float | int)
        word = "is new" if change.is_up else "is gone" if after.hits == 0 else "is rarer"
        rates = f"{before.hits} of {before.rounds} rounds, then {after.hits} of {after.rounds}"
        return f"{change.subject} {word} in {change.cell} since {change.at} ({rates})"
    assert isinstance(change.before, float | int)
    assert isinstance(change.after, float | int)
    old, new = figure_text(change.subject, change.before), figure_text(change.subject, change.after)
    return f"{change.subject} of {change.cell} went from {old} to {new} at {change.at}"


def figure_text(metric: str, value: float | None) -> str:
    """A figure with its unit: ``49,998/s``, ``81 ms``, ``0.5 s``."""
    if value is None:
        return "–"
    if metric == "rate":
        return words.per_second(value)
    return words.millis(value) if metric == "p99" else words.seconds(value)
