"""A hunt, round by round: choose an entry of the corpus, change it, play it, keep it if it showed
something new.

The same seed and the same outcomes give the same requests, so a hunt is continued as every
experiment is. Entries with features that few rounds had are chosen more often, as greybox fuzzers
do (M. Böhme, V. Pham, A. Roychoudhury, Coverage-based Greybox Fuzzing as Markov Chain, CCS 2016).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

from analysis.findings import Status
from experiments.experiment import OutOfBudget, RoundRequest, Strategy
from experiments.hunt.changes import Choices, changed
from experiments.hunt.conduct import STRANGE
from experiments.hunt.corpus import CorpusEntry, name_of
from experiments.hunt.features import ERROR, LOG, features_of
from experiments.judging import RoundOutcome
from experiments.shrink.search import Search
from experiments.shrink.words import file_text
from harness.contracts.plan import Plan
from harness.errors import BrokerstormError, EnvironmentNotReady, Exit, UsageError, WorkerError
from harness.rundir import Document

#: Instead of a reference client: what is found is played with no other client.
NO_REFERENCE: Final = "none"
#: Rounds of a scenario that showed a violation, the first one included.
REPEATS: Final = 3
#: Changes that are drawn for one round until one of them can be played.
_DRAWS: Final = 200
#: Part of the rounds that have many changes of the first scenario.
_EXPLORES: Final = 0.5
#: Until so many rounds were judged, all explore: almost every round is new then, so features do not
#: tell which scenario to change.
_EXPLORED_FIRST: Final = 10
#: Of an entry whose features all other rounds have.
_LEAST_ENERGY: Final = 0.1
#: Kind of feature (its first word) -> its weight; 1 for others. Anomalies are near what is looked
#: for, even if they are permitted; lines of logs and amounts are new in most rounds.
_WEIGHTS: Final = {
    **dict.fromkeys(("class", "hang", STRANGE), 4.0),
    **dict.fromkeys(("split", ERROR), 2.0),
    **dict.fromkeys((LOG, "latency", "memory", "descriptors"), 0.25),
}
#: Lines that a program writes when it met what its authors thought impossible.
_SELF_ACCUSED: Final = re.compile(
    r"\b(bug|should (never|not) happen|impossible|assert(ion)?|invariant|unreachable code|panic)\b",
    re.IGNORECASE,
)


@dataclass(slots=True, kw_only=True)
class Discovery:
    """What a hunt found.

    Attributes:
        number: from 1.
        what: the classes that were violated, or a feature: strange conduct, or an error or a line
            of a log in which a program accuses itself.
        entry: the scenario that showed it, with its seed.
        rounds: the names of the rounds of that scenario.
        shown: how many of them showed it.
        reference: the same scenario with the reference client; None = it was not played.
        reference_judged, reference_shown: its rounds, and how many of them violated a class of
            ``what`` or had this feature.
        search: the search for the smallest scenario; None = there was none.
    """

    number: int
    what: tuple[str, ...]
    entry: CorpusEntry
    rounds: list[str] = field(default_factory=list)
    shown: int = 0
    reference: Document | None = None
    reference_judged: int = 0
    reference_shown: int = 0
    search: Search | None = None

    @property
    def is_violation(self) -> bool:
        """Whether a promise was broken; otherwise a client or a log is strange."""
        return not self.what[0].startswith((LOG, ERROR, STRANGE))

    @property
    def is_repeatable(self) -> bool:
        """Whether more than one round showed it."""
        return self.shown > 1

    def shows_in(self, outcome: RoundOutcome) -> bool:
        """Whether a round violated one of its classes or had its feature."""
        run = outcome.run
        return run is not None and any(
            run.has(each) or each in outcome.features for each in self.what
        )


@dataclass(slots=True, kw_only=True)
class Hunt:
    """One hunt.

    Attributes:
        first: the scenario that everything is changed from.
        before: entries of a corpus that there was before, which are played again first.
        corpus_names, corpus_features: the names of all entries of that corpus, and what they
            showed, ``before`` included.
        plan: a scenario and a seed -> the plan; raises a `BrokerstormError` for what cannot be
            played.
        choices: what changes choose from.
        repeat: the name and seed of a round -> the command that plays this round again.
        known: classes that are not looked for.
        is_calm: the first scenario has no faults and none of the user's settings, so what it shows
            was found, too.
        rounds_at_most: rounds to play; None = until the budget is used up.
        reference: a scenario -> the same with the reference client, and the change in words; None =
            there is none.
        search: a discovery and what to call whenever a smaller scenario shows it -> the search for
            the smallest one.
        search_s: seconds for all searches; one of them gets half of what is left.
        tell: gets a line for each round.
        on_entry: gets each new entry.
        on_nothing_new: gets the name of each round that showed nothing new and broke no promise.
        on_found: gets everything that was found, each time it changes.
        seen: feature -> rounds that had it.
    """

    first: Document
    seed: int
    plan: Callable[[Document, int], Plan]
    choices: Choices
    repeat: Callable[[str, int], str] = lambda name, seed: ""
    before: Sequence[CorpusEntry] = ()
    corpus_names: frozenset[str] = frozenset()
    corpus_features: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    is_calm: bool = False
    rounds_at_most: int | None = None
    reference: Callable[[Document], tuple[Document, str]] | None = None
    search: Callable[[Discovery, Callable[[], None]], Search] | None = None
    search_s: float = 0.0
    tell: Callable[[str], None] = lambda text: None
    on_entry: Callable[[CorpusEntry], None] = lambda entry: None
    on_nothing_new: Callable[[str], None] = lambda name: None
    on_found: Callable[[Discovery], None] = lambda found: None
    entries: list[CorpusEntry] = field(default_factory=list)
    found: list[Discovery] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    played: int = 0
    judged: int = 0
    last_new: int = 0
    _keys: set[str] = field(default_factory=set)
    _tried: Counter[str] = field(default_factory=Counter)
    _round_s: float = 0.0
    _searched_s: float = 0.0

    @property
    def exit_code(self) -> Exit:
        """Return 1 if a promise was broken, 0 if none was, 3 if no round was judged."""
        if any(each.is_violation for each in self.found):
            return Exit.FAIL
        return Exit.PASS if self.judged else Exit.UNKNOWN

    @property
    def corpus_entries(self) -> int:
        """Return the number of entries of the corpus now."""
        return len(self._names_before | {each.name for each in self.entries})

    @property
    def new_features(self) -> list[str]:
        """Return the features that no entry of the corpus of before has, sorted."""
        known = {feature for each in self.before for feature in each.features}
        return sorted({*self.seen} - known - self.corpus_features)

    @property
    def new_entries(self) -> int:
        """Return the number of entries that the corpus of before did not have."""
        return sum(each.name not in self._names_before for each in self.entries)

    @property
    def _names_before(self) -> frozenset[str]:
        return self.corpus_names | {each.name for each in self.before}

    def rounds(self) -> Strategy[None]:
        """Play rounds until the budget is used up."""
        try:
            yield from self._begin()
            for number in count(1):
                entry = self._next(number)
                if entry is None:
                    self.tell(f"no change of {_DRAWS} can be played: the hunt ends")
                    return
                yield from self._try(entry)
        except OutOfBudget as error:
            self.tell(f"the hunt ends: the next round {error}")

    def _begin(self) -> Strategy[None]:
        """Play the scenario as it is, then the corpus of before.

        Raises:
            UsageError: it shows a violation without a change, and is the user's.
        """
        first = CorpusEntry(scenario=self.first, seed=self.seed, features=())
        outcome = yield from self._play(first)
        if outcome.run is None:
            raise UsageError(
                f"the scenario cannot be played as it is: {outcome.why_not}",
                hint="`brokerstorm doctor SCENARIO` shows its requirements",
            )
        if violated := [cls for cls in outcome.run.violations if cls not in self.known]:
            if not self.is_calm:
                raise UsageError(
                    f"the scenario shows {', '.join(violated)} without a change",
                    hint=f"--known {violated[0]} ignores this class",
                )
            yield from self._repeat(first, outcome)
            self.tell(f"{', '.join(violated)} shows without a fault: later rounds ignore it")
            self.known |= {*violated}
        for entry in self.before:
            yield from self._try(entry)

    def _try(self, entry: CorpusEntry) -> Strategy[None]:
        """Play one entry, and again if it is needed."""
        self._keys.add(entry.name)
        outcome = yield from self._play(entry)
        if outcome.run is None:
            return
        is_new = self.last_new == self.played
        yield from self._repeat(entry, outcome)
        is_found = any(outcome.name in found.rounds for found in self.found)
        if not (is_new or is_found or outcome.run.violations):
            self.on_nothing_new(outcome.name)

    def _repeat(self, entry: CorpusEntry, outcome: RoundOutcome) -> Strategy[None]:
        """Play a round again that showed what was not found before."""
        what = self._found_in(outcome)
        if not {*what} - {each for found in self.found for each in found.what}:
            return
        found = Discovery(number=len(self.found) + 1, what=what, entry=entry)
        self.found.append(found)
        self._count(found, outcome)
        while len(found.rounds) < REPEATS:
            outcome = yield from self._play(entry)
            self._count(found, outcome)
        if found.is_repeatable:
            yield from self._compare(found)
            yield from self._make_smaller(found)

    def _compare(self, found: Discovery) -> Strategy[None]:
        """Play the same plan with the reference client: does it show the same?"""
        if self.reference is None:
            return
        scenario, change = self.reference(found.entry.scenario)
        entry = replace(found.entry, scenario=scenario, changes=(change,))
        for _ in range(REPEATS):
            outcome = yield self._request(entry, of_hunt=False)
            self._counted(outcome)
            if outcome.is_unusable:
                return
            if outcome.run is not None:
                found.reference = scenario
                found.reference_judged += 1
                found.reference_shown += found.shows_in(outcome)
        self.on_found(found)

    def _make_smaller(self, found: Discovery) -> Strategy[None]:
        """Search for the smallest scenario, in half of the time that is left for searches."""
        until_s = self._searched_s + (self.search_s - self._searched_s) / 2
        if self.search is None or self.search_s <= 0 or not found.is_violation:
            return  # a search looks for a class
        found.search = self.search(found, partial(self.on_found, found))
        requests = found.search.rounds()
        request = next(requests, None)
        while request is not None:
            if self._searched_s >= until_s:
                self.tell("the time for this search is over")
                break
            self._refuse_more()
            outcome = yield replace(request, name=self._next_name)
            self._counted(outcome)
            self._searched_s += outcome.duration_s
            try:
                request = requests.send(outcome)
            except StopIteration:
                break
        self.on_found(found)

    def _count(self, found: Discovery, outcome: RoundOutcome) -> None:
        found.rounds.append(outcome.name)
        if found.is_violation:
            found.shown += outcome.run is not None and not {*found.what}.isdisjoint(
                outcome.run.violations
            )
        else:
            found.shown += found.shows_in(outcome)
        self.on_found(found)

    def _found_in(self, outcome: RoundOutcome) -> tuple[str, ...]:
        """Return the classes that a round violated; without any, strange conduct of a client, or an
        error or a line of a log that accuses its own program."""
        assert outcome.run is not None
        violated = tuple(sorted(cls for cls in outcome.run.violations if cls not in self.known))
        if violated:
            return violated
        before = {each.what for each in self.found}
        strange = (
            each
            for each in sorted(outcome.features)
            if each.startswith(STRANGE)
            or (each.startswith((LOG, ERROR)) and _SELF_ACCUSED.search(each))
        )
        return next(((each,) for each in strange if (each,) not in before), ())

    # ----- one round ------------------------------------------------------------------------------

    def _play(self, entry: CorpusEntry) -> Strategy[RoundOutcome]:
        outcome = yield self._request(entry)
        self._counted(outcome)
        if outcome.run is not None:
            self._take_in(entry, outcome)
        return outcome

    def _request(self, entry: CorpusEntry, *, of_hunt: bool = True) -> RoundRequest:
        """Return the request for a round of an entry.

        Args:
            of_hunt: what is new in it is shown; with the reference client it does not count.
        """
        self._refuse_more()
        return RoundRequest(
            name=self._next_name,
            key=f"{entry.name} {entry.seed}",
            plan=partial(self.plan, entry.scenario, entry.seed),
            number=self.played + 1,
            command=self.repeat(self._next_name, entry.seed),
            scenario=partial(file_text, entry.scenario, [], {}),
            expected_s=self._round_s,
            # A client may refuse options that no check knows to contradict each other.
            tolerates=(EnvironmentNotReady, WorkerError),
            features=features_of,
            told=partial(self._said, entry, of_hunt),
        )

    @property
    def _next_name(self) -> str:
        return f"round-{self.played + 1:04d}"

    def _refuse_more(self) -> None:
        """Raises: OutOfBudget: all rounds that were asked for are played."""
        if self.rounds_at_most is not None and self.played >= self.rounds_at_most:
            raise OutOfBudget(f"is more than --rounds {self.rounds_at_most}")

    def _counted(self, outcome: RoundOutcome) -> None:
        self.played += 1
        # The first round starts the brokers and Spark, too.
        longest_s = self._round_s if self.played > 2 else 0.0
        self._round_s = max(longest_s, outcome.duration_s)

    def _take_in(self, entry: CorpusEntry, outcome: RoundOutcome) -> None:
        """Count the features of a round, and keep it if it has a new one."""
        self.judged += 1
        is_new = bool(self._new_in(outcome)) or not self.entries
        self.seen.update(outcome.features)
        if is_new and entry.name not in {each.name for each in self.entries}:
            self.last_new = self.played
            self.entries.append(replace(entry, features=tuple(outcome.features)))
            self.on_entry(self.entries[-1])

    def _new_in(self, outcome: RoundOutcome) -> list[str]:
        return [feature for feature in outcome.features if feature not in self.seen]

    def _said(self, entry: CorpusEntry, of_hunt: bool, outcome: RoundOutcome) -> str:
        """A round in words, before its features are taken in."""
        changes = f"round {self.played + 1}: {', '.join(entry.changes) or 'as it is'}"
        if outcome.run is None:
            return f"{changes} · not played: {outcome.why_not}"
        new = self._new_in(outcome)
        violated = "".join(f" · {cls} {n:,}" for cls, n in outcome.run.violations.items())
        if not of_hunt:
            return f"{changes} · {outcome.run.verdict}{violated}"
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        news = f"new: {_least_common(new)}{more}" if new else "nothing new"
        since = self.played + 1 - self.last_new
        rest = f" for {since} rounds" if not new and since > 1 else ""
        return f"{changes} · {outcome.run.verdict}{violated} · {news}{rest}"

    # ----- the next round -------------------------------------------------------------------------

    def _next(self, number: int) -> CorpusEntry | None:
        """Return a changed entry that can be played and was not played before; None = none was
        found.

        The first rounds, and about half of the later ones, explore: they change many settings of
        the first scenario at once, so that within tens of rounds most pairs of faults and settings
        were together in one.
        """
        rng = random.Random(f"{self.seed}:{number}")
        donors = [each.scenario for each in self.entries]
        seed = self.seed + number
        for _ in range(_DRAWS):
            explores = rng.random() < _EXPLORES or self.judged < _EXPLORED_FIRST
            at = rng.choices(range(len(self.entries)), [*map(self._energy, self.entries)])[0]
            at = 0 if explores else at
            parent = self.entries[at]
            found = changed(
                parent.scenario,
                donors,
                self.choices,
                rng,
                self._tried,
                explores=explores,
                fits=partial(self._fits, seed),
            )
            if found is None or (name := name_of(found.scenario)) in self._keys:
                continue
            self._keys.add(name)
            self._tried.update(found.drawn)
            self.entries[at] = replace(parent, chosen=parent.chosen + 1)
            return CorpusEntry(
                scenario=found.scenario,
                seed=seed,
                features=(),
                changes=found.words,
                parent=parent.name,
            )
        return None

    def _fits(self, seed: int, scenario: Document) -> bool:
        """Whether a scenario can be planned."""
        try:
            self.plan(scenario, seed)
        except BrokerstormError:
            return False
        return True

    def _energy(self, entry: CorpusEntry) -> float:
        """Return the weight of an entry: the rarer its features are and the less often it was
        chosen, the larger.

        Only the rarest feature of a kind counts: fifty lines of a log are one event. Violations
        that are known, or were found before, do not count: another one would not be reported.
        """
        over = self.known.union(*(each.what for each in self.found))
        rarest: dict[str, float] = {}
        for feature in entry.features:
            if _is_violation_of(over, feature):
                continue
            kind = feature.partition(" ")[0]
            rarest[kind] = max(rarest.get(kind, 0.0), 1 / self.seen[feature])
        rarity = sum(_WEIGHTS.get(kind, 1.0) * rare for kind, rare in rarest.items())
        return (_LEAST_ENERGY + rarity) / (1 + entry.chosen)


def _is_violation_of(classes: frozenset[str], feature: str) -> bool:
    """Whether a feature is a violation by one of some classes, or a kind of it."""
    word, _, rest = feature.partition(" ")
    cls, _, status = rest.partition(" ")
    is_it = word == "split" or (word == "class" and status == Status.VIOLATION.value)
    return is_it and cls in classes


def _least_common(new: Iterable[str]) -> str:
    """Return the feature to show of several new ones: a class if there is one, a line of a log
    last."""
    order = ("class", "hang", "error", "split", "at once", "not proved", "fault")

    def rank(feature: str) -> tuple[int, str]:
        found = (n for n, word in enumerate(order) if feature.startswith(word))
        return next(found, len(order) + feature.startswith(LOG)), feature

    return min(new, key=rank)
