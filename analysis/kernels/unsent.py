"""Finds commits that a client confirmed and never sent. It runs once, on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from analysis.capture.context import Context, SessionFacts, UnsentCommit
from analysis.kernels.class_hits import NO_MESSAGE, ClassHits
from analysis.kernels.deaths import WHOLE_RUN
from analysis.kernels.hits import BITS
from analysis.kernels.partial import Episode, Partial, RawWitness

CLASS = "commit-not-sent"
UNKNOWN = "position unknown"


def judge(context: Context, *, with_hits: bool = False) -> Partial:
    """commit-not-sent, one episode a commit of a stream."""
    episodes = list(_episodes(context))
    hits = (_hits(context, episodes),) if with_hits and episodes else ()
    return Partial(bucket=WHOLE_RUN, episodes=episodes, hits=hits)


def _episodes(context: Context) -> Iterator[Episode]:
    for session in context.sessions.values():
        positions = context.committed.get(session.group, {})
        for commit in session.unsent:
            yield _episode(context, session, commit, positions.get(commit.stream))


def _episode(
    context: Context, session: SessionFacts, commit: UnsentCommit, end: int | None
) -> Episode:
    """``end``: the position that the group had committed in the end; None = it is not known."""
    stream = (
        context.streams[commit.stream - 1] if commit.stream else "a stream that is not in the plan"
    )
    if end is None:
        split, group = UNKNOWN, f"the position of group {session.group} in the end is not known"
    elif end < commit.position:
        split, group = "not covered", f"in the end group {session.group} is at {max(end, 0)}"
    else:
        split, group = "covered later", f"in the end group {session.group} is at {end}"
    witness = RawWitness(
        message=f"{stream}@{commit.position}",
        where=f"{stream}, {session.name}",
        t_ns=commit.t_ns,
        detail=f"the commit of {commit.position} was confirmed and no request was sent; {group}",
    )
    return Episode(
        cls=CLASS,
        split=split,
        unmet=("offsets-read",) if end is None else (),
        instance=0,
        lane=-1,
        stream=commit.stream,
        session=session.number,
        first_ns=commit.t_ns,
        last_ns=commit.t_ns,
        count=1,
        witnesses=(witness,),
    )


def _hits(context: Context, episodes: Sequence[Episode]) -> ClassHits:
    splits = tuple(dict.fromkeys(episode.split for episode in episodes))
    commits = [commit for session in context.sessions.values() for commit in session.unsent]
    rows = [
        {
            "t_ns": episode.first_ns,
            "stream": episode.stream,
            "position": commit.position,
            "session": episode.session,
            "split": splits.index(episode.split),
            "unmet": sum(BITS[name] for name in episode.unmet),
        }
        for episode, commit in zip(episodes, commits, strict=True)
    ]
    columns = {
        name: np.array([row.get(name, usual) for row in rows]) for name, usual in NO_MESSAGE.items()
    }
    return ClassHits.from_columns(CLASS, splits, columns)
