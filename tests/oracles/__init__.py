"""Slow, obvious definitions of every anomaly class, one row at a time: what the kernels are held
to.

Nothing here is shared with the kernels but the table of classes. `judge` gives every message its
one class; messages are named (instance, lane, seq, attempt), other rows (stream, position).
"""

from __future__ import annotations

from tests.oracles.applied import ORACLES as APPLIED
from tests.oracles.died import ORACLES as DIED
from tests.oracles.dispatched import ORACLES as DISPATCHED
from tests.oracles.excused import excused
from tests.oracles.facts import Facts, Hit, Name
from tests.oracles.logged import ORACLES as LOGGED
from tests.oracles.ordered import ORACLES as ORDERED
from tests.oracles.piped import ORACLES as PIPED
from tests.oracles.queued import ORACLES as QUEUED
from tests.oracles.ranking import ranked
from tests.oracles.refused import ORACLES as REFUSED
from tests.oracles.removed import between_topics
from tests.oracles.replicated import ORACLES as REPLICATED
from tests.oracles.settled import ORACLES as SETTLED
from tests.oracles.stalled import ORACLES as STALLED
from tests.oracles.transacted import ORACLES as TRANSACTED
from tests.oracles.unsent import ORACLES as UNSENT

__all__ = ["Facts", "Hit", "Name", "judge"]


#: Of several hits of one class and status the first stands: what the log holds, before what was
#: given out.
_ALL = (
    *LOGGED,
    *ORDERED,
    *TRANSACTED,
    *PIPED,
    *APPLIED,
    *DISPATCHED,
    *SETTLED,
    *REFUSED,
    *STALLED,
    *QUEUED,
    *DIED,
    *REPLICATED,
    *UNSENT,
)


def judge(facts: Facts) -> list[Hit]:
    """One hit a message, and every hit that is about no message."""
    hits = [hit for oracle in _ALL for hit in oracle(facts)]
    return ranked(facts, excused(facts, between_topics(facts, hits)))
