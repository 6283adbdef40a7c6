"""The kinds of anomaly that can be planted, each with the hits it must give, and their innocent twins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.records import Check, Kind, Outcome
from tests.planted.scripts import REDELIVERED, REWOUND, SPAN, Stream

Identity = tuple[int, int, int, int]  # instance, lane, seq, attempt
#: Kinds of one message of a producer and stream: its first, or its last.
EDGES = ("acked-lost-prefix", "acked-lost-tail")
ERRORS = ("MSG_TIMED_OUT", "MSG_SIZE_TOO_LARGE", "QUEUE_FULL")
UNKNOWN_INSTANCE = 900_000
HUGE_SEQ = 10**15
NOWHERE = {"stream": 0, "position": -1}


@dataclass
class Truth:
    """What judging must find: messages by (class, split), each once. Everything else must be silent.

    ``attempted``, ``ok``, ``fail``, ``info``, ``open`` count sends; ``rows`` the rows of each table.
    """

    found: dict[tuple[str, str], list[Identity]] = field(default_factory=lambda: defaultdict(list))
    sends: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def add(self, cls: str, identity: Identity, split: str = "") -> None:
        self.found[cls, split].append(identity)

    def counts(self) -> dict[str, int]:
        """Messages by class."""
        total: dict[str, int] = {}
        for (cls, _), identities in self.found.items():
            total[cls] = total.get(cls, 0) + len(identities)
        return dict(sorted(total.items()))

    def splits(self, cls: str) -> dict[str, int]:
        return {split: len(ids) for (c, split), ids in sorted(self.found.items()) if c == cls}

    def identities(self, cls: str) -> npt.NDArray[np.int64]:
        """Sorted (instance, lane, seq, attempt) of a class, shape (n, 4)."""
        ids = [i for (c, _), found in self.found.items() if c == cls for i in found]
        return np.array(sorted(ids), np.int64).reshape(-1, 4)


@dataclass(frozen=True, slots=True)
class Site:
    """Where an anomaly goes: ``seq`` is the first of the `SPAN` messages of instance number ``i``.

    ``sibling``: another stream of the topic (itself if there is none).
    """

    stream: Stream
    seq: int
    i: int
    sibling: Stream
    error: Mapping[str, int]  # name id by text

    def at(self, offset: int) -> int:
        """Clean index of the offset-th message of the site."""
        return self.stream.index(self.seq + offset, self.i)

    def done(self, offset: int, outcome: Outcome, error: str = "", **columns: int) -> None:
        """The send ended otherwise than ok; its acknowledgement named no place."""
        number = self.error[error] if error else 0
        change = {"outcome": outcome, "error": number, **NOWHERE, **columns}
        self.stream.sends[self.at(offset)] = change


def _lost(site: Site, truth: Truth, offset: int, split: str) -> None:
    site.stream.drop(site.at(offset))
    truth.add("acked-lost", site.stream.identity(site.at(offset)), split)


def _middle(site: Site, truth: Truth) -> None:
    _lost(site, truth, 5, "middle")


def _prefix(site: Site, truth: Truth) -> None:
    _lost(site, truth, 0, "prefix")


def _tail(site: Site, truth: Truth) -> None:
    _lost(site, truth, SPAN - 1, "tail")


def _false_nack(site: Site, truth: Truth) -> None:
    site.done(5, Outcome.FAIL, "MSG_SIZE_TOO_LARGE")
    truth.add("false-nack", site.stream.identity(site.at(5)))


def _phantom_instance(site: Site, truth: Truth) -> None:
    identity = (UNKNOWN_INSTANCE, site.stream.lane, site.seq, 0)
    _strange_row(site, truth, identity)


def _phantom_sequence(site: Site, truth: Truth) -> None:
    identity = (int(site.stream.instances[site.i]), site.stream.lane, HUGE_SEQ + site.seq, 0)
    _strange_row(site, truth, identity)


def _strange_row(site: Site, truth: Truth, identity: Identity) -> None:
    instance, lane, seq, _ = identity
    ref = site.stream.special(instance=instance, lane=lane, seq=seq, kind=Kind.LOAD)
    site.stream.insert(site.at(5), ref)
    truth.add("phantom", identity, "never sent")


def _foreign(site: Site, truth: Truth) -> None:
    site.stream.insert(site.at(5), site.stream.special(check=Check.FOREIGN))
    truth.add("phantom", (0, 0, 0, 0), "foreign")


def _other_run(site: Site, truth: Truth) -> None:
    site.stream.insert(site.at(5), site.stream.special(check=Check.OTHER_RUN))
    truth.add("phantom", (0, 0, 0, 0), "other run")


def _write_duplicate(site: Site, truth: Truth) -> None:
    site.stream.insert(site.at(8), site.at(5))
    truth.add("write-duplicate", site.stream.identity(site.at(5)), "same send")


def _block_resent(site: Site, truth: Truth) -> None:
    for offset in (3, 4, 5, 6):
        site.stream.insert(site.at(7), site.at(offset))
        truth.add("write-duplicate", site.stream.identity(site.at(offset)), "same send")


def _producer_reorder(site: Site, truth: Truth) -> None:
    site.stream.drop(site.at(5))
    site.stream.insert(site.at(7), site.at(5))
    truth.add("producer-reorder", site.stream.identity(site.at(5)))


def _premature(site: Site, truth: Truth) -> None:
    site.stream.insert(site.at(6), site.at(9))
    truth.add("premature-then-repeat", site.stream.identity(site.at(9)))


def _info_stored(site: Site, truth: Truth) -> None:
    site.done(5, Outcome.INFO, "MSG_TIMED_OUT")
    truth.add("info-stored", site.stream.identity(site.at(5)))


def _info_not_stored(site: Site, truth: Truth) -> None:
    site.done(5, Outcome.INFO, "MSG_TIMED_OUT")
    site.stream.drop(site.at(5))
    truth.add("info-not-stored", site.stream.identity(site.at(5)))


def _corrupt(site: Site, truth: Truth) -> None:
    site.stream.drop(site.at(5))
    # the acknowledged position is the corrupt row's, which is how the message is recognised
    ref = site.stream.special(check=Check.CORRUPT, ack_lane=site.stream.lane, ack_index=site.at(5))
    site.stream.insert(site.at(5), ref)
    truth.add("corrupt", site.stream.identity(site.at(5)), "in the log")


def _wrong_partition(site: Site, truth: Truth) -> None:
    index = site.at(5)
    instance, lane, seq, _ = site.stream.identity(index)
    site.stream.drop(index)
    ref = site.sibling.special(
        instance=instance, lane=lane, seq=seq, kind=Kind.LOAD, ack_lane=lane, ack_index=index
    )
    site.sibling.insert(site.at(0), ref)
    truth.add("wrong-partition", (instance, lane, seq, 0), "partition")


def _unrecorded(site: Site, truth: Truth) -> None:
    site.stream.unrecorded.add(site.at(5))
    truth.add("send-record-missing", site.stream.identity(site.at(5)), "stored")


def _application_resend(site: Site, truth: Truth) -> None:
    """Timed out but stored; the application sends it again as attempt 1, which is stored too."""
    index = site.at(5)
    instance, lane, seq, _ = site.stream.identity(index)
    site.done(5, Outcome.INFO, "MSG_TIMED_OUT")
    again = {"instance": instance, "lane": lane, "seq": seq, "attempt": 1, "kind": Kind.LOAD}
    site.stream.insert(site.at(12), site.stream.special(**again, ack_lane=lane, ack_index=index))
    site.stream.resends.append((site.at(10), index))
    truth.add("info-stored", (instance, lane, seq, 0))
    truth.add("write-duplicate", (instance, lane, seq, 1), "application re-send")


def _failed_absent(site: Site, truth: Truth) -> None:
    site.done(5, Outcome.FAIL, "QUEUE_FULL")
    site.stream.drop(site.at(5))


def _delivery(what: str, cls: str, split: str = "") -> Planter:
    def plant(site: Site, truth: Truth) -> None:
        site.stream.disturb(what, site.at(5))
        truth.add(cls, site.stream.identity(site.at(5)), split)

    return plant


def _rebalance(site: Site, truth: Truth) -> None:
    _redelivered(site, truth, "rebalance", range(REDELIVERED), "delivery-duplicate", "after rebalance")


def _rewind(site: Site, truth: Truth) -> None:
    _redelivered(site, truth, "rewind", range(REDELIVERED), "delivery-duplicate", "after rebalance")
    _redelivered(site, truth, "", range(-REWOUND, 0), "rewind-past-commit", "")


def _redelivered(site: Site, truth: Truth, what: str, offsets: range, cls: str, split: str) -> None:
    if what:
        site.stream.disturb(what, site.at(5))
    for offset in offsets:
        truth.add(cls, site.stream.identity(site.at(5) + offset), split)


Planter = Callable[[Site, Truth], None]
#: What can be planted, by name. Names with a twin in brackets are the innocent form of a class.
PLANTERS: Mapping[str, Planter] = {
    "acked-lost-prefix": _prefix,
    "acked-lost-middle": _middle,
    "acked-lost-tail": _tail,
    "failed-absent": _failed_absent,  # (acked-lost, false-nack)
    "info-not-stored": _info_not_stored,  # (acked-lost)
    "false-nack": _false_nack,
    "info-stored": _info_stored,  # (false-nack)
    "phantom": _phantom_instance,
    "phantom-sequence": _phantom_sequence,
    "send-record-missing": _unrecorded,  # (phantom)
    "foreign": _foreign,  # (phantom, corrupt)
    "other-run": _other_run,  # (phantom)
    "write-duplicate": _write_duplicate,
    "block-resent": _block_resent,  # (producer-reorder)
    "application-resend": _application_resend,  # (write-duplicate)
    "producer-reorder": _producer_reorder,
    "premature-then-repeat": _premature,
    "corrupt": _corrupt,
    "wrong-partition": _wrong_partition,
    "not-dispatched": _delivery("skip", "not-dispatched"),
    "delivery-duplicate": _delivery("repeat", "delivery-duplicate", "same assignment"),
    "delivery-reorder": _delivery("swap", "delivery-reorder"),
    "legal-redelivery": _rebalance,  # (delivery-duplicate, rewind-past-commit)
    "rewind-past-commit": _rewind,
}
ALL_KINDS = tuple(PLANTERS)


def plant_all(
    streams: Sequence[Stream],
    siblings: Mapping[int, Stream],
    anomalies: Mapping[str, int],
    error: Mapping[str, int],
    rng: np.random.Generator,
) -> Truth:
    """Plant ``anomalies[kind]`` of each kind at random places that do not touch each other.

    ``siblings``: by stream number, a stream of the same topic that wrong-partition rows end up in.
    """
    unknown = set(anomalies) - set(PLANTERS)
    if unknown:
        raise ValueError(f"cannot plant {sorted(unknown)}; known: {', '.join(PLANTERS)}")
    truth = Truth()
    inner = {kind: count for kind, count in anomalies.items() if kind not in EDGES}
    sites = _sites(streams, siblings, error, sum(inner.values()), rng)
    for kind, count in inner.items():
        for _ in range(count):
            PLANTERS[kind](sites.pop(), truth)
    for kind in EDGES:
        for site in _edge_sites(streams, siblings, error, kind, anomalies.get(kind, 0), rng):
            PLANTERS[kind](site, truth)
    return truth


def _sites(
    streams: Sequence[Stream],
    siblings: Mapping[int, Stream],
    error: Mapping[str, int],
    count: int,
    rng: np.random.Generator,
) -> list[Site]:
    """Random blocks, the first and last of each stream left out."""
    blocks = [max(s.messages // SPAN - 2, 0) for s in streams]
    if count > sum(blocks):
        raise ValueError(f"{count} anomalies need {count} blocks; these streams have {sum(blocks)}")
    edges = np.cumsum(blocks)
    sites = []
    for place in rng.choice(int(edges[-1]), count, replace=False).tolist():
        number = int(np.searchsorted(edges, place, side="right"))
        block = place - (int(edges[number - 1]) if number else 0) + 1
        stream = streams[number]
        i = int(rng.integers(len(stream.instances)))
        sites.append(Site(stream, block * SPAN, i, siblings[stream.number], error))
    return sites


def _edge_sites(
    streams: Sequence[Stream],
    siblings: Mapping[int, Stream],
    error: Mapping[str, int],
    kind: str,
    count: int,
    rng: np.random.Generator,
) -> list[Site]:
    """The first or last block of random (stream, instance) pairs."""
    pairs = [(s, i) for s in streams for i in range(len(s.instances))]
    if count > len(pairs):
        raise ValueError(f"{count} x {kind}, but there are only {len(pairs)} producers and streams")
    chosen = [pairs[k] for k in rng.choice(len(pairs), count, replace=False).tolist()]
    return [
        Site(s, 0 if kind == EDGES[0] else s.messages - SPAN, i, siblings[s.number], error) for s, i in chosen
    ]
