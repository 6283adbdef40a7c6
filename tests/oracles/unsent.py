"""Oracle of commits that a client confirmed and never sent: one hit for each event of a worker."""

from __future__ import annotations

from tests.oracles.facts import Facts, Hit


def commit_not_sent(facts: Facts) -> list[Hit]:
    context = facts.context
    hits = []
    for session in context.sessions.values():
        for commit in session.unsent:
            name = ("commit", f"{context.streams[commit.stream - 1]}@{commit.position}")
            known = context.committed.get(session.group, {})
            if commit.stream not in known:
                split, unmet = "position unknown", frozenset({"offsets-read"})
            elif known[commit.stream] >= commit.position:
                split, unmet = "covered later", frozenset()
            else:
                split, unmet = "not covered", frozenset()
            hits.append(Hit("commit-not-sent", name, split, unmet, commit.t_ns))
    return hits


ORACLES = (commit_not_sent,)
