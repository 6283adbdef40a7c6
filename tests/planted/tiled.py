"""Runs of millions of rows made of tiny histories: a block each, one after the other, on every
topic.

    stories = [Story(overtaken, {("per-key-reorder", "overtaken"): ["1/0/1"]}), Story(in_turn, {})]
    run, truth = plant_stories(tmp / "run", plain, stories, each=40, topics=4, blocks=30_000)

A story is a `History` of a few messages that shows one class or, as its near-miss, something
harmless. Blocks are moved in sequence, place and time so that they follow each other: whatever a
block is found to show of is known beforehand, and hangs on its own rows alone. Every topic has its
own consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.contracts.plan import Plan
from harness.records import SEALED
from harness.rundir import RunDir
from tests.planted.pairs import Found
from tests.planted.plans import build_plan
from tests.planted.tiny import History
from tests.planted.tiny_journals import EPOCH_NS
from tests.planted.writing import Tables, write_run

Ints = npt.NDArray[np.int64]
Truth = dict[tuple[str, str], set[str]]  # (class, split) -> messages
_PLACES = 16  # log rows, or ledgers, that a block has to itself
_TIMES = ("t_intended_ns", "t_start_ns", "t_done_ns", "t_ns")
_PAUSE_NS = 1_000_000


@dataclass(frozen=True)
class Story:
    """A tiny history on one topic, and what must be said of its messages."""

    build: Callable[[], History]
    shows: Found


def plant_stories(
    root: Path,
    plain: Callable[[], History],
    stories: Sequence[Story],
    *,
    each: int,
    topics: int,
    blocks: int,
) -> tuple[RunDir, Truth]:
    """``blocks`` blocks a topic, all plain but ``each`` of every story at random places.

    All histories must have one plan and as many messages in each lane; those of queues take one
    topic, because the events of their sessions name none.
    """
    templates = [Story(plain, {}), *stories]
    tiling = _Tiling([story.build() for story in templates], topics)
    story_of = np.zeros((topics, blocks), np.int64)
    places = np.random.default_rng(0).permutation(topics * (blocks - 2))[: each * len(stories)]
    for number, place in enumerate(places.tolist()):
        topic, block = divmod(place, blocks - 2)
        story_of[topic, block + 1] = 1 + number % len(stories)
    run = write_run(
        root,
        plan=tiling.plan,
        chunks=tiling.chunks(story_of),
        names=tiling.names(),
        bounds=tiling.bounds(story_of),
        epoch_ns=EPOCH_NS,
        end_ns=EPOCH_NS + blocks * tiling.window_ns,
    )
    truth: Truth = {}
    for topic, block in np.argwhere(story_of > 0).tolist():
        for key, messages in templates[story_of[topic, block]].shows.items():
            truth.setdefault(key, set()).update(
                tiling.moved(name, topic, block) for name in messages
            )
    return run, truth


class _Tiling:
    """Moves the rows of templates to their topic and block."""

    def __init__(self, histories: Sequence[History], topics: int) -> None:
        self._history, self._topics = histories[0], topics
        self._tables = [history.tables() for history in histories]
        self._lanes = self._history.plan.lane_groups[0].count
        self._sessions = len(self._history.plan.consumers)
        self._messages = self._lengths(self._tables[0])
        assert all((self._lengths(t) == self._messages).all() for t in self._tables)
        assert all(h.plan.consumers == self._history.plan.consumers for h in histories)
        self._epochs = np.array(
            [int(t["deliveries"]["epoch"].max(initial=0)) for t in self._tables]
        )
        last = max(
            int(t[table][name].max())
            for t in self._tables
            for table, name in _LATEST
            if t[table][name].size
        )
        self.window_ns = last - EPOCH_NS + _PAUSE_NS

    def _lengths(self, tables: Tables) -> Ints:
        """Messages of each lane, which must be dense from 0."""
        lane, seq = tables["sends"]["lane"], tables["sends"]["seq"]
        return np.array([int(seq[lane == n].max(initial=-1)) + 1 for n in range(self._lanes)])

    @cached_property
    def plan(self) -> Plan:
        own, consumer = self._history, self._history.plan.consumers[0]
        names = [f"orders-{topic:02d}" for topic in range(self._topics)]
        plan = build_plan(
            topics=dict.fromkeys(names, 1),
            mode=own.mode,
            keys=own.keys,
            buckets=self._topics,
            sessions=self._topics * self._sessions,
            promise=own.promise,
            reading=consumer.promise,
            settle=own.settle,
            system=own.system,
            rate_per_s=0.0,
        )
        reading = [
            c.model_copy(update={"topics": [names[n // self._sessions]]})
            for n, c in enumerate(plan.consumers)
        ]
        return plan.model_copy(update={"consumers": reading})

    def names(self) -> list[dict[str, Any]]:
        texts = [("stream", text) for text in self.plan.streams()]
        texts += [("subscription", "group"), ("client", "p")]
        return [
            {"id": n, "kind": kind, "text": text} for n, (kind, text) in enumerate(texts, start=1)
        ]

    def bounds(self, story_of: Ints) -> list[dict[str, Any]]:
        rows = np.array([len(t["log"]["seq"]) for t in self._tables])[story_of].sum(axis=1)
        isolation = "remaining" if self._history.system == "qpid" else "read_uncommitted"
        return [
            {"stream": text, "stream_id": n, "begin": 0, "end": end, "read_to": end, "why": "end"}
            | {"isolation": isolation}
            for n, (text, end) in enumerate(
                zip(self.plan.streams(), rows.tolist(), strict=True), start=1
            )
        ]

    def moved(self, message: str, topic: int, block: int) -> str:
        """The name of a template's message (``instance/lane/seq``, perhaps an attempt) in its
        block."""
        instance, lane, rest = message.split("/")
        seq, dot, attempt = rest.partition(".")
        here = int(seq) + block * int(self._messages[int(lane)])
        return f"{instance}/{int(lane) + topic * self._lanes}/{here}{dot}{attempt}"

    def chunks(self, story_of: Ints) -> Iterator[Tables]:
        for topic, stories in enumerate(story_of):
            yield {table: self._chunk(table, topic, stories) for table in SEALED}

    def _chunk(self, table: str, topic: int, stories: Ints) -> dict[str, npt.NDArray[Any]]:
        parts, blocks = [], []
        for number, tables in enumerate(self._tables):
            own, rows = np.flatnonzero(stories == number), len(tables[table]["stream"])
            blocks.append(np.repeat(own, rows))
            parts.append(
                {name: np.tile(column, len(own)) for name, column in tables[table].items()}
            )
        block = np.concatenate(blocks)
        out = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        # Rows of a block are in their template's order already, session by session.
        order = (
            np.lexsort((block, out["session"]))
            if table == "deliveries"
            else np.argsort(block, kind="stable")
        )
        block, out = block[order], {name: column[order] for name, column in out.items()}
        if table == "deliveries":
            self._move_journals(out, topic, block, stories)
        self._move(out, topic, block)
        return out

    def _move(self, out: dict[str, npt.NDArray[Any]], topic: int, block: Ints) -> None:
        dtypes = {name: column.dtype for name, column in out.items()}
        named = out["kind"] > 0  # rows of messages; the others are events
        out["seq"] = out["seq"] + np.where(named, self._messages[out["lane"]] * block, 0)
        out["lane"] = out["lane"] + np.where(named, topic * self._lanes, 0)
        out["stream"] = out["stream"] + np.where(out["stream"] > 0, topic, 0)
        place = "ledger" if self._history.system == "pulsar" else "position"
        out[place] = out[place] + np.where(
            (out["ledger"] > 0) | (place == "position"), block * _PLACES, 0
        )
        if place == "position":
            out[place] = np.where(out["position"] < block * _PLACES, -1, out["position"])
        for name in _TIMES:
            if name in out:
                out[name] = out[name] + np.where(out[name] > 0, block * self.window_ns, 0)
        if "client_name" in out:
            own = out["client_name"] > 0
            out["client_name"] = np.where(own, self._topics + 2, 0)
            out["client_seq"] = out["client_seq"] + np.where(own, block * 100, 0)
        for name, dtype in dtypes.items():
            out[name] = out[name].astype(dtype)

    def _move_journals(
        self, out: dict[str, npt.NDArray[Any]], topic: int, block: Ints, stories: Ints
    ) -> None:
        begun = np.cumsum(self._epochs[stories]) - self._epochs[stories]
        out["epoch"] = out["epoch"] + begun[block].astype(out["epoch"].dtype)
        first = np.searchsorted(out["session"], out["session"])  # where each row's session begins
        out["ordinal"] = np.arange(len(block)) - first
        out["session"] = out["session"] + np.uint32(topic * self._sessions)
        out["subscription"] = np.full(len(block), self._topics + 1, out["subscription"].dtype)


_LATEST = (("sends", "t_done_ns"), ("deliveries", "t_ns"))
