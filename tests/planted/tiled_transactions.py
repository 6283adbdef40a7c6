"""Runs of millions of messages made of the blocks of `transacted_stories`, one after the other.

    run, truth = plant_transactions(tmp / "run", messages=10_000_000, topics=8, each=40)

Every pair of topics ``orders-NN``, ``invoices-NN`` has blocks in a row, all plain but ``each`` of
every story at random places. Blocks are moved in sequence, place, time and transaction, so what
each shows is known beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.contracts.plan import PipelinePlan, Plan
from harness.contracts.rows import LaneGroup
from harness.records import SEALED
from harness.rundir import RunDir, read_json, write_json
from tests.planted.tiled import Truth
from tests.planted.tiny_journals import EPOCH_NS
from tests.planted.transacted_stories import BOTH, OWN, STORIES, Planted, plain
from tests.planted.writing import Tables, write_run

Ints = npt.NDArray[np.int64]
_TIMES = ("t_intended_ns", "t_start_ns", "t_done_ns", "t_ns", "t_begin_ns", "t_asked_ns")
_POSITIONS = ("position", "txn_end", "source_position")
_STREAMS = 2 * len(BOTH)  # of a pair of topics; as many lanes
_PAUSE_NS = 1_000_000


def plant_transactions(
    root: Path,
    *,
    messages: int,
    topics: int,
    each: int,
    stories: Sequence[Planted] = STORIES,
    seed: int = 0,
) -> tuple[RunDir, Truth]:
    """The run, and what judging must say: messages or rows by (class, split).

    ``messages``: sends of producers and pipelines together, about.
    """
    tiling = _Tiling([Planted(plain, {}), *stories], messages, topics, each, seed)
    run = write_run(
        root,
        plan=tiling.plan(),
        chunks=tiling.chunks(),
        names=tiling.names(),
        bounds=tiling.bounds(),
        transactions=tiling.transactions(),
        committed=tiling.committed(),
        epoch_ns=EPOCH_NS,
        end_ns=EPOCH_NS + tiling.blocks * tiling.window_ns,
    )
    manifest = read_json(run.manifest)
    manifest["workers"] += tiling.later_lives(manifest["workers"][0])
    write_json(run.manifest, manifest)
    return run, tiling.truth()


class _Tiling:
    """Moves the rows of blocks to their topics and turn."""

    def __init__(
        self, stories: Sequence[Planted], messages: int, topics: int, each: int, seed: int
    ) -> None:
        self._stories, self._topics = stories, topics
        self._histories = [story.build() for story in stories]
        self._tables = [history.tables() for history in self._histories]
        self.blocks = messages // (topics * len(self._tables[0]["sends"]["seq"]))
        self.story_of = np.zeros((topics, self.blocks), np.int64)
        wanted = each * (len(stories) - 1)
        places = np.random.default_rng(seed).permutation(topics * self.blocks)[:wanted]
        assert len(places) == wanted, "too few messages"
        self.story_of.ravel()[places] = 1 + np.arange(wanted) % (len(stories) - 1)
        self._room = 2 + max(n for history in self._histories for n in history._next.values())
        self._numbers = max(int(row["number"]) for h in self._histories for row in h.transactions)
        self._epochs = max(int(t["deliveries"]["epoch"].max()) for t in self._tables)
        self.window_ns = max(h.now_ns for h in self._histories) - EPOCH_NS + _PAUSE_NS
        own = [bool((tables["sends"]["instance"] >= OWN).any()) for tables in self._tables]
        has_own = np.array(own)[self.story_of]
        #: By topic and block, the first instance that it has alone.
        self._own = OWN + 2 * (np.cumsum(has_own.ravel()).reshape(has_own.shape) - 1)
        self._clients = int(has_own.sum())
        lengths = np.array([self._lengths(tables) for tables in self._tables])
        sizes = lengths[self.story_of]  # topic, block, instance, lane
        self._first = np.cumsum(sizes, axis=1) - sizes

    @staticmethod
    def _lengths(tables: Tables) -> list[list[int]]:
        """Messages of instances 0, 1, 2 by lane."""
        sends = tables["sends"]
        return [
            [
                int(((sends["instance"] == i) & (sends["lane"] == lane)).sum())
                for lane in range(_STREAMS)
            ]
            for i in range(3)
        ]

    # -- around the tables

    def plan(self) -> Plan:
        base = self._histories[0].plan
        producer, pipeline = base.producers
        (reader,) = base.consumers
        topics, groups, pipelines, readers = [], [], [], []
        for t in range(self._topics):
            names = (f"orders-{t:02d}", f"invoices-{t:02d}")
            topics += [
                each.model_copy(update={"name": name})
                for each, name in zip(base.topics, names, strict=True)
            ]
            for number, name in enumerate(names):
                first = t * _STREAMS + number * len(BOTH)
                groups.append(LaneGroup(name, "partition", first, len(BOTH), [2 * t, 2 * t + 1]))
            name = f"pipeline-billing-{t:02d}"
            group = {"name": name, "session": t + 1, "group": name, "topics": [names[0]]}
            readers.append(reader.model_copy(update=group))
            pipelines.append(
                PipelinePlan(
                    name=name,
                    instance=2,
                    session=t + 1,
                    source=names[0],
                    to=names[1],
                    transactional=True,
                )
            )
        own = [
            producer.model_copy(update={"name": f"p-{OWN + 2 * k}", "instance": OWN + 2 * k})
            for k in range(self._clients)
        ]
        changes = {
            "topics": topics,
            "lane_groups": groups,
            "pipelines": pipelines,
            "consumers": readers,
        }
        changes |= {
            "producers": [producer, pipeline, *own],
            "buckets": 2 * self._topics,
            "rate_per_s": 0.0,
        }
        return base.model_copy(update=changes)

    def later_lives(self, like: dict[str, Any]) -> list[dict[str, Any]]:
        """Rows of the manifest: of each client with a block of its own, the second life."""
        return [
            like
            | {
                "name": f"p-{OWN + 2 * k}.2",
                "life_of": f"p-{OWN + 2 * k}",
                "instance": OWN + 2 * k + 1,
            }
            | {"t_start_ns": like["t_start_ns"] + 1}
            for k in range(self._clients)
        ]

    def names(self) -> list[dict[str, Any]]:
        texts = [("stream", text) for text in self.plan().streams()] + [("subscription", "group")]
        return [
            {"id": n, "kind": kind, "text": text} for n, (kind, text) in enumerate(texts, start=1)
        ]

    def bounds(self) -> list[dict[str, Any]]:
        end = self.blocks * self._room
        stale: dict[int, list[dict[str, Any]]] = {}
        for topic, block in np.argwhere(self.story_of > 0).tolist():
            for stream, change in self._histories[self.story_of[topic, block]]._bounds.items():
                moved = (
                    write | {name: write[name] + block * self._room for name in ("first", "last")}
                    for write in change.get("stale", ())
                )
                stale.setdefault(stream + topic * _STREAMS, []).extend(moved)
        return [
            {"stream": text, "stream_id": n, "begin": 0, "end": end, "read_to": end, "why": "end"}
            | {
                "isolation": "read_uncommitted",
                "stable": end,
                "marked": end,
                "stale": stale.get(n, []),
            }
            for n, text in enumerate(self.plan().streams(), start=1)
        ]

    def committed(self) -> list[dict[str, Any]]:
        end = {"position": self.blocks * self._room, "t_ns": 0}
        return [
            {"group": f"pipeline-billing-{t:02d}", "stream": f"orders-{t:02d}-{p}"}
            | {"stream_id": t * _STREAMS + p + 1, **end}
            for t in range(self._topics)
            for p in BOTH
        ]

    def transactions(self) -> list[dict[str, Any]]:
        found = []
        for topic, block in np.ndindex(self.story_of.shape):
            for row in self._histories[self.story_of[topic, block]].transactions:
                shift = {
                    name: row[name] + block * self.window_ns for name in _TIMES if row.get(name)
                }
                number, instance = int(row["number"]), int(row["instance"])
                if instance >= OWN:
                    instance += int(self._own[topic, block]) - OWN
                else:
                    number += (topic * self.blocks + block) * self._numbers
                found.append(row | shift | {"number": number, "instance": instance})
        return found

    def truth(self) -> Truth:
        found: Truth = {}
        for topic, block in np.argwhere(self.story_of > 0).tolist():
            for key, names in self._stories[self.story_of[topic, block]].shows.items():
                found.setdefault(key, set()).update(
                    self._moved(name, topic, block) for name in names
                )
        return found

    def _moved(self, name: str, topic: int, block: int) -> str:
        if place := re.fullmatch(r"(\w+)-(\d+)@(\d+)", name):
            return f"{place[1]}-{topic:02d}-{place[2]}@{int(place[3]) + block * self._room}"
        instance, lane, seq = map(int, name.split("/"))
        return f"{instance}/{lane + topic * _STREAMS}/{seq + self._first[topic, block, instance, lane]}"

    # -- the tables

    def chunks(self) -> Iterator[Tables]:
        for topic in range(self._topics):
            yield {table: self._chunk(table, topic) for table in SEALED}

    def _chunk(self, table: str, topic: int) -> dict[str, npt.NDArray[Any]]:
        stories = self.story_of[topic]
        parts, blocks = [], []
        for number, tables in enumerate(self._tables):
            own = np.flatnonzero(stories == number)
            blocks.append(np.repeat(own, len(tables[table]["stream"])))
            parts.append(
                {name: np.tile(column, len(own)) for name, column in tables[table].items()}
            )
        block = np.concatenate(blocks)
        order = np.argsort(block, kind="stable")
        block = block[order]
        out = {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}
        dtypes = {name: column.dtype for name, column in out.items()}
        self._move(out, topic, block)
        if table == "deliveries":
            out["epoch"] = out["epoch"] + block * self._epochs
            out["ordinal"], out["session"] = np.arange(len(block)), np.full(len(block), topic + 1)
            out["subscription"] = np.full(len(block), self._topics * _STREAMS + 1)
        return {name: column.astype(dtypes[name]) for name, column in out.items()}

    def _move(self, out: dict[str, npt.NDArray[Any]], topic: int, block: Ints) -> None:
        own = out["instance"] >= OWN
        named = (out["kind"] > 0) & ~own
        if "transaction" in out:
            number = out["transaction"].astype(np.int64)
            shift = (topic * self.blocks + block) * self._numbers
            out["transaction"] = np.where((number > 0) & ~own, number + shift, number)
        instance = np.where(own, 0, out["instance"]).astype(np.int64)
        first = self._first[topic][block, instance, out["lane"]]
        out["seq"] = np.where(named, out["seq"] + first, out["seq"])
        alone = out["instance"].astype(np.int64) - OWN + self._own[topic][block]
        out["instance"] = np.where(own, alone, out["instance"])
        out["lane"] = out["lane"] + np.where(out["kind"] > 0, topic * _STREAMS, 0)
        out["stream"] = out["stream"] + np.where(out["stream"] > 0, topic * _STREAMS, 0)
        for name in _POSITIONS:
            if name in out:
                out[name] = out[name] + np.where(out[name] >= 0, block * self._room, 0)
        for name in _TIMES:
            if name in out:
                out[name] = out[name] + np.where(out[name] > 0, block * self.window_ns, 0)
