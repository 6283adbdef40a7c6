"""Bounded output: many episodes are folded, counts stay exact, witnesses stay few."""

from __future__ import annotations

import pytest

from analysis.capture.bucket import Bucket
from analysis.kernels import episodes
from analysis.kernels.classify import classify
from analysis.kernels.partial import WITNESSES_AN_EPISODE
from tests.oracles.judging import context_from
from tests.planted.tiny import History


def partial_of(history: History) -> list[episodes.Episode]:
    tables = history.tables()
    context = context_from(history)
    bucket = Bucket(0, context, tables["sends"], tables["log"], tables["deliveries"])
    return [e for e in classify(bucket).episodes if e.cls == "acked-lost"]


def lost_every_two_seconds(count: int) -> History:
    h = History()
    for seq in range(count):
        h.send(seq, at_ms=seq * 2_000.0)
    return h


def test_episodes_beyond_the_limit_are_folded_with_exact_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(episodes, "MAX_EPISODES", 3)
    found = partial_of(lost_every_two_seconds(10))
    assert [e.episodes for e in found] == [1, 1, 1, 7]
    assert sum(e.count for e in found) == 10
    rest = found[-1]
    assert (rest.count, rest.lane, rest.instance, rest.witnesses) == (7, -1, 1, ())
    assert rest.last_ns - rest.first_ns == 6 * 2_000_000_000


def test_the_largest_episodes_come_first_and_keep_witnesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(episodes, "WITNESS_EPISODES", 1)
    h = History()
    for seq in range(3):
        h.send(seq)
    for seq in range(3, 13):
        h.send(seq, at_ms=5_000.0 + seq)
    first, second = partial_of(h)
    assert (first.count, len(first.witnesses)) == (10, WITNESSES_AN_EPISODE)
    assert (second.count, second.witnesses) == (3, ())
