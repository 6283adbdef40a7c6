"""Counts the partitions that moved from one member of a consumer group to another during the
load."""

from __future__ import annotations

from collections import Counter

from analysis.kernels.matching import Matching
from harness.records import Event


def moved_partitions(matching: Matching) -> dict[str, int]:
    """By group, how often a partition was assigned to another member than the one that had it
    before.

    A member is a client of the plan: its next life after a restart is the same member. Assignments
    before the load, while the group comes together, and after it, while its members close one by
    one, do not count as moves. A group whose members journal no assignments is left out: its moves
    are not known.
    """
    context = matching.history.context
    assigned = [
        change for change in matching.changes if change.event == Event.ASSIGN and change.stream
    ]
    owner: dict[tuple[str, int], str] = {}
    moved: Counter[str] = Counter()
    for change in sorted(assigned, key=lambda change: change.t_ns):
        group = matching.group_of_session[change.session]
        session = context.sessions.get(change.session)
        member = session.life_of if session else str(change.session)
        before = owner.get((group, change.stream), member)
        owner[group, change.stream] = member
        is_during_load = context.load_start_ns <= change.t_ns < context.load_end_ns
        moved[group] += member != before and is_during_load
    return dict(moved)
