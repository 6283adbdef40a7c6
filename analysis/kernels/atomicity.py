"""The second pass over transactions: all of one is visible, or nothing. It needs the counts of all
buckets, so it runs once a run, on the driver."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.capture.context import Context
from analysis.kernels.atoms import Atoms, merged
from analysis.kernels.class_hits import NO_MESSAGE, ClassHits
from analysis.kernels.hits import BITS
from analysis.kernels.lies import lied_streams, lies_about
from analysis.kernels.partial import Episode, Partial, RawWitness

#: In the place of a bucket's number.
WHOLE_RUN = -1


def judge(
    context: Context, parts: Sequence[Atoms], *, is_whole: bool = True, with_hits: bool = False
) -> Partial:
    """lost-commit and torn-transaction, one episode a transaction.

    Args:
        parts: of every bucket that has any.
        is_whole: no bucket is missing.
    """
    table = context.transactions
    found = merged(parts, len(table))
    if found is None:
        return Partial(bucket=WHOLE_RUN)
    gone = found.sent - found.seen - found.unsure
    torn = np.flatnonzero(table.may_be_committed & (found.seen > 0) & (gone > 0))
    lost = np.flatnonzero(
        table.may_be_committed & table.is_committed & (found.seen == 0) & (found.sent > 0)
    )
    lost = lost[gone[lost] > 0]
    episodes = [
        _episode(context, found, at, "torn-transaction", _believed(context, at, "torn-transaction"))
        for at in torn.tolist()
    ]
    for at in lost.tolist():
        proved = is_whole and not found.unsure[at]
        read = () if proved else ("audit-complete",)
        unmet = (*read, *_believed(context, at, "lost-commit"))
        episodes.append(_episode(context, found, at, "lost-commit", unmet))
    hits = tuple(_hits(episodes)) if with_hits else ()
    return Partial(bucket=WHOLE_RUN, episodes=episodes, hits=hits)


def _believed(context: Context, at: int, cls: str) -> tuple[str, ...]:
    """The precondition that a transaction lacks of which a client may have acknowledged messages
    because of a false error."""
    table = context.transactions
    end_ns = int(table.t_done_ns[at] or table.t_asked_ns[at])
    told = any(lie.since_ns <= end_ns for lie in lies_about(context, cls))
    return ("answers-kept",) if told else ()


def _episode(context: Context, found: Atoms, at: int, cls: str, unmet: tuple[str, ...]) -> Episode:
    table = context.transactions
    lane, seq, stream = found.gone_at[at].tolist()
    instance, t_ns = int(table.instance[at]), int(table.t_done_ns[at] or table.t_asked_ns[at])
    seen, sent = int(found.seen[at]), int(found.sent[at])
    detail = f"{table.name(at)}: {seen:,} of {sent:,} messages are visible"
    if seen:
        there = found.seen_at[at].tolist()
        detail += f", such as {instance}/{there[0]}/{there[1]} on {context.stream_name(there[2])}"
    witness = RawWitness(
        message=f"{instance}/{lane}/{seq}",
        where=context.stream_name(stream) or context.lane_text(lane),
        t_ns=t_ns,
        detail=detail,
    )
    split = (
        ""
        if cls == "lost-commit"
        else "committed"
        if table.is_committed[at]
        else "commit not answered"
    )
    if found.removed[at] + found.power[at] == sent - seen - int(found.unsure[at]):
        split = "power" if found.power[at] else "removed"
    if split == "power" and _lie_took(context, stream) and "answers-kept" not in unmet:
        unmet = (*unmet, "answers-kept")
    return Episode(
        cls=cls,
        split=split,
        unmet=unmet,
        instance=instance,
        lane=lane,
        stream=max(stream, 0),
        session=0,
        first_ns=t_ns,
        last_ns=t_ns,
        count=1,
        witnesses=(witness,),
    )


def _lie_took(context: Context, stream: int) -> bool:
    """Whether a disk that lied may have lost a part of a transaction: of the stream of a message
    that is gone (0 or less: not known), or of what the brokers keep of transactions. Of several
    messages that are gone, one is looked at."""
    lied = lied_streams(context)
    own = lied - set(context.streams)
    return bool(own) or (context.stream_name(stream) in lied if stream > 0 else bool(lied))


def _hits(episodes: Sequence[Episode]) -> list[ClassHits]:
    found = []
    for one in episodes:
        own = {
            "instance": one.instance,
            "lane": one.lane,
            "t_ns": one.first_ns,
            "stream": one.stream,
        }
        own |= {"seq": int(one.witnesses[0].message.rsplit("/", 1)[1]), "attempt": 0}
        own |= {"unmet": sum(BITS[name] for name in one.unmet)}
        columns = {name: np.array([own.get(name, value)]) for name, value in NO_MESSAGE.items()}
        found.append(ClassHits.from_columns(one.cls, (one.split,), columns))
    return found
