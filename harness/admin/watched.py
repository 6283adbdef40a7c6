"""Leaderships as a run watched them, of brokers that keep no history of their own."""

from __future__ import annotations

from harness.contracts.rows import Leadership
from harness.protocols.cluster import SeenLeaders


def watched_leaderships(seen: SeenLeaders) -> list[Leadership]:
    """One term for each leader that was seen, in the order of streams and times."""
    return [
        Leadership(stream=stream, term=term, leader=leader, t_ns=t_ns, late_ns=late_ns)
        for stream, rows in sorted(seen.items())
        for term, (t_ns, late_ns, leader) in enumerate(rows, start=1)
    ]
