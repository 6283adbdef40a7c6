"""The JSON spec a worker is started with (docs/worker-protocol.md), checked and typed."""

from __future__ import annotations

import json
import os
import tomllib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .error_texts import hide
from .failure import WorkerFailure

PROTOCOL = 1


class Lane(NamedTuple):
    """A lane as the producer's loop needs it. ``partition`` -1 and ``key`` None leave it to the
    client."""

    lane: int
    topic: str
    key: bytes | None
    partition: int
    key_number: int


class Topic(NamedTuple):
    """A topic as the client names it."""

    address: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Spec:
    """The spec of a worker; ``part`` is the section of its role: producer, consumer, pipeline or
    audit.

    ``options`` are the client's: the worker's own for the role, over them the scenario's, over them
    what the cluster asks of clients (`secured`). ``halves``: of a pipeline, as a producer and a
    consumer.
    """

    run_id: str
    run_tag: int
    role: str
    name: str
    folder: Path
    bootstrap: str
    streams: Mapping[str, int]
    topics: Mapping[str, Topic]
    library: str
    version: str
    options: Mapping[str, str] = field(repr=False)
    part: Mapping[str, Any]
    halves: Mapping[str, Spec] = field(default_factory=dict)


def read_spec(path: Path, settings: Path) -> Spec:
    """Read the spec file; ``settings`` is the worker's own ``worker.toml``.

    Raises:
        WorkerFailure: missing, not JSON, another protocol, a key missing.
        OSError: no ``worker.toml``.
    """
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise WorkerFailure(f"cannot read spec {path}: {error.strerror}") from error
    except ValueError as error:
        raise WorkerFailure(f"spec {path} is not JSON: {error}") from error
    try:
        if raw["protocol"] != PROTOCOL:
            raise WorkerFailure(
                f"spec asks for protocol {raw['protocol']}, this worker speaks {PROTOCOL}"
            )
        client, asked = raw["client"], secured()
        spec = Spec(
            run_id=raw["run_id"],
            run_tag=raw["run_tag"],
            role=raw["role"],
            name=raw["name"],
            folder=Path(raw["capture_dir"]),
            bootstrap=raw["bootstrap"],
            streams=raw["streams"],
            topics={
                name: Topic(t["address"], t["partitions"])
                for name, t in raw.get("topics", {}).items()
            },
            library=client["library"],
            version=client["version"],
            options=_options(settings, raw, raw["role"], client["options"], asked),
            part=raw[raw["role"]],
        )
        if spec.role != "pipeline":
            return spec
        given = {"producer": client["options"], "consumer": spec.part["consumer_options"]}
        halves = {
            role: replace(
                spec, role=role, part=raw[role], options=_options(settings, raw, role, own, asked)
            )
            for role, own in given.items()
        }
        return replace(spec, halves=halves)
    except (KeyError, TypeError) as error:
        raise WorkerFailure(f"spec {path} lacks {error}") from error


def _options(
    settings: Path,
    raw: Mapping[str, Any],
    role: str,
    given: Mapping[str, Any],
    asked: Mapping[str, str],
) -> Mapping[str, str]:
    """Merge the options: the worker's own for the system of the run, over them the options of the
    scenario, over them the ones of the cluster.
    """
    worker = tomllib.loads(settings.read_text())
    here = worker.get("on", {}).get(raw.get("system"), {})
    own: Mapping[str, str] = {**worker, **here}.get("options", {}).get(role, {})
    return {**own, **{key: str(value) for key, value in given.items()}, **asked}


def secured() -> Mapping[str, str]:
    """Options that clients of this cluster need, secrets among them: out of a pipe, so they can be
    read once. The secrets are hidden (`hide`).

    Raises:
        WorkerFailure: it cannot be read.
    """
    path = os.environ.pop("BROKERSTORM_SECURITY", "")
    if not path:
        return {}
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        hide(found["hidden"])
        options: Mapping[str, str] = found["options"]
    except (OSError, ValueError, KeyError) as error:
        raise WorkerFailure(
            f"BROKERSTORM_SECURITY: cannot read {path}: {type(error).__name__}"
        ) from None
    return options


def lanes(groups: list[dict[str, Any]]) -> list[Lane]:
    """The lanes of a producer in sending order.

    Groups: ``{"topic", "mode": "partition|key|routed", "first", "count", "key"}``; lane ``first +
    i`` is partition i, key i (``k{i:06d}``, or the text ``key`` with its places filled), or
    (routed, count 1) whatever the client's partitioner says.
    """
    out: list[Lane] = []
    for group in groups:
        topic, mode, first = group["topic"], group["mode"], group["first"]
        for i in range(group["count"]):
            if mode == "partition":
                out.append(Lane(first + i, topic, None, i, 0))
            elif mode == "key":
                text = group.get("key", "{key}")
                text = text.replace("{key}", f"k{i:06d}").replace("{number}", str(i))
                out.append(Lane(first + i, topic, text.encode(), -1, i))
            elif mode == "routed":
                out.append(Lane(first + i, topic, None, -1, 0))
            else:
                raise WorkerFailure(f"lane mode {mode!r}: must be partition, key or routed")
    if not out:
        raise WorkerFailure("a producer needs at least one lane")
    return out


class Turns:
    """The order of the lanes: a round of lanes, repeated. Message i has lane ``lanes[i % count]``.

    Attributes:
        lanes: the lane of each turn of a round; one that has more turns has more messages.
        per_round: messages that the lane of a turn has in a round.
        before: how many of them come before the turn.
    """

    def __init__(
        self, every: Sequence[Lane], order: Sequence[int], thread: int, threads: int
    ) -> None:
        """Take the part of ``order`` (indexes of ``every`` lane; empty means each once) that
        belongs to one of the threads.
        """
        own = [k for k in order or range(len(every)) if k % threads == thread]
        self.share = len(own) / len(order or every)
        self.lanes = [every[k] for k in own]
        self.before: list[int] = []
        counts: Counter[int] = Counter()
        for k in own:
            self.before.append(counts[k])
            counts[k] += 1
        self.per_round = [counts[k] for k in own]
        self.is_even = max(self.per_round, default=1) == 1

    def seq(self, i: int) -> int:
        """The sequence number of message i in its lane: dense from 0."""
        turns, turn = divmod(i, len(self.lanes))
        return turns * self.per_round[turn] + self.before[turn]

    def seqs(self, first: int, stop: int) -> array[int]:
        """`seq` of messages ``first .. stop-1``."""
        return array("Q", map(self.seq, range(first, stop)))
