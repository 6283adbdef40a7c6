"""Interleaved measurements on one cluster, so that what the machine does meanwhile meets every
arm."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from harness.clusters import BrokerCluster, open_cluster

S = TypeVar("S")


@contextmanager
def cluster_of(
    system: str, *, secure: bool = False, needs: frozenset[str] = frozenset()
) -> Iterator[tuple[BrokerCluster[Any], Path]]:
    """A cluster that is up, and a folder; both are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="brokerstorm-bench-") as temporary:
        root = Path(temporary)
        cluster = open_cluster(
            system,
            run_id=f"bench-{time.monotonic_ns()}",
            folder=root / "cluster",
            secure=secure,
            needs=needs,
        )
        try:
            cluster.up(timeout_s=120)
            yield cluster, root
        finally:
            cluster.down()


def interleaved(
    rounds: int, arms: Sequence[tuple[str, Callable[[], S]]], told: Callable[[S], str]
) -> dict[str, list[S]]:
    """Samples by arm, each told on stderr. The order turns by one place every round."""
    found: dict[str, list[S]] = {}
    for number in range(rounds):
        turn = number % len(arms)
        for name, arm in (*arms[turn:], *arms[:turn]):
            sample = arm()
            found.setdefault(name, []).append(sample)
            print(f"round {number}  {name:<20} {told(sample)}", file=sys.stderr)
    return found
