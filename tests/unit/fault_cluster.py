"""A cluster that exists only as state, for the logic of the fault engine.

Nodes run, stop, are fenced and come back by a clock; no broker, no process. What it cannot show is
in tests/live.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint, Node, PartitionState, TopicSettings
from harness.protocols.files import Damage, DamagedPlace, FileKind
from harness.protocols.members import Quorum
from harness.protocols.power import Unsynced

NAMES = ("kafka-1", "kafka-2", "kafka-3")


class StateRuntime:
    """Runtime, Killable, Stoppable, Pausable. ``away_since`` holds when a node stopped serving."""

    run_id = "run-1"

    def __init__(self) -> None:
        end = Endpoint("127.0.0.1", 1)
        self.nodes: Sequence[Node] = [
            Node(n, i + 1, end, end, end, Path()) for i, n in enumerate(NAMES)
        ]
        self.running = set(NAMES)
        self.paused: set[str] = set()
        self.changed_at: dict[str, float] = {}
        self.calls: list[str] = []
        self.start_fails = 0
        self.away: set[str] = set()
        self.stop_takes_s = 0.0
        self.stops_by_itself = True
        self.pids: dict[str, int] = {}
        self.needs = frozenset(
            {
                *("spare-broker", "fourth-broker", "dynamic-quorum", "spare-controller"),
                *("synced-disk", "own-clocks", "brokers-4.1.2", "brokers-3.5.2"),
            }
        )
        self.unsynced: dict[str, Unsynced] = {}
        self.keepers: set[str] = set()
        self.versions = dict.fromkeys(NAMES, "3.9.1")
        self.dies_as = ""
        self.refuses_damage = False
        self.damaged: set[str] = set()
        self.clocks: dict[str, float] = {}

    def up(self) -> None: ...
    def down(self) -> None: ...
    def pid(self, node: str) -> int | None:
        return self.pids.get(node)

    def _note(self, call: str, node: str) -> None:
        self.calls.append(f"{call} {node}")
        self.changed_at[node] = time.monotonic()

    def kill(self, node: str) -> None:
        self.running.discard(node)
        self._note("kill", node)

    def stop(self, node: str, *, timeout_s: float = 30.0) -> bool:
        time.sleep(self.stop_takes_s)
        self.running.discard(node)
        self._note("stop", node)
        return self.stops_by_itself

    def version(self, node: str) -> str:
        return self.versions[node]

    def set_version(self, node: str, version: str) -> None:
        assert node not in self.running
        self.versions[node] = version

    def is_changed(self) -> bool:
        return set(self.versions.values()) != {"3.9.1"}

    def set_clock(self, node: str, ahead_s: float, speed: float = 1.0) -> None:
        self.clocks[node] = ahead_s + (speed - 1)  # as if a second had passed

    def clock_told(self, node: str, *, within_s: float) -> float | None:
        return self.clocks.get(node, 0.0) if node in self.running else None

    def were_clocks_set(self) -> bool:
        return bool(self.clocks)

    def log_tail(self, node: str) -> str:
        return f"{node} refuses its metadata"

    def start(self, node: str) -> None:
        if self.start_fails:
            self.start_fails -= 1
            raise EnvironmentNotReady(f"{node} died at start")
        if self.versions[node] != self.dies_as and not (
            self.refuses_damage and node in self.damaged
        ):
            self.running.add(node)
        self._note("start", node)

    def is_running(self, node: str) -> bool:
        return node in self.running

    def outside(self, role: str = "broker") -> Sequence[str]:
        return sorted(self.away)

    def may_leave(self) -> Sequence[str]:
        return [] if "kafka-3" in self.away else ["kafka-3"]

    def join(self, node: str) -> None:
        self.away.discard(node)
        self.start(node)

    def leave(self, node: str) -> None:
        self.away.add(node)
        self.stop(node)

    def keep_written(self) -> None:
        self.calls.append("keep")

    def stores(self) -> frozenset[str]:
        return frozenset(self.keepers)

    def drop_unsynced(self, node: str, *, torn: bool, folders: bool, seed: int) -> Unsynced:
        assert node not in self.running
        self._note("drop", node)
        return self.unsynced.get(node, Unsynced())

    def damage_files(
        self, node: str, files: FileKind, damage: Damage, *, places: int, size_bytes: int, seed: int
    ) -> list[DamagedPlace]:
        assert node not in self.running
        self.damaged.add(node)
        self._note(f"{damage} {files}", node)
        return [DamagedPlace("orders-0/0.log", 4_096, 1, "4f", "4b")] * places

    def renew_data(self, node: str) -> None:
        assert node not in self.running
        self.damaged.discard(node)
        self._note("renew", node)

    def pause(self, node: str) -> None:
        self.paused.add(node)
        self._note("pause", node)

    def resume(self, node: str) -> None:
        self.paused.discard(node)
        self._note("resume", node)

    def is_paused(self, node: str) -> bool:
        return node in self.paused


class StateAdmin:
    """Admin, HasLeaders and HasTopics: away for ``fence_s`` = fenced; back for ``join_s`` = in
    sync."""

    def __init__(
        self,
        runtime: StateRuntime,
        *,
        partitions: int = 6,
        fence_s: float = 0.03,
        join_s: float = 0.03,
    ):
        self.runtime = runtime
        self.fence_s, self.join_s = fence_s, join_s
        self.order = {p: [NAMES[(p + i) % 3] for i in range(3)] for p in range(partitions)}
        self.leader: dict[int, str | None] = {p: nodes[0] for p, nodes in self.order.items()}
        self.moves_ignored = False
        self.ids, self.made = {"first"}, list[TopicSettings]()
        self.throttles: list[int | None] = []
        self.own: dict[str, str] = {"segment.bytes": "1000000"}
        self.wanted: dict[int, list[str]] = {}
        self.spans = dict.fromkeys(range(partitions), (0, 0))
        self.silent = threading.Event()
        self.blocked_s = 0.0
        self.voters, self.refusals = set(NAMES), list[str]()

    def quorum(self) -> Quorum:
        fenced = self._refresh()
        leader = next((node for node in sorted(self.voters) if node not in fenced), None)
        others = set(NAMES) - self.voters - fenced
        return Quorum(
            leader, 3 - len(self.voters), dict.fromkeys(self.voters, 0), dict.fromkeys(others, 0)
        )

    def add_voter(self, node: str) -> str:
        if self.refusals:
            return self.refusals.pop()
        self.voters.add(node)
        return ""

    def remove_voter(self, node: str) -> str:
        self.voters.discard(node)
        return ""

    def finalize_features(self) -> dict[str, tuple[int, int]]:
        return {"metadata.version": (21, 27)}

    def _fenced(self) -> set[str]:
        now, gone = time.monotonic(), set()
        for node in NAMES:
            since = now - self.runtime.changed_at.get(node, 0.0)
            away = not self.runtime.is_running(node) or self.runtime.is_paused(node)
            if (since >= self.fence_s) if away else (since < self.join_s):
                gone.add(node)
        return gone

    def _refresh(self) -> set[str]:
        time.sleep(self.blocked_s)
        if self.silent.is_set():
            raise EnvironmentNotReady("no broker answers")
        fenced = self._fenced()
        for partition, leader in self.leader.items():
            if leader is None or leader in fenced:
                self.leader[partition] = next(
                    (n for n in self.order[partition] if n not in fenced), None
                )
        return fenced

    def leaders(self, topic: str) -> dict[int, str | None]:
        self._refresh()
        return dict(self.leader)

    def replicas(self, topic: str) -> dict[int, list[str]]:
        return {partition: list(nodes) for partition, nodes in self.order.items()}

    def isr(self, topic: str) -> dict[int, list[str]]:
        fenced = self._refresh()
        return {
            p: [node for node in nodes if node not in fenced] for p, nodes in self.order.items()
        }

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        in_sync = self.isr("orders")
        return {
            f"orders-{p}": PartitionState(self.leader[p], tuple(nodes), tuple(in_sync[p]))
            for p, nodes in self.order.items()
        }

    def controller(self) -> str | None:
        fenced = self._refresh()
        return next((node for node in NAMES if node not in fenced), None)

    def registered(self) -> set[str]:
        return set(NAMES) - self._refresh()

    def move_leaders(self, topic: str, to: Mapping[int, str]) -> None:
        self.runtime.calls.append(f"move {dict(to)}")
        for partition, node in {} if self.moves_ignored else to.items():
            self.order[partition] = [node, *(n for n in self.order[partition] if n != node)]
            self.leader[partition] = node

    def unregister(self, node: str) -> None:
        self.runtime.calls.append(f"unregister {node}")

    def elect_preferred(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        for partition in partitions if partitions is not None else self.order:
            self.leader[partition] = self.order[partition][0]

    def log_spans(self, topic: str) -> dict[int, tuple[int, int]]:
        return dict(self.spans)

    def reassign(self, topic: str, to: Mapping[int, Sequence[str]]) -> None:
        self.wanted |= {partition: list(nodes) for partition, nodes in to.items()}
        if not self.moves_ignored:
            self._arrive()

    def cancel_reassignments(self, topic: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            del self.wanted[partition]

    def throttle_moves(self, topic: str, bytes_per_s: int | None) -> None:
        self.throttles.append(bytes_per_s)

    def reassigning(self, topic: str) -> list[int]:
        return sorted(self.wanted)

    def _arrive(self) -> None:
        for partition, nodes in self.wanted.items():
            self.order[partition], self.leader[partition] = nodes, nodes[0]
        self.wanted = {}

    def settings(self, topic: str, keys: Sequence[str]) -> dict[str, str]:
        return {key: self.own.get(key, "of the brokers") for key in keys}

    def own_settings(self, topic: str, keys: Sequence[str]) -> dict[str, str | None]:
        return {key: self.own.get(key) for key in keys}

    def change_settings(self, topic: str, to: Mapping[str, str | None]) -> None:
        given = {key: value for key, value in to.items() if value is not None}
        self.own = {**{k: v for k, v in self.own.items() if k not in to}, **given}

    def truncate(self, topic: str, to: Mapping[int, int]) -> None:
        self.spans |= {
            partition: (offset, self.spans[partition][1]) for partition, offset in to.items()
        }

    def grow(self, topic: str, to: int) -> None:
        for partition in range(len(self.order), to):
            self.order[partition], self.leader[partition] = list(NAMES), NAMES[0]

    def topics(self) -> list[str]:
        return ["__consumer_offsets", "orders"]

    def topic_ids(self, topic: str) -> frozenset[str]:
        return frozenset(self.ids)

    def made_of(self, topic: str) -> TopicSettings:
        return TopicSettings(topic, len(self.order), 3, dict(self.own))

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        self.made += topics
        self.ids = {"second"}

    def delete_topics(self, names: object) -> None:
        self.ids = set()

    def wait_ready(self, topics: object, *, timeout_s: float, run_tag: int) -> None: ...
    def end_offsets(self, topics: object) -> dict[str, int]:
        return {}

    def close(self) -> None: ...


class StateCluster:
    """The two together."""

    system, version, bootstrap, admin_url = "state", "1", "", ""

    def request(self, port: str, ballast: int = 0) -> tuple[bytes, int] | None:
        return None

    def __init__(self, **admin: float) -> None:
        self.runtime = StateRuntime()
        self.admin = StateAdmin(self.runtime, **admin)  # type: ignore[arg-type]

    def up(self, *, timeout_s: float = 60.0) -> None: ...
    def down(self) -> None: ...
